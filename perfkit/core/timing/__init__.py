"""Times the steps of a training. Needs only the standard library at import, so that it also
works in the environment of a user's own script.

devices.py         devices as the timer sees them
recorder.py        records the steps of a training
course.py          warm-up, window, over
raw_file.py        the raw events of a rank
classification.py  the failure code of an exception
"""
