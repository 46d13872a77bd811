"""Environment variables and other settings with which ranks are started."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import perfkit
from perfkit.measuring.system.devices import visible_devices, visible_variable
from perfkit.training.frameworks import FRAMEWORKS, NodeRank

if TYPE_CHECKING:
    from perfkit.measuring.config import Config

LINKS = "python"
"""Folder in the scratch folder in which the ranks' interpreter finds perfkit."""
MOST_DALI_THREADS = 10
GLOO_INTERFACE = "GLOO_SOCKET_IFNAME"
DEVICE_ORDER = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
"""Labels are in NVML's order; CUDA's default order has the fastest GPU first."""


def rank_environment(config: "Config", place: NodeRank, scratch: Path) -> dict[str, str]:
    """Return this process's environment with the variables of the ranks at `place`: their
    devices, their network, and what the work adds. perfkit comes last in PYTHONPATH, alone, so
    that another interpreter finds no other package of the driver's."""
    settings = config.work.environment(config) | _network_settings(place)
    if config.accelerated:
        # A script may use every device that it sees. Launchers match labels against this list
        # without stripping blanks.
        labels = visible_devices(config.framework, config.device, config.interpreter)
        settings[visible_variable(config.device)] = ",".join(labels[: config.gpus])
    if config.device == "gpu":
        settings |= DEVICE_ORDER
    links = scratch / LINKS
    links.mkdir()
    package = Path(perfkit.__file__).parent
    (links / package.name).symlink_to(package, target_is_directory=True)
    folders = filter(None, [os.environ.get("PYTHONPATH"), str(links)])
    settings["PYTHONPATH"] = os.pathsep.join(folders)
    return os.environ | settings | {"PYTHONUNBUFFERED": "1"}


def cpu_settings(config: "Config", vendor: str, cores: int) -> dict[str, str]:
    """Return the environment variables that tune the framework for a CPU."""
    if config.device != "cpu" or not config.cpu_tuning:
        return {}
    threads = max(1, cores // config.devices)
    return FRAMEWORKS[config.framework].cpu_settings(vendor, threads)


def gpu_settings(framework: str, *, tf32: bool) -> dict[str, str]:
    """Return the environment variables that tune a framework for a GPU."""
    settings = {}
    for name, value in FRAMEWORKS[framework].gpu_settings.items():
        settings[name] = os.environ.get(name, value)
    if not tf32:
        # Paddle and the libraries below each framework use TF32 by default.
        settings["NVIDIA_TF32_OVERRIDE"] = "0"
    return settings


def dali_settings(threads: int, prefetch: int, cores: int) -> dict[str, int]:
    """Return DALI's threads and prefetch; for 0 on a DGX A100 as in NVIDIA's
    DeepLearningExamples; with fewer `cores` per GPU, all but one for the training."""
    usual = max(2, min(MOST_DALI_THREADS, cores - 1))
    usual_prefetch = 4 if usual == MOST_DALI_THREADS else 2
    return {"dali_threads": threads or usual, "dali_prefetch": prefetch or usual_prefetch}


def _network_settings(place: NodeRank) -> dict[str, str]:
    if not place.interface:
        return {}
    # By default, gloo uses the address of the host's name, often the loopback. NCCL chooses
    # well by itself, and would use one interface instead of all that it finds.
    return {GLOO_INTERFACE: os.environ.get(GLOO_INTERFACE, place.interface)}
