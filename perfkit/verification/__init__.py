"""Whether frameworks do the same work.

verify.py   has each framework do the same training
verdict.py  compares what they did, as it is stored
words.py    the same in words and rows
"""
