"""Which numbers may stand side by side.

published.csv  the published numbers, transcribed from their sources
published.py   reads them
cells.py       the same in the shapes of their sources
series.py      which measurements may stand in one table
matches.py     which measurement stands beside which published number
"""
