"""What a measurement's numbers say about themselves.

steady.py        when steps become steady and stay so; when a running repeat is warmed up
ratios.py        the ratio of two measurements with its interval and verdict
series.py        where the level of a series of measurements changes
warnings.py      what speaks against believing a measurement: disturbed repeats, odd losses
utilization.py   how near it came to what its devices can do
gpu_peaks.csv    what the makers of GPUs state of that
"""
