"""Command lines that start the workers of one node, as each framework has it."""

import sys
from pathlib import Path

from perfkit.config import Config
from perfkit.frameworks.base import NodeRank
from perfkit.system.gpus import visible_gpus


def paddle_launch(
    config: Config, place: NodeRank, log_dir: Path, job: str, worker: list[str]
) -> list[str]:
    """paddle.distributed.launch on one node; `worker` is the command of every rank."""
    launch = [sys.executable, "-m", "paddle.distributed.launch"]
    # Without the last, it asks nvidia-smi every few seconds, also inside the window.
    launch += ["--log_dir", str(log_dir), "--job_id", job, "--enable_gpu_log", "False"]
    if place.nodes > 1:
        launch += ["--nnodes", str(place.nodes), "--rank", str(place.node)]
        launch += ["--master", place.master, "--host", place.address]
    if config.device == "gpu":
        launch += ["--devices", ",".join(visible_gpus()[: config.devices])]
    else:
        # --devices would fail on a CPU ("substring not found").
        launch += ["--nproc_per_node", str(config.devices)]
    return launch + worker


def torchrun(
    config: Config, place: NodeRank, log_dir: Path, job: str, worker: list[str]
) -> list[str]:
    """torchrun on one node; `worker` is the command of every rank."""
    launch = [sys.executable, "-m", "torch.distributed.run", "--no-python"]
    launch += ["--log-dir", str(log_dir), "--redirects", "3", "--max-restarts", "0"]
    launch += ["--nproc-per-node", str(config.devices)]
    if place.nodes == 1:
        return [*launch, "--standalone", *worker]
    address, port = place.master.rsplit(":", 1)
    launch += ["--nnodes", str(place.nodes), "--node-rank", str(place.node)]
    launch += ["--master-addr", address, "--master-port", port, "--rdzv-id", job]
    return [*launch, "--local-addr", place.address, *worker]


def alone(
    _config: Config, _place: NodeRank, _log_dir: Path, _job: str, worker: list[str]
) -> list[str]:
    """One process, which needs no launcher."""
    return worker
