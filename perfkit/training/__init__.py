"""Trains the built-in models by ordinary scripts, one folder for each framework.

models.py      facts of the models: FLOPs, settings, defaults
frameworks.py  what must be known of a framework without importing it
options.py     the arguments of the scripts
effective.py   what a training effectively computes in
trace.py       traces a few steps, to compare frameworks
xla.py         reads the products in XLA's compiled text

`<framework>/train.py` is the script; a file beside it has each model.
"""
