"""What frameworks share whose networks are functions of a forward pass: JAX, TensorFlow, MXNet.
Imports no framework. `layers.py` has what networks are made of, `trainer.py` a trainer's
parameters and gradients, `xla.py` what is read of XLA's programs and profiles."""
