"""MXNet; trains the networks of perfkit.core.frameworks.functional. Its last wheel requires
NumPy < 1.24 and therefore a separate environment (docs/backends.md)."""

from typing import ClassVar

from perfkit.core.frameworks.facts import Framework


class MXNet(Framework):
    display_name = "MXNet"
    colour = "#7a5cc0"
    marker = "v"
    module = "mxnet"
    package = "mxnet"
    constraints = "environments/mxnet.txt"
    install = "make peers; to use it: -p python .venv-mxnet/bin/python"
    supports: ClassVar = {
        "model": ("resnet50",),
        "precision": ("fp32",),
        # A hybridized block: a compiled graph with static memory.
        "execution": ("static",),
        "optimizer": ("momentum",),
        "input": ("dataloader", "synthetic"),
        # Its CPU operators support no other layout.
        "layout": ("NCHW",),
        "strategy": ("none",),
        "device": ("cpu",),
    }
    cpu_precisions = ("fp32",)
    layout = "NCHW"
    execution = "static"
    versions: ClassVar = {"mxnet": ("mxnet",)}

    def cpu_settings(self, _vendor: str, threads: int) -> dict[str, str]:
        return {"OMP_NUM_THREADS": str(threads)}


FRAMEWORK = MXNet()
