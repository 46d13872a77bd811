"""Whether frameworks do the same work.

verify.py   has each framework do the same training
verdict.py  compares what they did
stored.py   the same as it is stored, and which measurements it holds for
words.py    the same in words and rows
"""
