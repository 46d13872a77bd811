"""PyTorch."""

from functools import cache
from pathlib import Path
from typing import ClassVar

from perfkit.core.config import RunConfig
from perfkit.core.frameworks.facts import Framework, GpuBuild, NodeRank
from perfkit.core.system.software import CUDA_VERSIONS, ask

LIST_ARCHITECTURES = """
import json
import torch
print(json.dumps(torch.cuda.get_arch_list()))
"""


@cache
def listed_architectures(interpreter: str) -> list[str]:
    """Return PyTorch's list of architectures, queried in a separate process; see Framework."""
    return [str(architecture) for architecture in ask(interpreter, LIST_ARCHITECTURES)]


class Torch(Framework):
    display_name = "PyTorch"
    colour = "#d1495b"
    marker = "s"
    module = "torch"
    package = "torch"
    install = "pip install -c constraints.txt -e '.[torch]'"
    # 2.13.0 for Python 3.11 on x86-64, from PyPI.
    download = "up to 2.7 GB, since PyPI's build for Linux has CUDA's libraries"
    supports: ClassVar = {
        "device": ("cpu", "gpu"),
        "precision": ("fp32", "amp", "bf16"),
        "optimizer": ("momentum", "adamw"),
        "strategy": ("none",),
    }
    cpu_precisions = ("fp32", "amp", "bf16")
    layout = "NHWC"
    execution = "dynamic"
    rank_variable = "RANK"
    log_pattern = "*/attempt_0/{index}/std*.log"
    dali_plugin = "nvidia.dali.plugin.pytorch"
    gpu_build = GpuBuild("torch-cu12", "torch")
    blackwell_build = GpuBuild("torch-cu13", "torch")
    tuning = ("cudnn_search", "fused_attention", "fused_optimizer")
    versions: ClassVar = {
        "torch": ("torch/version.py:__version__",),
        "torch_commit": ("torch/version.py:git_version",),
        "cuda": ("torch/version.py:cuda",),
        "cudnn": tuple(f"nvidia-cudnn-cu{cuda}" for cuda in CUDA_VERSIONS),
        "nccl": tuple(f"nvidia-nccl-cu{cuda}" for cuda in CUDA_VERSIONS),
    }

    def launch_command(
        self, config: RunConfig, node: NodeRank, log_folder: Path, job: str, worker: list[str]
    ) -> list[str]:
        """Return the torchrun command; see Framework."""
        launch = [config.interpreter, "-m", "torch.distributed.run", "--no-python"]
        launch += ["--log-dir", str(log_folder), "--redirects", "3", "--max-restarts", "0"]
        launch += ["--nproc-per-node", str(config.devices)]
        if node.nodes == 1:
            return [*launch, "--standalone", *worker]
        address, port = node.master.rsplit(":", 1)
        launch += ["--nnodes", str(node.nodes), "--node-rank", str(node.node)]
        launch += ["--master-addr", address, "--master-port", port, "--rdzv-id", job]
        return [*launch, "--local-addr", node.address, *worker]

    def cpu_settings(self, _vendor: str, threads: int) -> dict[str, str]:
        # By default, torchrun limits each of several processes to one thread.
        return {"OMP_NUM_THREADS": str(threads)}

    def architectures(self, interpreter: str) -> list[str]:
        return listed_architectures(interpreter)


FRAMEWORK = Torch()
