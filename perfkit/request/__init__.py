"""From a request to a plan.

plan.py         parameters validated
resolve.py      what they leave open, filled in: a configuration
checks.py       what keeps it from being measured
errors.py       what is wrong with a request, in sentences
hosts.py        which machines take part, and which of them this is
environment.py  facts of this machine and of the framework that trains
"""
