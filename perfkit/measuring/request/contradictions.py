"""Parameters that contradict each other, the model or the framework, whatever the machine."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from perfkit.measuring.config import Config
from perfkit.measuring.parameters import ABOUT, fields_of
from perfkit.measuring.request import not_available
from perfkit.measuring.work import ALL, ModelWork
from perfkit.timing.frameworks import OF_SCRIPTS
from perfkit.timing.profile import PROFILERS
from perfkit.training.frameworks import AFFINITY, FRAMEWORKS
from perfkit.training.paddle.presets import precision_of

SETTINGS = ("device", "accelerated", "launcher")
"""Properties of a configuration with which only some values of other parameters have an
effect."""
WITHOUT_EFFECT = {"gpus": 0, "processes": 1}
"""Values, other than the defaults of their fields, that have no effect."""
INSTEAD = {
    "gpus": "for several processes on the CPU set processes",
    "processes": "set gpus",
}
"""Parameter without effect -> what to do, other than to leave it out."""
PROFILED = tuple(PROFILERS)
"""Frameworks whose profiler perfkit.timing.profile knows."""


def contradictions(config: Config) -> Iterator[str]:
    yield from _unsupported(config)
    yield from _without_effect(config)
    yield from _beyond_limits(config)
    if config.work.facts:
        work = config.work.built_in
        yield from _unknown_tuning(config, work)
        yield from _too_long(work)
        yield from _wrong_precision(config, work)
        yield from _cannot_divide(config, work)


class Limit(NamedTuple):
    """The values of a parameter that `what` allows: a model, or a setting such as nodes=1."""

    parameter: str
    allowed: tuple[Any, ...]
    what: str


def _limits(config: Config) -> Iterator[Limit]:
    launchers: tuple[str, ...] = ("local",)
    if config.nodes > 1 and not config.work.launches_itself:
        launchers = ("srun", "ssh")
    model = config.work.facts
    if model:
        yield Limit("input", model.inputs, config.work.name)
        yield Limit("optimizer", model.optimizers, config.work.name)
        if model.sizes:
            yield Limit("model_size", model.sizes.names, config.work.name)
        if config.work.is_sharded:
            yield from _limits_of_sharding(config.work.built_in)
    else:
        yield Limit("framework", OF_SCRIPTS, "a script")
    yield Limit("launcher", launchers, f"nodes={config.nodes}")
    if config.profile:
        yield Limit("framework", PROFILED, "profile=True")
        yield Limit("nodes", (1,), "profile=True")
    if config.node:
        yield Limit("nodes", (1,), f"node={config.node}")
    for name, allowed in FRAMEWORKS[config.framework].supports.items():
        if name in config.values:
            yield Limit(name, allowed, f"framework={config.framework}")


def _limits_of_sharding(work: ModelWork) -> Iterator[Limit]:
    setting = f"sharding={work.sharding}"
    # Scaling a float16 loss has not been tested with it; presets set options of DataParallel,
    # which does not wrap a sharded network.
    yield Limit("precision", ("fp32", "bf16"), setting)
    yield Limit("strategy", ("none",), setting)


def _unsupported(config: Config) -> Iterator[str]:
    for limit in _limits(config):
        value = config.values[limit.parameter]
        if value is not None and value not in limit.allowed:
            allowed = ", ".join(str(value) for value in limit.allowed)
            yield f"{limit.parameter}: '{value}' is not for {limit.what}; allowed: {allowed}"


def _unknown_tuning(config: Config, work: ModelWork) -> Iterator[str]:
    settings = (*FRAMEWORKS[config.framework].tuning, AFFINITY, ALL)
    for name in sorted(work.disabled_tuning - {*settings}):
        yield not_available("disable_tuning", name, settings)


def _without_effect(config: Config) -> Iterator[str]:
    """Yield parameters that are set but have no effect in this configuration. Parameters of
    other inputs are accepted, since a sweep may set them for several inputs."""
    values = config.values
    for name, field in fields_of(type(config.work)).items():
        without_effect = WITHOUT_EFFECT.get(name, field.default)
        for setting in SETTINGS:
            value = getattr(config, setting)
            if ABOUT[name].is_for(setting, value) or values[name] == without_effect:
                continue
            cause = (
                f"device={config.device}" if setting == "accelerated" else f"{setting}={value}"
            )
            yield f"{name}: no effect with {cause}; {INSTEAD.get(name, 'leave it out')}"


def _too_long(work: ModelWork) -> Iterator[str]:
    longest = work.facts.longest_sequence
    if longest and work.sample_size > longest:
        yield f"sequence_length: {work.model} has {longest} positions; at most {longest}"


def _beyond_limits(config: Config) -> Iterator[str]:
    framework = FRAMEWORKS[config.framework]
    if framework.launch is None and (config.nodes > 1 or config.processes > 1):
        yield (
            f"processes: framework={config.framework} trains in one process; leave out nodes "
            "and processes"
        )
    if config.nodes > 1 and not config.accelerated and framework.one_node_on_cpu:
        yield (
            f"nodes: {framework.display_name} finds other nodes' CPUs only where a machine's "
            "own name is its address in the network; perfkit measures it on the CPU of one "
            "node: leave out nodes"
        )


def _wrong_precision(config: Config, work: ModelWork) -> Iterator[str]:
    precision, framework = work.precision, FRAMEWORKS[config.framework]
    preset = precision_of(work.strategy)
    if precision == "auto" and preset != "auto":
        yield "precision: 'auto' needs strategy=fleetx-auto"
    elif preset not in (None, precision):
        yield (
            f"strategy: {work.strategy} is a preset of precision={preset}, but "
            f"precision={precision} was requested"
        )
    # For other devices, the worker checks the effective precision.
    if config.device == "cpu" and precision not in (*framework.cpu_precisions, "auto"):
        yield (
            f"precision: '{precision}' is not for {framework.display_name} on a CPU; allowed: "
            f"{', '.join(framework.cpu_precisions)}; bf16 on a CPU: -p framework torch -p "
            "precision bf16"
        )


def _cannot_divide(config: Config, work: ModelWork) -> Iterator[str]:
    """Yield why the layers can't be sharded, or computed again."""
    framework = FRAMEWORKS[config.framework]
    if work.execution == "static" and not framework.compiles_in_layers:
        for parameter in ("sharding", "recompute"):
            value = getattr(work, parameter)
            if value != "none":
                yield (
                    f"{parameter}: perfkit does not combine '{value}' with a compiled graph of "
                    f"{framework.display_name}; set execution to dynamic"
                )
    if not work.is_sharded:
        return
    if config.device == "cpu" and not framework.shards_on_cpu:
        yield (
            f"sharding: perfkit does not shard {framework.display_name} on a CPU; to shard "
            "there: -p framework torch"
        )
    if config.ranks == 1:
        yield (
            f"sharding: {work.sharding} divides the training among several devices, but this "
            "one has one; set gpus, or processes on a CPU, or leave sharding out"
        )
