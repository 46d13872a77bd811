"""The driver: it starts workers, watches them and stores what they measured. No framework.

measure.py   plans repeats, runs them in fresh processes, collects, stores
repeat.py    one repeat, from its first process to its last
task.py      workers started for something besides measuring
cause.py     why workers ended before their time
progress.py  the line of text that a waiting user sees
doctor.py    what would keep a measurement from running
"""
