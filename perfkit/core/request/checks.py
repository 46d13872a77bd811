"""Checks of a configuration: contradictions, unsupported features, unmet requirements."""

import sys
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Literal

from perfkit.core.config import ABOUT, ALL, Config
from perfkit.core.frameworks import FRAMEWORKS
from perfkit.core.frameworks.base import AFFINITY
from perfkit.core.inputs.data_set import data_set_class
from perfkit.core.models import model_of
from perfkit.core.paths import portable, resolved_path
from perfkit.core.request import hosts, not_available
from perfkit.core.request.resolve import resolve
from perfkit.core.results.identity import Reading
from perfkit.core.system.environment import read_facts, usable_cores
from perfkit.core.system.software import PACKAGES, InterpreterError, Software, read_software

WORKER = ("numpy", "pydantic", "threadpoolctl")
"""Modules that every worker imports, besides those of the framework and the input."""
OF_INPUT = {"dali": ("nvidia.dali", "PIL"), "dataloader": ("PIL", "h5py"), "synthetic": ()}


def read_environment(
    framework: str, data_dir: Path, interpreter: str = sys.executable
) -> dict[str, Reading]:
    """Return by name the facts of this machine and of the framework, for the folder of the data
    set and the workers' interpreter. Raises InterpreterError."""
    facts = FRAMEWORKS[framework]
    software = read_software(interpreter, {**PACKAGES, **facts.versions})
    environment = read_facts(data_dir, software)
    absent = Reading(value=None, missing=f"this {facts.display_name} is a CPU build")
    if software.versions[facts.facts[0]]:
        found = software.versions
        environment |= {fact: absent for fact in facts.facts if not found[fact]}
    return environment


def software_for(config: Config) -> Software:
    """The configuration's packages in the workers' interpreter. Raises InterpreterError."""
    framework = FRAMEWORKS[config.framework]
    modules = [*WORKER, framework.module, *OF_INPUT[config.input]]
    modules += ["pynvml"] if config.device == "gpu" else []
    return read_software(config.interpreter, framework.versions, modules)


Check = Literal["machine", "requirements", "data"]
PIP_NAMES = {
    "nvidia.dali": "nvidia-dali-cuda120",
    "PIL": "pillow",
    "pynvml": "nvidia-ml-py",
}
"""Module -> its package, if the names differ."""


def problems(config: Config, gpus: int, skip_checks: Collection[Check] = ()) -> list[str]:
    """Return all reasons why this machine, with `gpus` visible devices of the training type,
    can't measure this configuration. `skip_checks`: `machine` if another machine measures, and
    this one must not be accessed; `requirements` if this machine need not meet them; `data` if
    the data does not exist yet."""
    found = [*_contradictions(config)]
    if not {"machine", "requirements"} & {*skip_checks}:
        found += [*_lacking(config, gpus), *hosts.problems(config), *_unwritable(config)]
    if "data" not in skip_checks:
        found += _without_data(config)
    return found


def _contradictions(config: Config) -> Iterator[str]:
    model, framework = model_of(config), FRAMEWORKS[config.framework]
    launchers = ("local",) if config.nodes == 1 else ("srun", "ssh")
    limits: list[tuple[str, tuple[Any, ...], str]] = [
        ("input", model.inputs, config.model),
        ("optimizer", model.optimizers, config.model),
        ("launcher", launchers, f"nodes={config.nodes}"),
    ]
    by = f"framework={config.framework}"
    limits += [(name, values, by) for name, values in framework.supports.items()]
    for name, allowed, of in limits:
        if getattr(config, name) not in (None, *allowed):
            words = ", ".join(allowed)
            yield f"{name}: {getattr(config, name)!r} is not for {of}; allowed: {words}"
    settings = (*framework.tuning, AFFINITY, ALL)
    for name in sorted(config.disabled_tuning - {*settings}):
        yield not_available("disable_tuning", name, settings)
    yield from _without_effect(config)
    longest = model.longest_sequence
    if longest and config.sample_size > longest:
        yield f"sequence_length: {config.model} has {longest} positions; at most {longest}"
    if config.ranks > 1 and not framework.several_processes:
        yield f"processes: {by} trains in one process; leave out nodes and processes"
    preset = framework.preset_precision(config.strategy)
    if config.precision == "auto" and preset != "auto":
        yield "precision: 'auto' needs strategy=fleetx-auto"
    elif preset not in (None, config.precision):
        yield (
            f"strategy: {config.strategy} is a preset of precision={preset}, "
            f"but precision={config.precision} was requested"
        )
    # For other devices, the worker checks the effective precision.
    if config.device == "cpu" and config.precision not in (*framework.cpu_precisions, "auto"):
        yield (
            f"precision: {config.precision!r} is not for {framework.display_name} on a CPU; "
            f"allowed: {', '.join(framework.cpu_precisions)}; bf16 on a CPU: "
            "-p framework torch -p precision bf16"
        )


