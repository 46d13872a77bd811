"""The supported frameworks, one folder each: `<name>/__init__.py` holds facts known without
importing the framework, `<name>/backend.py` trains, `<name>/networks.py` holds the networks.
JAX, TensorFlow and MXNet share `functional/networks.py`. `base.py` is the interface.
"""

from perfkit.frameworks import jax, mxnet, paddle, tensorflow, torch

FRAMEWORKS = {
    "paddle": paddle.FRAMEWORK,
    "torch": torch.FRAMEWORK,
    "jax": jax.FRAMEWORK,
    "tensorflow": tensorflow.FRAMEWORK,
    "mxnet": mxnet.FRAMEWORK,
}
