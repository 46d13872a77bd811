"""The supported frameworks, one folder each: `<name>/__init__.py` holds facts known without
importing the framework, `<name>/backend.py` trains. `networks.py` describes the networks of all
of them; `paddle/layers.py`, `torch/layers.py` and `functional/layers.py` have their layers.
`base.py` is the interface.
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
