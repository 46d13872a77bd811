"""What frameworks share whose networks are functions of a forward pass: JAX, TensorFlow, MXNet.
Imports no framework. `networks.py` has the networks, `layers.py` what they are made of,
`trainer.py` a trainer's parameters and gradients."""
