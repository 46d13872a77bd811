"""What a measurement's numbers say about themselves.

steady.py        when steps become steady, and whether they stay so
warmup.py        when a running repeat is warmed up
disturbances.py  which repeats something else on the machine disturbed
ratios.py        the ratio of two measurements with its interval and verdict
series.py        where the level of a series of measurements changes
losses.py        what loss and accuracy of a training can be
warnings.py      what speaks against believing a measurement
utilization.py   how near it came to what its devices can do
gpu_peaks.csv    what the makers of GPUs state of that
"""
