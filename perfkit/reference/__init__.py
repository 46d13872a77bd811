"""The published numbers, and which measurements may stand beside them.

table.py    published.csv, transcribed from the sources
cells.py    the cells of the tables; layouts.csv, how and where the sources print them
matches.py  which measurements stand at which cells, and in what the two differ
"""
