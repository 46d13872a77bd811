"""What a configuration requires of this machine: devices, cores, packages, shared memory."""

import math
import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from perfkit.inputs.data_set import data_set_class
from perfkit.measuring.config import Config
from perfkit.measuring.format import amount
from perfkit.measuring.paths import in_checkout
from perfkit.measuring.results.base import Reading
from perfkit.measuring.system import devices, gpus
from perfkit.measuring.system.environment import UNAVAILABLE, read_facts, usable_cores
from perfkit.measuring.system.software import (
    PACKAGES,
    InterpreterError,
    Software,
    read_software,
)
from perfkit.measuring.work import ModelWork
from perfkit.training.frameworks import FRAMEWORKS, GpuBuild

SHARED_MEMORY = Path("/dev/shm")
"""A container has 64 MiB of it by default; a DataLoader's process that can't write there is
killed."""
BATCHES_PER_PROCESS = 2
"""Batches that each process of a DataLoader prepares while the first step is trained."""
MEBIBYTE, GIBIBYTE = 2**20, 2**30
ON_CPU = "to run on the CPU: -p device cpu"


def read_environment(
    framework_name: str, data_dir: Path | None, interpreter: str = sys.executable
) -> dict[str, Reading]:
    """Return by name the facts of this machine and of the framework, for the folder of the data
    set, if perfkit knows it, and the workers' interpreter. Raises InterpreterError."""
    framework = FRAMEWORKS[framework_name]
    software = read_software(interpreter, {**PACKAGES, **framework.versions})
    environment = read_facts(data_dir, software)
    own_version, *_others = framework.facts
    if software.versions[own_version]:
        absent = Reading(value=None, missing=f"this {framework.display_name} is a CPU build")
        for fact in framework.facts:
            if not software.versions[fact]:
                environment[fact] = absent
    return environment


def software_for(config: Config) -> Software:
    """Return the configuration's packages in the workers' interpreter. Raises
    InterpreterError."""
    framework = FRAMEWORKS[config.framework]
    modules = [framework.name, *config.work.modules_needed]
    return read_software(config.interpreter, framework.versions, modules)


def lacking(config: Config) -> Iterator[str]:
    """Yield the requirements that this machine does not meet."""
    if config.accelerated and FRAMEWORKS[config.framework].takes(device=config.device):
        yield from _lacking_devices(config)
    cores = usable_cores()
    if config.processes > cores:
        yield f"processes: {config.processes} requested, but there are only {cores} cores"
    if not config.work.launches_itself:
        yield from _lacking_packages(config)
    if config.work.input == "dataloader":
        yield from _lacking_shared_memory(config, config.work.built_in)


def _lacking_devices(config: Config) -> Iterator[str]:
    device = config.device
    try:
        visible = len(devices.visible_devices(config.framework, device, config.interpreter))
    except OSError as error:
        yield f"gpus: {error}; {ON_CPU}"
        return
    if 0 < config.gpus <= visible:
        return
    if not visible and device != "gpu":
        framework = FRAMEWORKS[config.framework].display_name
        others = devices.other_devices(config.framework, config.interpreter)
        types = ", ".join(["cpu", "gpu", *others])
        yield (
            f"device: this machine has no device={device}; device types of {framework} here: "
            f"{types}"
        )
    else:
        requested = f"{config.gpus} requested"
        if config.gpus == 0:
            requested = f"device={device} needs at least 1"
        yield (
            f"gpus: {requested}; visible on this machine: {amount(visible, device.upper())}. "
            "To run on the CPU: -p device cpu, without gpus"
        )
    if device == "gpu" and max(config.gpus, 1) > visible:
        yield from _unseen_gpus()


def _unseen_gpus() -> Iterator[str]:
    """Yield why no more GPUs are visible, as far as NVML can tell."""
    unseen = gpus.unseen()
    if unseen.error:
        yield (
            f"gpus: no NVIDIA driver answers (NVML: {unseen.error}); install the driver, or "
            "load its kernel module, until nvidia-smi lists the GPUs; in a container: docker "
            "run --gpus all"
        )
    if unseen.forbidden:
        yield (
            "gpus: this process has no permission to use "
            f"{amount(unseen.forbidden, 'GPU')} of this machine; to allow them in a container: "
            "docker run --gpus all"
        )
    if unseen.hidden > 0:
        variable = shlex.quote(os.environ["CUDA_VISIBLE_DEVICES"])
        yield (
            f"gpus: CUDA_VISIBLE_DEVICES={variable} hides {amount(unseen.hidden, 'GPU')} of "
            "this machine; unset it, or ask the scheduler that set it for more"
        )


