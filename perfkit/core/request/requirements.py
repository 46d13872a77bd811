"""What a configuration requires of this machine: devices, cores, packages."""

import os
import shlex
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from perfkit.core import refusals
from perfkit.core.config import Config, RunConfig
from perfkit.core.paths import constraints_path, extra_path, in_checkout
from perfkit.core.refusals import Refusal
from perfkit.core.results.identity import Reading
from perfkit.core.script_config import AnyConfig
from perfkit.core.system import devices, gpus
from perfkit.core.system.environment import UNAVAILABLE, read_facts, usable_cores
from perfkit.core.system.software import PACKAGES, InterpreterError, Software, read_software
from perfkit.training.frameworks import FRAMEWORKS, Framework, GpuBuild

OF_INPUT = {"dali": ("nvidia.dali", "PIL"), "dataloader": ("PIL", "h5py"), "synthetic": ()}
PIP_NAMES = {
    "nvidia.dali": "nvidia-dali-cuda120",
    "PIL": "pillow",
    "pynvml": "nvidia-ml-py",
}
"""Module -> its package, if the names differ."""


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


def software_for(config: AnyConfig) -> Software:
    """Return the configuration's packages in the workers' interpreter. Raises
    InterpreterError."""
    framework = FRAMEWORKS[config.framework]
    if not isinstance(config, Config):
        # perfkit's timer needs the standard library alone.
        return read_software(config.interpreter, framework.versions, [framework.name])
    modules = ["numpy", framework.name, *OF_INPUT[config.input]]
    if config.device == "gpu":
        modules.append("pynvml")
    return read_software(config.interpreter, framework.versions, modules)


def lacking(config: AnyConfig, visible: int) -> Iterator[Refusal]:
    """Yield the requirements that this machine does not meet. `visible`: its number of devices
    that may train."""
    is_known = FRAMEWORKS[config.framework].takes(device=config.device)
    if config.accelerated and is_known and not 0 < config.gpus <= visible:
        yield _too_few_devices(config, visible)
        if config.device == "gpu" and max(config.gpus, 1) > visible:
            yield from _unseen_gpus(visible)
    cores = usable_cores()
    if config.processes > cores:
        yield refusals.TooFewCores(requested=config.processes, cores=cores)
    try:
        software = software_for(config)
    except InterpreterError as error:
        yield refusals.BadInterpreter(python=error.interpreter, reason=error.reason)
        return
    if config.python and software.lacking:
        yield refusals.PackagesMissing(
            python=config.interpreter,
            modules=software.lacking,
            packages=shlex.join(_words_for_pip(config, software.lacking)),
        )
    else:
        yield from _lacking_packages(config, software)


def _words_for_pip(config: AnyConfig, lacking: list[str]) -> list[str]:
    """Return the words with which pip installs these modules for the workers."""
    framework = FRAMEWORKS[config.framework]
    build = _gpu_build(config)
    lacks_framework = framework.name in lacking
    index = []
    if lacks_framework and build and build.package_index:
        index = ["--extra-index-url", build.package_index]
    if lacks_framework and build and isinstance(config, Config):
        return [*index, "-e", extra_path(build.extra)]
    names = PIP_NAMES | {framework.name: framework.package}
    if build:
        names |= {framework.name: build.package, "nvidia.dali": _dali_of(build)}
    packages = [names.get(module, module) for module in lacking]
    if lacks_framework:
        # Tested versions would replace those that another version of the framework needs.
        tested = ["-c", str(constraints_path(framework.constraints))]
        return [*index, *tested, *packages]
    return packages


def _gpu_build(config: RunConfig) -> GpuBuild | None:
    """Return the build of the framework for the configuration's GPUs, as far as NVML tells
    them; None if it uses none, or if perfkit has no extra with a build for GPUs."""
    if config.device != "gpu":
        return None
    try:
        capabilities = gpus.compute_capabilities()[: config.gpus]
    except UNAVAILABLE:
        capabilities = []
    return FRAMEWORKS[config.framework].build_for(capabilities)


