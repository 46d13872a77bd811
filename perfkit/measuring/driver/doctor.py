"""What is here before a measurement. What would refuse it, `plan` has told."""

from collections.abc import Iterator
from typing import NamedTuple

from perfkit.measuring.config import Config
from perfkit.measuring.format import amount
from perfkit.measuring.request.checks import sample_count
from perfkit.measuring.request.plan import Plan
from perfkit.measuring.request.requirements import read_environment
from perfkit.measuring.system.gpus import facts_of_speed
from perfkit.training.frameworks import FRAMEWORKS


class Diagnostic(NamedTuple):
    """What was found out about one subject: that it is well, or absent but maybe not needed."""

    subject: str
    text: str
    is_well: bool = True


def examine_plan(plan: Plan) -> Iterator[Diagnostic]:
    config = plan.config
    yield from _software(config)
    if config.device == "gpu":
        yield from _gpus()
    yield from _work(config)
    if config.nodes > 1:
        yield _nodes(config)


def _software(config: Config) -> Iterator[Diagnostic]:
    data_folder = config.work.data_folder
    environment = read_environment(config.framework, data_folder, config.interpreter)
    for fact in ("cpu", "gpus", "python", *FRAMEWORKS[config.framework].facts, "dali"):
        reading = environment[fact]
        if reading.missing:
            yield Diagnostic(fact, reading.missing, is_well=False)
        else:
            value = reading.value
            text = ", ".join(value) if isinstance(value, list) else str(value)
            yield Diagnostic(fact, text)


def _gpus() -> Iterator[Diagnostic]:
    for label, facts in facts_of_speed().items():
        text = "; ".join(fact.text for fact in facts)
        is_well = all(fact.is_usual for fact in facts)
        yield Diagnostic(f"gpu {label}", text or "NVML tells nothing", is_well)


def _work(config: Config) -> Iterator[Diagnostic]:
    work = config.work
    text = f"{work.name} trains with {FRAMEWORKS[config.framework].display_name}"
    if work.launches_itself:
        text = f"{work.name}, by its log"
    if work.modules:
        text += f"; local modules: {', '.join(work.modules)}"
    yield Diagnostic("work", text)
    if notice := work.notice():
        yield Diagnostic("timer", notice, is_well=False)
    if work.input == "synthetic":
        yield Diagnostic("data", "none needed: synthetic input")
    elif work.facts:
        samples = amount(sample_count(work.built_in), work.facts.sample)
        yield Diagnostic("data", f"{samples} in {work.data_folder}")


def _nodes(config: Config) -> Diagnostic:
    nodes = config.hosts or f"{config.nodes} nodes of this allocation"
    text = f"{nodes}; that they start and are alike is checked in the first repeat"
    return Diagnostic("nodes", text)
