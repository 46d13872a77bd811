"""Stored measurements.

base.py        the base of all models of stored JSON files
identity.py    what identifies a measurement, and its id
effective.py   what ranks told the timer and noted about their training
repeat.py      models of a repeat
schema.py      models of result.json
failures.py    why a run failed
remedies.py    what may help against a failure
store.py       a measurement's folder: paths, atomic writes, strict reading
summarize.py   a repeat's numbers from the raw events of its ranks
telemetry.py   summary of the telemetry in a repeat's window
frames.py      measurements and raw steps as pandas DataFrames
outputs.py     all measurements of an outputs folder
"""