def _dali_of(build: GpuBuild) -> str:
    """Return DALI as perfkit's extra with a build for GPUs requires it, in pip's words."""
    try:
        requirements = metadata.requires("perfkit") or []
    except metadata.PackageNotFoundError:
        # perfkit is on Python's path, but not installed.
        requirements = []
    for requirement in requirements:
        package, _semicolon, condition = requirement.partition(";")
        if package.startswith("nvidia-dali") and f'"{build.extra}"' in condition:
            return package.strip()
    return PIP_NAMES["nvidia.dali"]


def _too_few_devices(config: RunConfig, visible: int) -> Refusal:
    framework = FRAMEWORKS[config.framework]
    if not visible and config.device != "gpu":
        types = ["cpu", "gpu", *devices.other_devices(config.framework, config.interpreter)]
        return refusals.NoDeviceOfType(
            device=config.device, framework=framework.display_name, types=types
        )
    return refusals.TooFewDevices(
        device=config.device, requested=config.gpus, visible=(visible, config.device)
    )


def _unseen_gpus(visible: int) -> Iterator[Refusal]:
    """Yield why no more GPUs are visible, as far as NVML can tell."""
    reason = gpus.no_driver()
    if reason:
        yield refusals.NoDriver(reason=reason)
        return
    forbidden, hidden = gpus.forbidden_count(), gpus.hidden_count()
    if forbidden:
        yield refusals.GpusForbidden(forbidden=(forbidden, "gpu"))
    if hidden:
        variable = shlex.quote(os.environ["CUDA_VISIBLE_DEVICES"])
        yield refusals.GpusHidden(variable=variable, hidden=(hidden, "gpu"))
    if not (visible or forbidden or hidden):
        yield refusals.DriverWithoutGpus()


def _lacking_packages(config: RunConfig, software: Software) -> Iterator[Refusal]:
    framework = FRAMEWORKS[config.framework]
    command = framework.install
    download = framework.download or None
    build = _gpu_build(config)
    if build:
        command, download = build.install, None
    command = in_checkout(command)
    is_cpu_build = not software.versions.get(framework.gpu_fact, "none")
    if framework.name in software.lacking:
        yield refusals.FrameworkMissing(
            framework=framework.display_name, command=command, download=download
        )
    elif config.device == "gpu" and is_cpu_build:
        yield refusals.CpuBuild(framework=framework.display_name, command=command)
    elif config.device == "gpu":
        yield from _lacking_architecture(config)
    if "nvidia.dali" in software.lacking:
        yield refusals.DaliMissing(command=command)


def _lacking_architecture(config: RunConfig) -> Iterator[Refusal]:
    """Yield the first GPU for which the framework's build has no code. Without this check, the
    first kernel ends the worker, in Paddle by an abort in C++ (Paddle #70902)."""
    framework = FRAMEWORKS[config.framework]
    try:
        names = gpus.visible_names()[: config.gpus]
        capabilities = gpus.compute_capabilities()
        architectures = devices.architectures(config.framework, config.interpreter)
    except (*UNAVAILABLE, InterpreterError):
        return
    for name, capability in zip(names, capabilities, strict=False):
        if architectures and not any(gpus.runs_on(each, capability) for each in architectures):
            yield _missing_architecture(framework, name, capability, architectures)
            return


def _missing_architecture(
    framework: Framework, gpu: str, capability: str, architectures: list[str]
) -> Refusal:
    """Return the refusal of a GPU for which the framework's build has no code. For a GPU older
    than all that the build has code for, perfkit's own install command may give this build
    again."""
    if gpus.precedes_all(capability, architectures):
        return refusals.ArchitectureDropped(
            framework=framework.display_name,
            gpu=gpu,
            capability=capability,
            architectures=architectures,
        )
    build = framework.build_for([capability])
    return refusals.ArchitectureMissing(
        framework=framework.display_name,
        gpu=gpu,
        capability=capability,
        architectures=architectures,
        command=in_checkout(build.install if build else framework.install),
    )
