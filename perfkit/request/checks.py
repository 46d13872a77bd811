"""What keeps a configuration from being measured: parts that contradict each other, what the
framework does not do, what this machine lacks."""

import os
import tempfile
from collections.abc import Collection, Iterator
from typing import Any, Literal

from perfkit.config import ABOUT, Config, resolved_path
from perfkit.frameworks import FRAMEWORKS
from perfkit.frameworks.paddle.presets import precision_of
from perfkit.inputs.images import LIST
from perfkit.inputs.sequences import shard_files
from perfkit.models import MODELS
from perfkit.request import hosts
from perfkit.request.errors import not_available
from perfkit.request.resolve import resolve
from perfkit.system.software import installed

Check = Literal["machine", "data"]


def problems(config: Config, gpus: int, skip_checks: Collection[Check] = ()) -> list[str]:
    """Everything that keeps this configuration from being measured on this machine, which shows
    so many `gpus`; nothing of this machine is looked at, or touched, if that check is skipped:
    `machine` where another one measures, `data` where the data is still to come."""
    if config.framework not in FRAMEWORKS:
        return [not_available("framework", config.framework, tuple(FRAMEWORKS))]
    found = [*_contradictions(config)]
    if "machine" not in skip_checks:
        found += [*_lacking(config, gpus), *hosts.problems(config)]
    if "data" not in skip_checks:
        found += _without_data(config)
    if not found and "machine" not in skip_checks:
        # Making the folder shows whether that can be done: so not for what is refused anyway.
        found += _unwritable(config)
    return found


def _contradictions(config: Config) -> Iterator[str]:
    model, framework = MODELS[config.model], FRAMEWORKS[config.framework]
    launchers = ("local",) if config.nodes == 1 else ("srun", "mpirun", "manual")
    limits: list[tuple[str, tuple[Any, ...], str]] = [
        ("input", model.inputs, config.model),
        ("optimizer", model.optimizers, config.model),
        ("launcher", launchers, f"nodes={config.nodes}"),
    ]
    by = f"framework={config.framework}"
    limits += [(name, values, by) for name, values in framework.supports.items()]
    for name, allowed, of in limits:
        if getattr(config, name) not in allowed:
            words = ", ".join(allowed)
            yield f"{name}: {getattr(config, name)!r} is not for {of}; allowed: {words}"
    yield from _without_effect(config)
    if config.ranks > 1 and not framework.several_processes:
        yield f"processes: {by} trains in one process; leave out nodes and processes"
    preset = precision_of(config.strategy)
    if config.precision == "auto" and preset != "auto":
        yield "precision: 'auto' needs strategy=fleetx-auto"
    elif preset not in (None, config.precision):
        yield (
            f"strategy: {config.strategy} is a preset of precision={preset}, "
            f"and precision={config.precision} was asked for"
        )
    # Whether a device does as it is told is seen later, in the worker.
    if config.device == "cpu" and config.precision not in (*framework.cpu_precisions, "auto"):
        yield (
            f"precision: {config.precision!r} is not for {framework.name} on a CPU; allowed: "
            f"{', '.join(framework.cpu_precisions)}; bf16 on a CPU: "
            "-p framework torch -p precision bf16"
        )


def _without_effect(config: Config) -> Iterator[str]:
    """What is set and has no place in such a configuration. Settings of another input are left
    alone: those of a sweep may be for several."""
    deciding = {"model", "framework", "device", "nodes", "launcher"}
    usual = resolve(config.model_dump(include=deciding))
    facts = config.model_dump() | {"sample": MODELS[config.model].sample}
    instead = {
        "gpus": "for several processes on the CPU set processes",
        "processes": "set gpus",
    }
    for name, about in ABOUT.items():
        for key, values in about.only.items():
            unused = facts[key] not in values and key != "input"
            if unused and getattr(config, name) != getattr(usual, name):
                of = config.model if key == "sample" else f"{key}={facts[key]}"
                yield f"{name}: {of} has none; {instead.get(name, 'leave it out')}"


def _lacking(config: Config, gpus: int) -> Iterator[str]:
    """What this machine does not have."""
    framework, by_gpu = FRAMEWORKS[config.framework], config.device == "gpu"
    if by_gpu and not 0 < config.gpus <= gpus:
        wanted = f"{config.gpus} asked for" if config.gpus else "device=gpu needs at least 1"
        yield (
            f"gpus: {wanted}, and this machine shows {gpus} GPU{'s' * (gpus != 1)}. "
            "To run on the CPU: -p device cpu, without gpus"
        )
    cores = len(os.sched_getaffinity(0))
    if config.processes > cores:
        yield f"processes: {config.processes} asked for, and there are {cores} cores"
    if not installed(framework.module):
        how = f"pip install -e '.[{framework.extra}]'"
        if framework.module == "paddle":
            how = "conda env create -f environment.yml" if by_gpu else "make report"
        yield f"framework: {framework.name} is not installed; to install it: {how}"
    elif by_gpu and gpus and not framework.build().get("cuda", "none"):
        yield (
            f"framework: this {framework.name} is a CPU build and can't use GPUs. For a GPU "
            "build: conda env create -f environment.yml; to run on the CPU: -p device cpu"
        )
    if config.input == "dali" and not installed("nvidia.dali"):
        yield (
            "input: DALI is not installed; to install it: make report; "
            "to do without: -p input dataloader"
        )


def _without_data(config: Config) -> Iterator[str]:
    model = MODELS[config.model]
    if config.input == "synthetic" or config.input not in model.inputs:
        return
    if model.sample == "image":
        if not (config.data_folder / LIST).is_file():
            yield (
                f"data_dir: there is no {LIST} in {config.data_dir}. Sample data: perfkit "
                f"samples; real data: a folder with train/ and {LIST}"
            )
        return
    try:
        shards = shard_files(config.data_folder)
    except OSError:
        shards = []
    if not shards:
        yield (
            f"data_dir: there is no .hdf5 file in {config.data_dir}. Sample data: perfkit "
            f"samples --for {config.model}; real data: a folder of pre-training shards"
        )


def _unwritable(config: Config) -> Iterator[str]:
    folder = resolved_path(config.outputs_dir)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        yield (
            f"outputs_dir: can't write to {config.outputs_dir} ({error.strerror}); "
            "name a folder that you may write to"
        )
