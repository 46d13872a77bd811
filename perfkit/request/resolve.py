"""What a request leaves open, filled in from what the machine has, and what keeps it from being
done there."""

import os
import tempfile
from collections.abc import Collection
from typing import Any, Literal

from perfkit.config import PATHS, Config, choices, portable, resolved_path
from perfkit.frameworks import FRAMEWORKS
from perfkit.frameworks.paddle.presets import precision_of
from perfkit.inputs.images import LIST
from perfkit.inputs.sequences import shard_files
from perfkit.models import MODELS
from perfkit.request import hosts
from perfkit.request.errors import RequestError, not_available
from perfkit.system.software import installed

Unseen = Literal["machine", "data"]


def resolve(config: Config, gpus: int, unseen: Collection[Unseen] = ()) -> Config:
    """Fill in what `config` leaves open, on a machine that shows so many `gpus`.

    What is `unseen` from here is not judged; of an unseen machine, `gpus` must be given.

    Raises RequestError where the machine lacks what was asked for, or the parts of the request
    do not fit together.
    """
    if problems := not_run(config.framework):
        raise RequestError(problems)
    here = "machine" not in unseen
    filled = _model_choices(config, problems) | _node_choices(config, problems, here)
    wanted = config.gpus
    if not here:
        gpus = wanted or 0
        if wanted is None and config.device != "cpu":
            problem = "gpus: say how many per node; where it runs can't be seen from here"
            raise RequestError([*problems, problem])
    by_gpu = wanted != 0 and bool(wanted or gpus)
    if config.device == "gpu" or (config.device == "auto" and by_gpu):
        filled |= _on_gpus(config, gpus, problems)
    else:
        filled |= _on_cpu(config, problems, here)
    config = config.model_copy(update=filled)
    problems += _limits(config) + _precision_problems(config)
    if here:
        problems += _framework_problems(config, gpus) + _dali_problems(config)
    if "data" not in unseen:
        problems += _data_problems(config)
    # Making the folder shows whether that can be done: so not for what is refused anyway.
    problems = problems or _output_problems(config)
    if problems:
        raise RequestError(problems)
    paths = {name: portable(getattr(config, name)) for name in PATHS}
    return config.model_copy(update=paths)


def not_run(framework: object) -> list[str]:
    """Why perfkit can't train with this framework, if it can't."""
    if framework in [*FRAMEWORKS]:
        return []
    return [not_available("framework", framework, tuple(FRAMEWORKS))]


def _model_choices(config: Config, problems: list[str]) -> dict[str, Any]:
    """What follows from the model and the framework."""
    model, framework = MODELS[config.model], FRAMEWORKS[config.framework]
    usual: dict[str, Any] = {"data_dir": model.data_dir, "execution": framework.execution}
    for name, allowed in (("input", model.inputs), ("optimizer", model.optimizers)):
        value = getattr(config, name)
        if value is not None and value not in allowed:
            words = ", ".join(allowed)
            problems.append(f"{name}: {value!r} is not for {config.model}; allowed: {words}")
        taken = framework.takes.get(name, allowed)
        usual[name] = next(one for one in allowed if one in taken)
    of_images: dict[str, Any] = {
        "image_size": model.default_image_size,
        "layout": framework.layout,
    }
    of_sequences: dict[str, Any] = {"sequence_length": model.default_sequence_length}
    own, foreign = of_images, of_sequences
    if model.sample == "sequence":
        own, foreign = of_sequences, of_images
    problems += [
        f"{name}: {config.model} has none; leave it out"
        for name in foreign
        if getattr(config, name) is not None
    ]
    usual |= own
    return {name: value for name, value in usual.items() if getattr(config, name) is None}


def _node_choices(config: Config, problems: list[str], here: bool) -> dict[str, Any]:
    """What follows from the number of nodes: how they are started, and their names."""
    launcher = config.launcher or ("local" if config.nodes == 1 else "srun")
    if (launcher == "local") != (config.nodes == 1):
        allowed = "local" if config.nodes == 1 else "srun, mpirun, manual"
        problems.append(
            f"launcher: {launcher!r} is not for nodes={config.nodes}; allowed: {allowed}"
        )
    elif launcher in ("local", "srun") and config.hosts is not None:
        problems.append(f"hosts: launcher={launcher} needs none; leave it out")
    elif here:
        problems += hosts.problems(launcher, config.nodes, config.hosts)
    return {"launcher": launcher}


def _on_gpus(config: Config, gpus: int, problems: list[str]) -> dict[str, Any]:
    wanted = gpus if config.gpus is None else config.gpus
    if config.processes is not None:
        problems.append("processes: is for the CPU; a GPU has one process, set gpus")
    if wanted > gpus or not wanted:
        asked = f"{wanted} asked for" if wanted else "at least 1 is needed for device=gpu"
        problems.append(
            f"gpus: {asked}, and this machine shows {gpus} GPU{'s' * (gpus != 1)}. "
            "To run on the CPU: -p device cpu, without gpus"
        )
    batch_size = config.batch_size or MODELS[config.model].gpu_batch_size
    return {"device": "gpu", "gpus": wanted, "batch_size": batch_size}


