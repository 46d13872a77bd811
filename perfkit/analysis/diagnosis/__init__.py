"""Diagnosis: whether the input or the training limits the throughput of a configuration.

stored.py      the stored form, `diagnosis.json`
judge.py       what limits the throughput, and the prefetch depth that hides a slow batch
run.py         measures with the input, with synthetic input, and the input alone
statements.py  what a diagnosis says, in sentences
script.py      measures a script: its wait for data and its input alone
"""
