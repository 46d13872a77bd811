"""Where a step's time goes, by the traces of a measurement's profiled run.

stored.py     the profile of a measurement, and the differences of two
trace.py      a trace as ranges of time
intervals.py  sets of intervals of time
steps.py      the parts and operators of the steps in a trace
"""
