"""Shared code of frameworks whose networks are functions of a forward pass: JAX, TensorFlow and
MXNet. Imports no framework.

layers.py   layers of the networks and their initial values
trainer.py  a trainer whose network is a function of named parameters, and its inspector
xla.py      a reader of XLA's compiled text
"""