def _on_cpu(config: Config, problems: list[str], here: bool) -> dict[str, Any]:
    cores = len(os.sched_getaffinity(0))
    processes = config.processes or 1
    if config.gpus:
        problems.append(
            f"gpus: {config.gpus} asked for with device=cpu; "
            "for several processes on the CPU set processes"
        )
    if here and processes > cores:
        problems.append(f"processes: {processes} asked for, and there are {cores} cores")
    batch_size = config.batch_size or MODELS[config.model].cpu_batch_size
    return {"device": "cpu", "gpus": 0, "processes": processes, "batch_size": batch_size}


def _framework_problems(config: Config, gpus: int) -> list[str]:
    framework = FRAMEWORKS[config.framework]
    if not installed(framework.module):
        how = f"pip install -e '.[{framework.extra}]'"
        if framework.module == "paddle":
            gpu = config.device == "gpu"
            how = "conda env create -f environment.yml" if gpu else "make report"
        return [f"framework: {framework.name} is not installed; to install it: {how}"]
    on_gpus = config.device == "gpu" and gpus and "gpu" in _taken(config, "device")
    if on_gpus and not framework.build()["cuda"]:
        return [
            f"framework: this {framework.name} is a CPU build and can't use GPUs. For a GPU "
            "build: conda env create -f environment.yml; to run on the CPU: -p device cpu"
        ]
    return []


def _taken(config: Config, name: str) -> tuple[Any, ...]:
    """What the framework takes of the values that the parameter has."""
    every = choices(Config.model_fields[name].annotation)
    return FRAMEWORKS[config.framework].takes.get(name, every)


def _limits(config: Config) -> list[str]:
    """What the framework does not do."""
    framework = FRAMEWORKS[config.framework]
    problems = []
    for name in framework.takes:
        value = getattr(config, name)
        if value not in _taken(config, name):
            allowed = ", ".join(_taken(config, name))
            told = f"{name}: {value!r} is not for framework={config.framework}"
            problems.append(f"{told}; allowed: {allowed}")
    if config.ranks > 1 and not framework.several_processes:
        problems.append(
            f"processes: framework={config.framework} trains in one process; leave out nodes "
            "and processes"
        )
    return problems


def _precision_problems(config: Config) -> list[str]:
    """Parts that contradict each other, and what the device would not do. Whether it does as
    it is told is seen later, in the worker."""
    problems = []
    meant = precision_of(config.strategy)
    if config.precision == "auto" and meant != "auto":
        problems.append("precision: 'auto' needs strategy=fleetx-auto")
    elif meant not in (None, config.precision):
        problems.append(
            f"strategy: {config.strategy} is a preset of precision={meant}, "
            f"and precision={config.precision} was asked for"
        )
    framework = FRAMEWORKS[config.framework]
    if config.device == "cpu" and config.precision not in (*framework.cpu_precisions, "auto"):
        allowed = ", ".join(framework.cpu_precisions)
        problems.append(
            f"precision: {framework.name} trains {allowed} on a CPU, not {config.precision}; "
            "bf16 on a CPU: -p framework torch -p precision bf16"
        )
    if config.tf32 and config.device == "cpu":
        problems.append("tf32: is for GPUs; a CPU has none")
    return problems


def _dali_problems(config: Config) -> list[str]:
    if config.input == "dali" and not installed("nvidia.dali"):
        return [
            "input: DALI is not installed; to install it: make report; "
            "to do without: -p input dataloader"
        ]
    return []


def _data_problems(config: Config) -> list[str]:
    problems: list[str] = []
    if config.input == "synthetic" or config.input not in MODELS[config.model].inputs:
        return problems
    if MODELS[config.model].sample == "sequence":
        if not _has_shards(config):
            problems.append(
                f"data_dir: there is no .hdf5 file in {config.data_dir}. Sample data: perfkit "
                "samples --for bert; real data: a folder of pre-training shards"
            )
    elif not (config.data_folder / LIST).is_file():
        problems.append(
            f"data_dir: there is no {LIST} in {config.data_dir}. Sample data: "
            f"perfkit samples; real data: a folder with train/ and {LIST}"
        )
    return problems


def _output_problems(config: Config) -> list[str]:
    folder = resolved_path(config.outputs_dir)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        reason = error.strerror
        return [
            f"outputs_dir: can't write to {config.outputs_dir} ({reason}); "
            "name a folder that you may write to"
        ]
    return []


def _has_shards(config: Config) -> bool:
    try:
        return bool(shard_files(config.data_folder))
    except OSError:
        return False
