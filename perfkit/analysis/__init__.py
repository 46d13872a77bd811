"""Analysis of stored measurements.

ratios.py        the ratio of two measurements with its interval
verdicts.py      what such an interval shows: faster, slower, no difference, can't tell
rates.py         the machine's own rates beside a change of throughput
series.py        levels of a series of measurements, and whether it dropped
warnings.py      the warnings about a measurement: disturbed repeats, implausible losses
script_arguments.py  arguments of scripts as short text, and what tells them apart
token_flops.py   FLOPs per token from a number of parameters
utilization.py   throughput as a share of the devices' peak
datasheets.py    the datasheet of a GPU by its name
gpu_peaks.csv    peak speeds of GPUs from their datasheets
own_references.py  measurements beside the user's own references, a YAML file
diagnosis.py     whether input or training limits a measurement
profile/         parts and operators of a step by a profiler's trace
verification/    work equivalence of frameworks
"""
