"""The worker processes.

rank.py    one rank of a repeat
loop.py    the training loop and its timer
warmup.py  end of an automatic warm-up
trace.py   a framework's work with given weights and one batch
"""
