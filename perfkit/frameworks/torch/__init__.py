"""PyTorch.

backend.py   device, training step, precision and profile
resnet50.py  ResNet-50
vgg16.py     VGG-16
bert.py      BERT
"""

import sys
from collections.abc import Callable
from pathlib import Path

from perfkit.config import Config
from perfkit.frameworks.base import Framework, NodeRank
from perfkit.system.software import CUDA_VERSIONS, constants, distribution


def launch_command(
    config: Config, node: NodeRank, log_folder: Path, job: str, worker: list[str]
) -> list[str]:
    """The command of torchrun."""
    launch = [sys.executable, "-m", "torch.distributed.run", "--no-python"]
    launch += ["--log-dir", str(log_folder), "--redirects", "3", "--max-restarts", "0"]
    launch += ["--nproc-per-node", str(config.devices)]
    if node.nodes == 1:
        return [*launch, "--standalone", *worker]
    address, port = node.master.rsplit(":", 1)
    launch += ["--nnodes", str(node.nodes), "--node-rank", str(node.node)]
    launch += ["--master-addr", address, "--master-port", port, "--rdzv-id", job]
    return [*launch, "--local-addr", node.address, *worker]


def cpu_settings(_vendor: str, threads: int) -> dict[str, str]:
    """torchrun gives each of several processes one thread."""
    return {"OMP_NUM_THREADS": str(threads)}


def _constant(name: str) -> Callable[[], str | None]:
    return lambda: constants("torch", "version.py").get(name)


def _nvidia(library: str) -> Callable[[], str | None]:
    return lambda: distribution(*(f"nvidia-{library}-cu{cuda}" for cuda in CUDA_VERSIONS))


FRAMEWORK = Framework(
    name="PyTorch",
    module="torch",
    extra="torch",
    supports={
        "precision": ("fp32", "amp", "bf16"),
        "optimizer": ("momentum", "adamw"),
        "strategy": ("none",),
    },
    cpu_precisions=("fp32", "amp", "bf16"),
    layout="NHWC",
    execution="dynamic",
    launch_command=launch_command,
    rank_variable="RANK",
    log_pattern="*/attempt_0/{index}/std*.log",
    cpu_settings=cpu_settings,
    versions={
        "torch": _constant("__version__"),
        "torch_commit": _constant("git_version"),
        "cuda": _constant("cuda"),
        "cudnn": _nvidia("cudnn"),
        "nccl": _nvidia("nccl"),
    },
)
