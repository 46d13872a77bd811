"""Settings with which workers are started: threads, DALI, environment variables."""

import os

from perfkit.core.config import Config, RunConfig
from perfkit.core.script_config import ScriptConfig
from perfkit.core.system.devices import visible_devices, visible_variable
from perfkit.core.system.environment import cpu_vendor, usable_cores
from perfkit.core.system.software import search_path
from perfkit.training.frameworks import FRAMEWORKS, NodeRank

MOST_DALI_THREADS = 10
GLOO_INTERFACE = "GLOO_SOCKET_IFNAME"
DEVICE_ORDER = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
"""Labels are in NVML's order; CUDA's default order has the fastest GPU first."""


def cpu_settings(config: RunConfig, vendor: str, cores: int) -> dict[str, str]:
    """Return the environment variables that tune the framework for a CPU."""
    if config.device != "cpu" or not config.cpu_tuning:
        return {}
    threads = max(1, cores // config.devices)
    return FRAMEWORKS[config.framework].cpu_settings(vendor, threads)


def with_dali_settings(config: Config, cores: int) -> Config:
    """Replace 0 in DALI's threads and prefetch: on a DGX A100 as in NVIDIA's
    DeepLearningExamples; with fewer cores per GPU, all cores but one for the training."""
    cores_per_device = cores // config.devices
    threads = max(2, min(MOST_DALI_THREADS, cores_per_device - 1))
    prefetch = 4 if threads == MOST_DALI_THREADS else 2
    chosen = {
        "dali_threads": config.dali_threads or threads,
        "dali_prefetch": config.dali_prefetch or prefetch,
    }
    return config.model_copy(update=chosen)


def worker_environment(config: Config, place: NodeRank) -> dict[str, str]:
    """Return this process's environment with the variables of a model's workers."""
    settings = cpu_settings(config, cpu_vendor(), usable_cores())
    settings |= _accelerator_settings(config)
    settings |= _network_settings(place)
    settings |= search_path(config.interpreter)
    return os.environ | settings | {"PYTHONUNBUFFERED": "1"}


def script_environment(config: ScriptConfig, place: NodeRank) -> dict[str, str]:
    """Return this process's environment with the variables of a script's ranks, which give them
    devices, threads and a network. None changes what the script computes."""
    # Some vendors' settings choose other kernels.
    settings = cpu_settings(config, vendor="", cores=usable_cores())
    if config.accelerated:
        # A script may use every device that it sees.
        settings[visible_variable(config.device)] = ",".join(_labels(config)[: config.gpus])
    if config.device == "gpu":
        settings |= DEVICE_ORDER
    settings |= _network_settings(place)
    return os.environ | settings


def _network_settings(place: NodeRank) -> dict[str, str]:
    if not place.interface:
        return {}
    # By default, gloo uses the address of the host's name, often the loopback. NCCL chooses
    # well by itself, and would use one interface instead of all that it finds.
    return {GLOO_INTERFACE: os.environ.get(GLOO_INTERFACE, place.interface)}


def _labels(config: RunConfig) -> list[str]:
    """Return the labels of the visible devices of the type that trains."""
    return visible_devices(config.framework, config.device, config.interpreter)


def _accelerator_settings(config: Config) -> dict[str, str]:
    settings = {}
    if config.accelerated:
        # The launcher matches labels against this list without stripping blanks.
        settings[visible_variable(config.device)] = ",".join(_labels(config))
    if config.device == "gpu":
        for name, value in FRAMEWORKS[config.framework].gpu_settings.items():
            settings[name] = os.environ.get(name, value)
        settings |= DEVICE_ORDER
        if not config.tf32:
            # Paddle and the libraries below each framework use TF32 by default.
            settings["NVIDIA_TF32_OVERRIDE"] = "0"
    return settings
