"""JAX.

backend.py     device, training step, precision and profile
optimizers.py  momentum SGD and AdamW
program.py     facts read from a compiled program
layers.py      layers and their parameters
resnet50.py    ResNet-50
vgg16.py       VGG-16
bert.py        BERT
"""

from functools import partial

from perfkit.frameworks.base import Framework
from perfkit.system.software import distribution

FRAMEWORK = Framework(
    name="JAX",
    module="jax",
    extra="jax",
    supports={
        "precision": ("fp32", "bf16"),
        "execution": ("static",),
        "optimizer": ("momentum", "adamw"),
        "input": ("dali", "synthetic"),
        "strategy": ("none",),
        "device": ("cpu",),
    },
    cpu_precisions=("fp32", "bf16"),
    layout="NHWC",
    execution="static",
    # One process, which needs no launcher.
    launch_command=lambda _config, _node, _log_folder, _job, worker: worker,
    rank_variable="",
    log_pattern="",
    cpu_settings=lambda _vendor, _threads: {},
    versions={name: partial(distribution, name) for name in ("jax", "jaxlib")},
    several_processes=False,
)
