"""The frameworks that train, a folder for each: facts known without importing it in
`<name>/__init__.py`, training in `<name>/backend.py`, a network in `<name>/<model>.py`, or in
`functional/<model>.py` where frameworks share it.

base.py       the interface
devices.py    types of devices
precision.py  the precision of a training, by dtypes
"""

from perfkit.frameworks import jax, mxnet, paddle, tensorflow, torch

FRAMEWORKS = {
    "paddle": paddle.FRAMEWORK,
    "torch": torch.FRAMEWORK,
    "jax": jax.FRAMEWORK,
    "tensorflow": tensorflow.FRAMEWORK,
    "mxnet": mxnet.FRAMEWORK,
}
