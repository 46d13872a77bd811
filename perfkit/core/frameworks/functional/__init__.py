"""Shared code of frameworks whose networks are functions of a forward pass: JAX, TensorFlow and
MXNet. Imports no framework."""
