"""The timed region and what is told of it; imports no framework.

loop.py        the training loop and its timer
ceiling.py     the most that a device can do
precision.py   which precision a training really had
strategies.py  presets of distributed training, as published suites printed them
"""
