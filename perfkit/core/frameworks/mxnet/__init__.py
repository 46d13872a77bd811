"""MXNet; trains the networks of perfkit.core.frameworks.functional. Its last wheel requires
NumPy < 1.24 and therefore a separate environment (docs/backends.md)."""

from perfkit.core.frameworks.base import Framework

FRAMEWORK = Framework(
    display_name="MXNet",
    colour="#7a5cc0",
    marker="v",
    module="mxnet",
    package="mxnet",
    install="make peers; to use it: -p python .venv-mxnet/bin/python",
    supports={
        "model": ("resnet50", "vgg16"),
        "precision": ("fp32",),
        # A hybridized block: a compiled graph with static memory.
        "execution": ("static",),
        "optimizer": ("momentum",),
        "input": ("dataloader", "synthetic"),
        # Its CPU operators support no other layout.
        "layout": ("NCHW",),
        "strategy": ("none",),
        "device": ("cpu",),
    },
    cpu_precisions=("fp32",),
    layout="NCHW",
    execution="static",
    versions={"mxnet": ("mxnet",)},
    cpu_settings=lambda _vendor, threads: {"OMP_NUM_THREADS": str(threads)},
)
