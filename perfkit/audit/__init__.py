"""Audits: published numbers recomputed from the raw logs behind them.

recompute.py  files to an audit
stored.py     an audit as it is stored
blocks.py     the windows of a log again, block by block
floats.py     any number of floats, and their median
sums.py       what statistics over a period need, summed up
figures.py    every throughput that a log gives, by each statistic that suites use
claims.py     which figure of a log explains a claimed number
places.py     which log stands behind a published number
course.py     what the prints of a log show besides their throughput
findings.py   what is odd about a log, or about several together
dlperf.py     DLPerf's own summary of a folder in its layout
sentences.py  what was found, in words and sentences
recorded.py   what importers stored in English, in the current language
words.py      an audit as text for a terminal
"""
