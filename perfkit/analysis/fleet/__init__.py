"""Which nodes of a fleet are slow, and what distinguishes them.

judgement.py     verdicts from repeats: simultaneous intervals and the spread between good nodes
workloads.py     the workloads of a fleet, and which of them a node lacks
fleet.py         the workloads of a fleet, judged together
explanations.py  in what a slow node differs from the others
stored.py        a judged fleet, as --json writes it
files.py         fleet.csv, and lists of nodes for Slurm
"""
