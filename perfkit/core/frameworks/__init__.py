"""The supported frameworks, one folder each: `<name>/__init__.py` holds facts known without
importing the framework. Paddle and PyTorch train by perfkit.training. Of the others,
`<name>/backend.py` trains, `<name>/inspector.py` reads a trainer's weights and settings, and
`<name>/layers.py` has the layers of the networks.

facts.py      facts of a framework: names, supported values, defaults, launch command
interface.py  what a backend has to provide
trainer.py    what trains: a model with its optimizer
inspector.py  what reads a trainer's weights, gradients and effective settings
effective.py  names and readings of effective settings
ranks.py      starts ranks as plain processes, for frameworks without a launcher
networks.py   the networks, in any framework's layers

`functional/` has the shared code of JAX, TensorFlow and MXNet.
"""

from perfkit.core.frameworks import jax, mxnet, paddle, tensorflow, torch

FRAMEWORKS = {
    "paddle": paddle.FRAMEWORK,
    "torch": torch.FRAMEWORK,
    "jax": jax.FRAMEWORK,
    "tensorflow": tensorflow.FRAMEWORK,
    "mxnet": mxnet.FRAMEWORK,
}
DISPLAY_NAMES = {name: framework.display_name for name, framework in FRAMEWORKS.items()}
"""Name of a framework in parameters -> its name in texts."""
