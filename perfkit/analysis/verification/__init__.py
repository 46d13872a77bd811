"""Verification that frameworks do the same work: each trains the same steps, and their results
are compared.

stored.py      the stored form of a verification
judge.py       compares the traces of two frameworks
run.py         traces each framework in its own process, and stores the verification
matching.py    which stored verifications hold for a measurement
command.py     the command that verifies given configurations
statements.py  the verdicts, in sentences
"""
