"""From a request to a plan.

plan.py         parameters validated
resolve.py      what they leave open, filled in from what the machine has
refusal.py      how a wrong request is told
hosts.py        which machines take part, and which of them this is
environment.py  facts of this machine and of the framework that trains
"""
