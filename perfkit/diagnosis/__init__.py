"""What limits a measurement: its parts measured by themselves, judged and told.

parts.py    the driver's side: measures each part
verdict.py  what these measurements say
words.py    the same in sentences
"""