def _without_effect(config: Config) -> Iterator[str]:
    """Parameters that are set but have no effect in this configuration. Parameters of other
    inputs are accepted, since a sweep may set them for several inputs."""
    deciding = {"model", "framework", "device", "nodes", "launcher"}
    usual = resolve(config.model_dump(include=deciding))
    facts = config.model_dump() | {"sample": model_of(config).sample}
    facts |= {"accelerated": config.accelerated}
    instead = {
        "gpus": "for several processes on the CPU set processes",
        "processes": "set gpus",
    }
    for name, about in ABOUT.items():
        for key, values in about.only.items():
            unused = facts[key] not in values and key != "input"
            if unused and getattr(config, name) != getattr(usual, name):
                decider = "device" if key == "accelerated" else key
                cause = config.model if key == "sample" else f"{decider}={facts[decider]}"
                yield f"{name}: no effect with {cause}; {instead.get(name, 'leave it out')}"


def _lacking(config: Config, gpus: int) -> Iterator[str]:
    """Requirements that this machine does not meet."""
    framework, by_gpu = FRAMEWORKS[config.framework], config.device == "gpu"
    if config.accelerated and not 0 < config.gpus <= gpus:
        needed = f"device={config.device} needs at least 1"
        requested = f"{config.gpus} requested" if config.gpus else needed
        shown = f"{gpus} {config.device.upper()}{'s' * (gpus != 1)}"
        if not gpus and not by_gpu:
            types = ", ".join(["cpu", "gpu", *framework.other_devices(config.interpreter)])
            shown += f"; device types of {framework.display_name} here: {types}"
        yield (
            f"gpus: {requested}; visible on this machine: {shown}. "
            "To run on the CPU: -p device cpu, without gpus"
        )
    cores = usable_cores()
    if config.processes > cores:
        yield f"processes: {config.processes} requested, but there are only {cores} cores"
    try:
        software = software_for(config)
    except InterpreterError as error:
        yield f"python: {portable(str(error))}"
        return
    if config.python and software.lacking:
        names = ", ".join(software.lacking)
        packages = PIP_NAMES | {framework.module: framework.package}
        how = " ".join(packages.get(module, module) for module in software.lacking)
        yield (
            f"python: {config.python} has no {names}; to install: "
            f"{config.python} -m pip install {how}"
        )
        return
    how = framework.install
    if by_gpu and framework.gpu_install:
        how = framework.gpu_install
    if framework.module in software.lacking:
        yield f"framework: {framework.display_name} is not installed; to install it: {how}"
    elif by_gpu and gpus and not software.versions.get("cuda", "none"):
        yield (
            f"framework: this {framework.display_name} is a CPU build without GPU support. For "
            f"a GPU build, in an environment of its own: {how}; to run on the CPU: "
            "-p device cpu"
        )
    if "nvidia.dali" in software.lacking:
        yield (
            f"input: DALI is not installed; to install it: {how}; "
            "to run without it: -p input dataloader"
        )


def _without_data(config: Config) -> Iterator[str]:
    model = model_of(config)
    if config.input == "synthetic" or config.input not in model.inputs:
        return
    data_set = data_set_class(config)
    try:
        data_set.find(config.data_folder)
    except OSError:
        option = "" if model.sample == "image" else f" --for {config.model}"
        yield (
            f"data_dir: expected {data_set.expected} in {config.data_dir}; "
            f"to create sample data: perfkit samples{option}"
        )


def _unwritable(config: Config) -> Iterator[str]:
    folder = resolved_path(config.outputs_dir)
    try:
        # A missing folder is created by its writer, not by this check.
        while not folder.exists():
            folder = folder.parent
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        yield (
            f"outputs_dir: can't write to {config.outputs_dir} ({error.strerror}); "
            "choose a writable folder: -p outputs_dir FOLDER"
        )
