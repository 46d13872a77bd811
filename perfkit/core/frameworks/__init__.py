"""The frameworks that do not train by perfkit.training yet, one folder each:
`<name>/backend.py` trains, `<name>/inspector.py` reads a trainer's weights and settings, and
`<name>/layers.py` has the layers of the networks.

interface.py  what a backend has to provide
trainer.py    what trains: a model with its optimizer
inspector.py  what reads a trainer's weights, gradients and effective settings
effective.py  names and readings of effective settings
ranks.py      starts ranks as plain processes, for frameworks without a launcher
networks.py   the networks, in any framework's layers

`functional/` has the shared code of JAX, TensorFlow and MXNet.
"""
