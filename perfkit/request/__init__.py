"""From a request to a plan.

plan.py        parameters validated, and what they leave open filled in
frameworks.py  what each framework takes, known without importing it
nearest.py     what was meant by a word that is not known
launchers.py   the command line that starts each framework's workers
"""
