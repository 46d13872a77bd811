"""What is here before a measurement. What would refuse it, `plan` has told."""

import shutil
from collections.abc import Iterator
from typing import Literal, NamedTuple

from perfkit.measuring.config import Config
from perfkit.measuring.format import amount
from perfkit.measuring.paths import stored_path
from perfkit.measuring.request.checks import sample_count
from perfkit.measuring.request.plan import Plan
from perfkit.measuring.request.requirements import read_environment
from perfkit.measuring.system.gpus import forbidden_count
from perfkit.training.frameworks import FRAMEWORKS

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
    yield from _work(config)
    yield _space_for_outputs(config)
    if config.nodes > 1:
        yield _nodes(config)


def _software(config: Config) -> Iterator[Diagnostic]:
    data_folder = config.work.data_folder
    environment = read_environment(config.framework, data_folder, config.interpreter)
    for fact in ("cpu", "gpus", "python", *FRAMEWORKS[config.framework].facts, "dali"):
        reading = environment[fact]
        if reading.missing:
            yield Diagnostic("absent", fact, reading.missing)
        else:
            value = reading.value
            text = ", ".join(value) if isinstance(value, list) else str(value)
            yield Diagnostic("well", fact, text)


def _work(config: Config) -> Iterator[Diagnostic]:
    work = config.work
    text = f"{work.name} trains with {FRAMEWORKS[config.framework].display_name}"
    if work.modules:
        text += f"; local modules: {', '.join(work.modules)}"
    yield Diagnostic("well", "work", text)
    if notice := work.notice():
        yield Diagnostic("absent", "timer", notice)
    if work.input == "synthetic":
        yield Diagnostic("well", "data", "none needed: synthetic input")
    elif work.facts:
        samples = amount(sample_count(work.built_in), work.facts.sample)
        yield Diagnostic("well", "data", f"{samples} in {work.data_folder}")


def _space_for_outputs(config: Config) -> Diagnostic:
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


def _nodes(config: Config) -> Diagnostic:
    nodes = config.hosts or f"{config.nodes} nodes of this allocation"
    text = f"{nodes}; that they start and are alike is checked in the first repeat"
    return Diagnostic("well", "nodes", text)
