"""What is stored of a measurement, and how it is read.

schema.py      result.json, as models
store.py       its folder: paths, atomic writes, strict reading
summarize.py   a repeat's numbers, from the raw events of its ranks or the prints of its log
telemetry.py   the machine in a repeat's window, from samples of it
frames.py      measurements as pandas DataFrames
"""
