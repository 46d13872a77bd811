"""What is here before a measurement. What would refuse it, `plan` has told."""

import shutil
from collections.abc import Iterator
from typing import Literal, NamedTuple

from perfkit.core.config import Config
from perfkit.core.format import amount
from perfkit.core.paths import stored_path
from perfkit.core.request.checks import sample_count
from perfkit.core.request.plan import Plan
from perfkit.core.request.requested_script import without_timer
from perfkit.core.request.requirements import read_environment
from perfkit.core.script_config import AnyConfig, ScriptConfig
from perfkit.core.system.gpus import forbidden_count
from perfkit.training.frameworks import FRAMEWORKS
from perfkit.training.models import model_of

FREE_MEBIBYTES = 100


class Diagnostic(NamedTuple):
    """What was found out about one subject: that it is well, that it is absent but maybe not
    needed, or that it failed, and what to do about it."""

    outcome: Literal["well", "absent", "failed"]
    subject: str
    text: str


def examine_plan(plan: Plan) -> Iterator[Diagnostic]:
    config = plan.config
    yield from _software(config)
    forbidden = forbidden_count()
    if config.device == "gpu" and forbidden:
        forbidden_gpus = amount(forbidden, "GPU")
        problem = f"this process has no permission to use {forbidden_gpus} of this machine"
        yield Diagnostic("absent", "gpus", problem)
    if isinstance(config, ScriptConfig):
        yield from _script(config)
    else:
        yield _data(config)
    yield _space_for_outputs(config)
    if config.nodes > 1:
        yield _nodes(config)


def _software(config: AnyConfig) -> Iterator[Diagnostic]:
    environment = read_environment(config.framework, config.data_folder, config.interpreter)
    for fact in ("cpu", "gpus", "python", *FRAMEWORKS[config.framework].facts, "dali"):
        reading = environment[fact]
        if reading.missing:
            yield Diagnostic("absent", fact, reading.missing)
        else:
            value = reading.value
            text = ", ".join(value) if isinstance(value, list) else str(value)
            yield Diagnostic("well", fact, text)


def _script(config: ScriptConfig) -> Iterator[Diagnostic]:
    framework = FRAMEWORKS[config.framework].display_name
    modules = "it imports no local modules"
    if config.modules:
        modules = f"local modules: {', '.join(config.modules)}"
    yield Diagnostic("well", "script", f"{config.script} trains with {framework}; {modules}")
    notice = without_timer(config)
    if notice:
        yield Diagnostic("absent", "timer", notice)


def _data(config: Config) -> Diagnostic:
    if config.input == "synthetic":
        return Diagnostic("well", "data", "none needed: synthetic input")
    samples = amount(sample_count(config), model_of(config).sample)
    return Diagnostic("well", "data", f"{samples} in {config.data_folder}")


def _space_for_outputs(config: AnyConfig) -> Diagnostic:
    folder = stored_path(config.outputs_dir)
    # It need not exist yet.
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free / 2**20
    text = f"{free:,.0f} MiB free, {FREE_MEBIBYTES} MiB needed"
    if free >= FREE_MEBIBYTES:
        return Diagnostic("well", "outputs", text)
    advice = "free disk space, or choose another folder: -p outputs_dir FOLDER"
    return Diagnostic("failed", "outputs", f"{text}; {advice}")


def _nodes(config: AnyConfig) -> Diagnostic:
    nodes = config.hosts or f"{config.nodes} nodes of this allocation"
    text = f"{nodes}; that they start and are alike is checked in the first repeat"
    return Diagnostic("well", "nodes", text)
