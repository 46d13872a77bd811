"""Which nodes of a fleet are slow, and in what they differ from the others.

rule.py         the verdict on each node, from the repeats of all nodes
fleet.py        the workloads and peaks of a fleet, judged together
differences.py  in what a slow node differs from the others
stored.py       a judged fleet, as --json writes it
"""
