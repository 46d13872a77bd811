"""MXNet; its networks are those of perfkit.frameworks.functional. Its last wheel needs NumPy
before 1.24, and so an environment of its own (docs/backends.md)."""

from perfkit.frameworks.base import Framework

FRAMEWORK = Framework(
    name="MXNet",
    module="mxnet",
    extra="",
    supports={
        "model": ("resnet50", "vgg16"),
        "precision": ("fp32",),
        # A hybridized block, which is a compiled graph with static memory.
        "execution": ("static",),
        "optimizer": ("momentum",),
        "input": ("dataloader", "synthetic"),
        # Its operators on a CPU know no other.
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
