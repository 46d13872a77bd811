"""What a measurement's numbers say about themselves.

steady.py       when steps become steady, and whether they stay so
sanity.py       what speaks against believing a measurement
utilization.py  how near it came to what its devices can do
"""
