"""What runs in the processes that train.

rank.py    one rank of one repeat
loop.py    the training loop and its timer
warmup.py  when a warm-up of open length is over
peak.py    the most that a device can do
trace.py   what a framework does with given weights and one batch
"""
