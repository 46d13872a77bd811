"""Parameters that contradict each other, the model or the framework, whatever the machine."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from perfkit.core import refusals
from perfkit.core.config import ALL, Config, RunConfig
from perfkit.core.parameters import ABOUT, fields_of
from perfkit.core.refusals import Refusal
from perfkit.core.request.resolve import resolve, resolve_script
from perfkit.core.request.script import UNREAD
from perfkit.core.script_config import AnyConfig
from perfkit.core.work import work_of
from perfkit.timing.frameworks import OF_SCRIPTS
from perfkit.training.frameworks import AFFINITY, FRAMEWORKS
from perfkit.training.models import model_of
from perfkit.training.paddle.presets import precision_of

DECIDING = {"model", "framework", "device", "nodes", "launcher"}
"""Parameters from which the default values of all others follow."""


def contradictions(config: AnyConfig) -> Iterator[Refusal]:
    yield from _unsupported(config)
    yield from _without_effect(config)
    yield from _beyond_limits(config)
    if isinstance(config, Config):
        yield from _unknown_tuning(config)
        yield from _too_long(config)
        yield from _wrong_precision(config)
        yield from _cannot_divide(config)


class Limit(NamedTuple):
    """The values of a parameter that `what` allows: a model, or a setting such as nodes=1."""

    parameter: str
    allowed: tuple[Any, ...]
    what: str


def _limits(config: AnyConfig) -> Iterator[Limit]:
    launchers: tuple[str, ...] = ("local",)
    if config.nodes > 1:
        launchers = ("srun", "ssh")
    if isinstance(config, Config):
        model = model_of(config)
        yield Limit("input", model.inputs, config.model)
        yield Limit("optimizer", model.optimizers, config.model)
        if model.sizes:
            yield Limit("model_size", model.sizes.names, config.model)
        if config.is_sharded:
            yield from _limits_of_sharding(config)
    else:
        yield Limit("framework", OF_SCRIPTS, "a script")
    yield Limit("launcher", launchers, f"nodes={config.nodes}")
    if config.node:
        yield Limit("nodes", (1,), f"node={config.node}")
    for name, allowed in FRAMEWORKS[config.framework].supports.items():
        if name in type(config).model_fields:
            yield Limit(name, allowed, f"framework={config.framework}")


def _limits_of_sharding(config: Config) -> Iterator[Limit]:
    setting = f"sharding={config.sharding}"
    # Scaling a float16 loss has not been tested with it; presets set options of DataParallel,
    # which does not wrap a sharded network.
    yield Limit("precision", ("fp32", "bf16"), setting)
    yield Limit("strategy", ("none",), setting)


def _needs_cpu(config: RunConfig) -> bool:
    """Return whether an accelerator was chosen for a framework that has only the CPU."""
    devices = FRAMEWORKS[config.framework].supports.get("device")
    return config.accelerated and devices == ("cpu",)


def _unsupported(config: AnyConfig) -> Iterator[Refusal]:
    if _needs_cpu(config):
        yield refusals.CpuOnly(framework=FRAMEWORKS[config.framework].display_name)
    for limit in _limits(config):
        if limit.parameter == "device" and _needs_cpu(config):
            continue
        value = getattr(config, limit.parameter)
        if value is not None and value not in limit.allowed:
            yield refusals.NotFor(
                parameter=limit.parameter,
                value=str(value),
                what=limit.what,
                allowed=[str(value) for value in limit.allowed],
            )


def _unknown_tuning(config: Config) -> Iterator[Refusal]:
    settings = (*FRAMEWORKS[config.framework].tuning, AFFINITY, ALL)
    for name in sorted(config.disabled_tuning - {*settings}):
        yield refusals.NotAvailable.of("disable_tuning", name, settings)


def _without_effect(config: AnyConfig) -> Iterator[Refusal]:
    """Yield parameters that are set but have no effect in this configuration. Parameters of
    other inputs are accepted, since a sweep may set them for several inputs."""
    usual = _usual(config)
    for name in fields_of(type(config)):
        for decider, values in ABOUT[name].only.items():
            if decider == "input" or _decides(config, decider, values):
                continue
            if getattr(config, name) != getattr(usual, name):
                yield refusals.NoEffect(parameter=name, cause=_cause(config, decider))


def _usual(config: AnyConfig) -> AnyConfig:
    """Return the configuration with the default value of each parameter that does not decide
    others."""
    if isinstance(config, Config):
        return resolve(config.model_dump(include=DECIDING))
    of_script = {"script", "script_sha256", "modules"}
    return resolve_script(config.model_dump(include=DECIDING | of_script), UNREAD)


def _decides(config: AnyConfig, decider: str, values: tuple[Any, ...]) -> bool:
    """Return whether the property `decider` of About.only has one of these values."""
    if decider == "sample":
        return work_of(config).kind in values
    return getattr(config, decider) in values


def _cause(config: AnyConfig, decider: str) -> str:
    match decider:
        case "sample":
            return work_of(config).name
        case "accelerated":
            return f"device={config.device}"
    return f"{decider}={getattr(config, decider)}"


def _too_long(config: Config) -> Iterator[Refusal]:
    longest = model_of(config).longest_sequence
    if longest and config.sample_size > longest:
        yield refusals.SequenceTooLong(model=config.model, positions=longest)


def _beyond_limits(config: RunConfig) -> Iterator[Refusal]:
    framework = FRAMEWORKS[config.framework]
    alone = framework.launch is None
    if config.ranks > 1 and alone and not _needs_cpu(config):
        yield refusals.OneProcessOnly(framework=config.framework)
    if config.nodes > 1 and not config.accelerated and framework.one_node_on_cpu:
        yield refusals.OneNodeOnCpu(framework=framework.display_name)


def _wrong_precision(config: Config) -> Iterator[Refusal]:
    framework = FRAMEWORKS[config.framework]
    preset = precision_of(config.strategy)
    if config.precision == "auto" and preset != "auto":
        yield refusals.AutoNeedsStrategy()
    elif preset not in (None, config.precision):
        yield refusals.PresetMismatch(
            strategy=config.strategy, preset=str(preset), precision=config.precision
        )
    # For other devices, the worker checks the effective precision.
    allowed = framework.cpu_precisions
    if config.device == "cpu" and config.precision not in (*allowed, "auto"):
        yield refusals.PrecisionNotOnCpu(
            value=config.precision, framework=framework.display_name, allowed=[*allowed]
        )


def _cannot_divide(config: Config) -> Iterator[Refusal]:
    """Yield why the layers can't be sharded, or computed again."""
    framework = FRAMEWORKS[config.framework]
    if config.execution == "static" and not framework.compiles_in_layers:
        for parameter in ("sharding", "recompute"):
            value = getattr(config, parameter)
            if value != "none":
                yield refusals.NotCompiled(
                    parameter=parameter, value=value, framework=framework.display_name
                )
    if not config.is_sharded:
        return
    if config.device == "cpu" and not framework.shards_on_cpu:
        yield refusals.ShardingNotOnCpu(framework=framework.display_name)
    if config.ranks == 1:
        yield refusals.ShardingAlone(value=config.sharding)
