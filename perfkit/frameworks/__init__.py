"""What is true of each framework, known without importing it: what it takes, how its workers
are started, what of it is installed. `<name>/backend.py` trains with it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfkit.config import Config
from perfkit.frameworks.base import NodeRank
from perfkit.frameworks.launchers import alone, paddle_launch, torchrun
from perfkit.system.software import CUDA_VERSIONS, constants, distribution

Command = Callable[[Config, NodeRank, Path, str, list[str]], list[str]]
"""Configuration, place, folder for logs, name of the job, and the command of every rank."""


@dataclass(frozen=True)
class Framework:
    """Facts, limits and defaults. What it takes is a parameter's name -> the values; a
    parameter that is not there may have any. `extra` of pyproject.toml installs `module`.

    `cpu_settings`: maker of the CPU, threads of a process -> variables that make it fast, which
    act only before it is imported. `logs`: where the launcher puts a process' output, by its
    `index` on the node. `build`: a fact of the environment -> its value, None where there is
    none.
    """

    name: str
    module: str
    extra: str
    takes: dict[str, tuple[Any, ...]]
    cpu_precisions: tuple[str, ...]
    layout: str
    execution: str
    command: Command
    rank_variable: str
    logs: str
    cpu_settings: Callable[[str, int], dict[str, str]]
    facts: tuple[str, ...]
    build: Callable[[], dict[str, str | None]]
    several_processes: bool = True

    @property
    def version(self) -> str | None:
        """None where it is not installed."""
        return self.build()[self.facts[0]]


def _paddle_cpu(vendor: str, threads: int) -> dict[str, str]:
    """Without OMP_NUM_THREADS the CPU wheel runs on one thread; without MKL_DEBUG_CPU_TYPE its
    bundled MKL takes a slow path on AMD processors."""
    settings = {"OMP_NUM_THREADS": str(threads)}
    if vendor == "AuthenticAMD":
        settings["MKL_DEBUG_CPU_TYPE"] = "5"
    return settings


def _paddle_build() -> dict[str, str | None]:
    told = constants("paddle", "version/__init__.py")
    names = {"paddle": "full_version", "paddle_commit": "commit"}
    names |= {name: f"{name}_version" for name in ("cuda", "cudnn", "nccl")}
    return {fact: told.get(name) for fact, name in names.items()}


def _torch_build() -> dict[str, str | None]:
    told = constants("torch", "version.py")
    return {
        "torch": told.get("__version__"),
        "torch_commit": told.get("git_version"),
        "cuda": told.get("cuda"),
        "cudnn": distribution(*(f"nvidia-cudnn-cu{cuda}" for cuda in CUDA_VERSIONS)),
        "nccl": distribution(*(f"nvidia-nccl-cu{cuda}" for cuda in CUDA_VERSIONS)),
    }


def _jax_build() -> dict[str, str | None]:
    return {name: distribution(name) for name in ("jax", "jaxlib")}


FRAMEWORKS = {
    "paddle": Framework(
        name="Paddle",
        module="paddle",
        extra="cpu",
        takes={},
        cpu_precisions=("fp32",),
        layout="NCHW",
        execution="dynamic",
        command=paddle_launch,
        rank_variable="PADDLE_TRAINER_ID",
        logs="workerlog.{index}",
        cpu_settings=_paddle_cpu,
        facts=("paddle", "paddle_commit", "cuda", "cudnn", "nccl"),
        build=_paddle_build,
    ),
    "torch": Framework(
        name="PyTorch",
        module="torch",
        extra="torch",
        takes={
            "precision": ("fp32", "amp", "bf16"),
            "optimizer": ("momentum", "adamw"),
            "strategy": ("none",),
        },
        cpu_precisions=("fp32", "amp", "bf16"),
        layout="NHWC",
        execution="dynamic",
        command=torchrun,
        rank_variable="RANK",
        logs="*/attempt_0/{index}/std*.log",
        # torchrun gives each of several processes one thread.
        cpu_settings=lambda _vendor, threads: {"OMP_NUM_THREADS": str(threads)},
        facts=("torch", "torch_commit", "cuda", "cudnn", "nccl"),
        build=_torch_build,
    ),
    "jax": Framework(
        name="JAX",
        module="jax",
        extra="jax",
        takes={
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
        command=alone,
        rank_variable="",
        logs="",
        cpu_settings=lambda _vendor, _threads: {},
        facts=("jax", "jaxlib"),
        build=_jax_build,
        several_processes=False,
    ),
}
