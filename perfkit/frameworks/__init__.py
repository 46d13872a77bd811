"""The frameworks that train, a folder for each: facts known without importing it in
`<name>/__init__.py`, training in `<name>/backend.py`, networks in `<name>/networks.py`, or in
`functional/networks.py` where frameworks share them.

base.py  the interface; types of devices; the precision of a training, by dtypes
"""

from perfkit.frameworks import jax, mxnet, paddle, tensorflow, torch

FRAMEWORKS = {
    "paddle": paddle.FRAMEWORK,
    "torch": torch.FRAMEWORK,
    "jax": jax.FRAMEWORK,
    "tensorflow": tensorflow.FRAMEWORK,
    "mxnet": mxnet.FRAMEWORK,
}
