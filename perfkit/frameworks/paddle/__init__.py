"""Paddle.

backend.py   device, training step, precision and profile
strategy.py  what becomes of each option of a distributed strategy
presets.py   distributed strategies of published suites
resnet50.py  ResNet-50
vgg16.py     VGG-16
bert.py      BERT
"""

import sys
from collections.abc import Callable
from pathlib import Path

from perfkit.config import Config
from perfkit.frameworks.base import Framework, NodeRank
from perfkit.system.gpus import visible_gpus
from perfkit.system.software import constants


def launch_command(
    config: Config, node: NodeRank, log_folder: Path, job: str, worker: list[str]
) -> list[str]:
    """The command of paddle.distributed.launch."""
    launch = [sys.executable, "-m", "paddle.distributed.launch"]
    # Without the last, it asks nvidia-smi every few seconds, also inside the window.
    launch += ["--log_dir", str(log_folder), "--job_id", job, "--enable_gpu_log", "False"]
    if node.nodes > 1:
        launch += ["--nnodes", str(node.nodes), "--rank", str(node.node)]
        launch += ["--master", node.master, "--host", node.address]
    if config.device == "gpu":
        launch += ["--devices", ",".join(visible_gpus()[: config.devices])]
    else:
        # --devices would fail on a CPU ("substring not found").
        launch += ["--nproc_per_node", str(config.devices)]
    return launch + worker


def cpu_settings(vendor: str, threads: int) -> dict[str, str]:
    """Without OMP_NUM_THREADS the CPU wheel runs on one thread; without MKL_DEBUG_CPU_TYPE its
    bundled MKL takes a slow path on AMD processors."""
    settings = {"OMP_NUM_THREADS": str(threads)}
    if vendor == "AuthenticAMD":
        settings["MKL_DEBUG_CPU_TYPE"] = "5"
    return settings


def _constant(name: str) -> Callable[[], str | None]:
    return lambda: constants("paddle", "version/__init__.py").get(name)


FRAMEWORK = Framework(
    name="Paddle",
    module="paddle",
    extra="cpu",
    supports={},
    cpu_precisions=("fp32",),
    layout="NCHW",
    execution="dynamic",
    launch_command=launch_command,
    rank_variable="PADDLE_TRAINER_ID",
    log_pattern="workerlog.{index}",
    cpu_settings=cpu_settings,
    versions={
        "paddle": _constant("full_version"),
        "paddle_commit": _constant("commit"),
        "cuda": _constant("cuda_version"),
        "cudnn": _constant("cudnn_version"),
        "nccl": _constant("nccl_version"),
    },
)
