"""JAX; trains the networks of perfkit.core.frameworks.functional. `parallel.py`
trains with several processes, `sharding.py` divides the parameters among them."""

import sys
from pathlib import Path
from typing import ClassVar

from perfkit.core.config import RunConfig
from perfkit.core.frameworks.facts import RANK_VARIABLE, Framework, GpuBuild, NodeRank
from perfkit.core.system.software import CUDA_VERSIONS

LAUNCHER = "perfkit.core.frameworks.ranks"


class Jax(Framework):
    display_name = "JAX"
    colour = "#2a9d6f"
    marker = "^"
    module = "jax"
    package = "jax"
    install = "pip install -c constraints.txt -e '.[jax]'"
    gpu_build = GpuBuild("jax-cu12", "jax[cuda12]")
    supports: ClassVar = {
        "model": ("resnet50", "bert", "gpt", "llama"),
        "precision": ("fp32", "bf16"),
        "execution": ("static",),
        "optimizer": ("momentum", "adamw"),
        "input": ("dali", "synthetic"),
        "strategy": ("none",),
        "device": ("cpu", "gpu"),
    }
    cpu_precisions = ("fp32", "bf16")
    layout = "NHWC"
    execution = "static"
    runs_ahead = True
    rank_variable = RANK_VARIABLE
    # gloo takes the address of the machine's own name, often the loopback, and JAX has no
    # setting for it.
    one_node_on_cpu = True
    log_pattern = "rank{index}.log"
    dali_plugin = "nvidia.dali.plugin.jax"
    # Otherwise JAX takes 75 % of a GPU's memory at once, and NVML's reading says nothing.
    gpu_settings: ClassVar = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    gpu_fact = "jax_cuda_plugin"
    tuning = ("fused_attention",)
    versions: ClassVar = {
        "jax": ("jax",),
        "jaxlib": ("jaxlib",),
        "jax_cuda_plugin": tuple(f"jax-cuda{cuda}-plugin" for cuda in CUDA_VERSIONS),
        "cudnn": tuple(f"nvidia-cudnn-cu{cuda}" for cuda in CUDA_VERSIONS),
        "nccl": tuple(f"nvidia-nccl-cu{cuda}" for cuda in CUDA_VERSIONS),
    }

    def cpu_settings(self, _vendor: str, threads: int) -> dict[str, str]:
        # By default, each process has a thread for every core.
        return {"NPROC": str(threads)}

    def launch_command(
        self, config: RunConfig, node: NodeRank, log_folder: Path, _job: str, worker: list[str]
    ) -> list[str]:
        """Return the command that starts the ranks as plain processes, which meet at rank 0; a
        single rank needs none. See Framework."""
        if config.ranks == 1:
            return worker
        ranks = node.ranks(config.devices)
        # The ranks' interpreter may lack perfkit's packages, if they run a script.
        launch = [sys.executable, "-P", "-m", LAUNCHER, str(log_folder)]
        return [*launch, str(ranks.start), str(len(ranks)), node.master or "-", *worker]


FRAMEWORK = Jax()