def _lacking_packages(config: Config) -> Iterator[str]:
    try:
        software = software_for(config)
    except InterpreterError as error:
        yield f"python: {error}"
        return
    if config.python and software.lacking:
        modules = ", ".join(software.lacking)
        yield f"python: {config.interpreter} has no {modules}; install them there"
        return
    framework, build = FRAMEWORKS[config.framework], _gpu_build(config)
    name = framework.display_name
    command = in_checkout(build.install if build else framework.install)
    download = f" ({framework.download})" if framework.download and not build else ""
    is_cpu_build = not software.versions.get(framework.gpu_fact, "none")
    if framework.name in software.lacking:
        yield f"framework: {name} is not installed; to install it{download}: {command}"
    elif config.device == "gpu" and is_cpu_build:
        yield (
            f"framework: this {name} is a CPU build without GPU support. For a GPU build, in "
            f"an environment of its own: {command}; {ON_CPU}"
        )
    elif config.device == "gpu":
        yield from _lacking_architecture(config)
    if "nvidia.dali" in software.lacking:
        yield (
            f"input: DALI is not installed; to install it: {command}; to run without it: -p "
            "input dataloader"
        )


def _gpu_build(config: Config) -> GpuBuild | None:
    """Return the build of the framework for the configuration's GPUs, as far as NVML tells
    them; None if it uses none, or if perfkit has no extra with a build for GPUs."""
    if config.device != "gpu":
        return None
    try:
        capabilities = gpus.compute_capabilities()[: config.gpus]
    except UNAVAILABLE:
        capabilities = []
    return FRAMEWORKS[config.framework].build_for(capabilities)


def _lacking_architecture(config: Config) -> Iterator[str]:
    """Yield the first GPU for which the framework's build has no code. Without this check, the
    first kernel ends the worker, in Paddle by an abort in C++ (Paddle #70902)."""
    framework = FRAMEWORKS[config.framework]
    try:
        names = gpus.visible_names()[: config.gpus]
        capabilities = gpus.compute_capabilities()
        architectures = devices.architectures(config.framework, config.interpreter)
    except (*UNAVAILABLE, InterpreterError):
        return
    for gpu, capability in zip(names, capabilities, strict=False):
        if architectures and not any(gpus.runs_on(each, capability) for each in architectures):
            build = framework.build_for([capability])
            command = in_checkout(build.install if build else framework.install)
            yield (
                f"framework: this build of {framework.display_name} has no code for {gpu} "
                f"(compute capability {capability}), only for {', '.join(architectures)}. For "
                f"a later GPU, install a later build, in an environment of its own: {command}; "
                "for an earlier one, a build for an older CUDA or an older version may have "
                f"it; {ON_CPU}"
            )
            return


def _lacking_shared_memory(config: Config, work: ModelWork) -> Iterator[str]:
    """Yield why the processes of a DataLoader could not prepare their first batches."""
    if FRAMEWORKS[config.framework].loader_threads or not SHARED_MEMORY.is_dir():
        return
    sample_bytes = data_set_class(work).sample_bytes(work.sample_size)
    processes = work.dataloader_workers * config.devices
    needed = BATCHES_PER_PROCESS * processes * work.batch_size * sample_bytes
    free = shutil.disk_usage(SHARED_MEMORY).free
    if free < needed:
        yield (
            f"dataloader_workers: the processes of the DataLoader need "
            f"{needed / MEBIBYTE:,.0f} MiB in {SHARED_MEMORY}, for two batches each; free: "
            f"{free / MEBIBYTE:,.0f} MiB. In a container: docker run --shm-size "
            f"{math.ceil(needed / GIBIBYTE)}g; or fewer processes: -p dataloader_workers N"
        )
