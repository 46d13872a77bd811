"""Live comparisons: sides measured in turn, in one run, and judged pair by pair.

sides.py    what its sides are asked to do
run.py      measures them in turn
verdict.py  judges them pair by pair
stored.py   what comes out, as it is stored
leaders.py  the fastest framework of each row, by many of them
words.py    the same as text
"""
