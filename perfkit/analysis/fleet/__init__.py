"""Which nodes of a fleet are slow, and what distinguishes them.

judgement.py     verdicts from repeats: simultaneous intervals and the spread between good nodes
fleet.py         the workloads of a fleet, judged together
explanations.py  in what a slow node differs from the others
stored.py        a judged fleet, as --json writes it
files.py         fleet.csv, and lists of nodes for Slurm
"""
