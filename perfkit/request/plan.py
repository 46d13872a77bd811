"""From a request to a plan: parameters validated, and what they leave open filled in.

All that is wrong with a request is said at once, before anything starts.
"""

import os
import tempfile
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import ValidationError

from perfkit.config import (
    PROTOCOL_PARAMETERS,
    PROTOCOLS,
    Config,
    Protocol,
    choices,
    parameters,
    portable,
    resolved_path,
)
from perfkit.inputs.shards import shard_files
from perfkit.machine import hosts
from perfkit.machine.gpus import visible_gpus
from perfkit.machine.packages import installed
from perfkit.models import MODELS
from perfkit.request.frameworks import FRAMEWORKS
from perfkit.request.nearest import nearest
from perfkit.training.strategies import precision_of

Unseen = Literal["machine", "data"]


class RequestError(ValueError):
    """The request itself is wrong; nothing was started. `problems` lists all that is wrong."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        lines = ["The request was refused; nothing was started.", *problems]
        super().__init__("\n  ".join(lines))

    def _render_traceback_(self) -> list[str]:
        # IPython asks for this: a notebook's reader needs the problems, not our stack.
        return str(self).splitlines()


@dataclass(frozen=True)
class Plan:
    """A configuration and a protocol in which nothing is left open."""

    config: Config
    protocol: Protocol


def plan(model: str, namespace: Mapping[str, Any], unseen: Collection[Unseen] = ()) -> Plan:
    """Validate the parameters found in `namespace` and fill in what they leave open.

    `namespace` is a notebook's `globals()` or any mapping of names to values: every public
    name that holds a plain literal counts as a parameter, so that a misspelt one is noticed.
    What is `unseen` from here is not judged. Raises RequestError with all problems at once.
    """
    given = {name: value for name, value in namespace.items() if _is_parameter(name, value)}
    known = parameters()
    problems = [
        f"{name}: no such parameter{nearest(name, known)} "
        "(a variable of your own? Begin its name with an underscore)"
        for name in given.keys() - known.keys()
    ]
    if model not in MODELS:
        problems.append(_not_available("model", model, tuple(MODELS)))
    given = {name: value for name, value in given.items() if name in known}
    steps = {name: given.pop(name, None) for name in PROTOCOL_PARAMETERS}
    protocol = steps.pop("protocol")
    if protocol is None:
        protocol = "auto"
    if wrong := value_problems("protocol", protocol):
        problems += wrong
        protocol = "auto"

    config = _asked({"model": model if model in MODELS else "resnet50"} | given, problems)
    validated(Protocol.named, {"name": "quick"} | steps, problems)
    if problems or config is None:
        raise RequestError(sorted(problems))
    config = resolve(config, len(visible_gpus()), unseen)
    if protocol == "auto":
        protocol = "published" if config.device == "gpu" else "quick"
    return Plan(config, Protocol.named(protocol, **steps))


def value_problems(name: str, value: Any) -> list[str]:
    """What is wrong with this value of the parameter `name`, whatever the others are."""
    problems: list[str] = []
    if name == "protocol":
        if value not in ("auto", None, *PROTOCOLS):
            problems.append(_not_available(name, value, ("auto", *PROTOCOLS)))
    elif name not in PROTOCOL_PARAMETERS:
        _asked({"model": "resnet50", name: value}, problems)
    else:
        # Of two that need each other, one alone is not wrong by itself.
        beside = {"repeats": "auto"} if name in ("budget", "interval_target") else {}
        validated(Protocol.named, {"name": "quick", name: value} | beside, problems)
    return problems


def resolve(config: Config, gpus: int, unseen: Collection[Unseen] = ()) -> Config:
    """Fill in what `config` leaves open, on a machine that shows so many `gpus`.

    What is `unseen` from here is not judged; of an unseen machine, `gpus` must be given.

    Raises RequestError where the machine lacks what was asked for, or the parts of the request
    do not fit together.
    """
    if problems := _not_run(config.framework):
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
    paths = {name: portable(getattr(config, name)) for name in ("data_dir", "outputs_dir")}
    return config.model_copy(update=paths)


def typed(name: str, value: str) -> Any:
    """`value` as the parameter's type, where its text has one; else the text itself."""
    if value in ("True", "False", "None"):
        return {"True": True, "False": False, "None": None}[value]
    default, _meaning = parameters().get(name, (None, ""))
    if isinstance(default, str):
        return value
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value


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
    of_images: dict[str, Any] = {"image_size": 224, "layout": framework.layout}
    of_sequences: dict[str, Any] = {"sequence_length": 128}
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
    """Parts that contradict each other. Whether the device does as it is told is seen later,
    in the worker."""
    problems = []
    meant = precision_of(config.strategy)
    if config.precision == "auto" and meant != "auto":
        problems.append("precision: 'auto' needs strategy=fleetx-auto")
    elif meant not in (None, config.precision):
        problems.append(
            f"strategy: {config.strategy} is a preset of precision={meant}, "
            f"and precision={config.precision} was asked for"
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
    elif not (config.data_folder / "train_list.txt").is_file():
        problems.append(
            f"data_dir: there is no train_list.txt in {config.data_dir}. Sample data: "
            "perfkit samples; real data: a folder with train/ and train_list.txt"
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


def _is_parameter(name: str, value: object) -> bool:
    literal = value is None or isinstance(value, str | int | float | list | tuple | dict)
    # In and Out are IPython's.
    return literal and not name.startswith("_") and name not in ("In", "Out")


def _asked(values: dict[str, Any], problems: list[str]) -> Config | None:
    """The configuration that is asked for, or None and what is wrong with it added to
    `problems`."""
    if unknown := _not_run(values.get("framework", "paddle")):
        problems += unknown
        values = values | {"framework": "paddle"}
    config: Config | None = validated(Config, values, problems)
    return config


def _not_run(framework: object) -> list[str]:
    """Why perfkit can't train with this framework, if it can't."""
    if framework in [*FRAMEWORKS]:
        return []
    return [_not_available("framework", framework, tuple(FRAMEWORKS))]


def validated(model: Callable[..., Any], values: dict[str, Any], problems: list[str]) -> Any:
    """An instance of `model`, or None and what is wrong added to `problems`."""
    try:
        return model(**values)
    except ValidationError as error:
        problems.extend(_sentence(e) for e in error.errors())
        return None


TYPES = {
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "True or False",
    "string_type": "text",
}
PATTERNS = {
    "label": "up to 40 letters, digits, - and _",
    "hosts": "names or addresses with a comma between: node1,node2",
}
BOUNDS = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}


def _sentence(error: Any) -> str:
    """One pydantic error as: parameter, what is wrong, what is allowed."""
    if not error["loc"]:
        return str(error["ctx"]["error"])
    name, value, kind = error["loc"][0], error["input"], error["type"]
    if kind == "literal_error":
        return _not_available(name, value, choices(Config.model_fields[name].annotation))
    if kind.startswith(("greater", "less")):
        limit = "; ".join(f"{BOUNDS[key]} {bound}" for key, bound in error["ctx"].items())
        return f"{name}: {value!r} is out of range; allowed: {limit}"
    if kind == "string_pattern_mismatch":
        return f"{name}: {value!r}; allowed: {PATTERNS[name]}"
    if kind in TYPES:
        # papermill's -p turns text that looks like a number into one.
        raw = f" (for papermill: -r {name} {value})" if kind == "string_type" else ""
        auto = ", or auto" if name == "repeats" else ""
        return f"{name}: {value!r} is of the wrong type; allowed: {TYPES[kind]}{auto}{raw}"
    return f"{name}: {value!r}: {error['msg']}"


def _not_available(name: str, value: object, allowed: tuple[Any, ...]) -> str:
    words = ", ".join(str(word) for word in allowed)
    return f"{name}: {value!r} is not available; allowed: {words}{nearest(value, allowed)}"
