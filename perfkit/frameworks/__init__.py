"""The frameworks that train, a folder for each: facts known without importing it in
`<name>/__init__.py`, training in `<name>/backend.py`, a network in `<name>/<model>.py`.

base.py       the interface
precision.py  the precision of a training, by dtypes
"""

from perfkit.frameworks import jax, paddle, torch

FRAMEWORKS = {
    "paddle": paddle.FRAMEWORK,
    "torch": torch.FRAMEWORK,
    "jax": jax.FRAMEWORK,
}
