"""Names of results, devices and configurations, and commands, as text."""

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from perfkit.analysis.comparison.configurations import NAME, Configuration
from perfkit.analysis.comparison.keys import LIVE_LABEL
from perfkit.analysis.comparison.stored import InterleavedComparison, Variant
from perfkit.measuring.command import run_command
from perfkit.measuring.format import number, percent, plain
from perfkit.measuring.parameters import ABOUT, parameters, select, takes
from perfkit.measuring.protocol import Protocol
from perfkit.measuring.results.schema import Result
from perfkit.measuring.statistics import median
from perfkit.report.text.language import gettext as _
from perfkit.report.text.wording import (
    column_value,
    device_name,
    row_title,
    traits,
    variant_arguments,
    work_title,
)
from perfkit.training.frameworks import DISPLAY_NAMES


def peak_share(shares: Sequence[float | None]) -> str:
    """Return the median share of the measured peak, or "unreliable" if any repeat exceeds
    100 %."""
    measured = [share for share in shares if share is not None]
    if not measured:
        return percent(None)
    if max(measured) > 1:
        return _("unreliable, over 100 %")
    return percent(median(measured))


def stored_value(value: Any) -> str:
    """Return a stored value as text, by its type; empty for None."""
    text = "" if value is None else str(value)
    match value:
        case bool():
            text = _("yes") if value else _("no")
        case "yes" | "no":
            text = _(text)
        case int():
            text = f"{value:,}"
        case float():
            text = number(value)
        case tuple():
            text = " – ".join(map(stored_value, value))
        case list():
            text = ", ".join(map(stored_value, value)) or _("none")
        case dict():
            parts = [f"{name} {stored_value(part)}" for name, part in value.items()]
            text = "; ".join(parts)
    return text


def device(result: Result) -> str:
    """Return the name of the GPU or CPU that trained."""
    facts = {f"environment.{name}": result.fact(name) for name in ("gpus", "cpu")}
    return device_name({"device": result.config.device} | facts)


def protocol_name(protocol: Protocol) -> str:
    """Return the protocol's name, marked if any of its values was changed."""
    if protocol == Protocol.named(protocol.name):
        return protocol.name
    return _("%(name)s, changed") % {"name": protocol.name}


def precision(result: Result) -> str:
    """Return the effective precision, with the requested precision if that differs; of a
    script, the precision that it told, empty without one."""
    requested = result.work.precision
    if requested is None:
        return plain(result.told.precision or "") if result.told else ""
    used = result.effective.precision if result.effective else requested
    if used == requested:
        return used
    note = _("requested: %(precision)s") % {"precision": requested}
    return f"{used} ({note})"


def title(result: Result) -> str:
    """Return the configuration in a few words: "ResNet-50 · PyTorch · fp32 · batch 4"; of a
    script: "train.py · --lr 0.1 · PyTorch · bf16 · 64 images per step"."""
    config, work = result.config, result.work
    unusual = traits(result.parameters | {"model": work.name})
    batch = told_batch(result)
    if work.batch_size:
        batch = _("batch %(size)s") % {"size": work.batch_size}
    parts = [
        plain(work.short_title),
        unusual.pop("arguments", ""),
        "" if work.launches_itself else DISPLAY_NAMES[config.framework],
        precision(result),
        batch,
        config.topology if config.device_count > 1 else "",
        work.input,
        *unusual.values(),
        "" if re.fullmatch(LIVE_LABEL, config.label) else config.label,
        _("node %(name)s") % {"name": plain(config.node)} if config.node else "",
    ]
    return " · ".join(filter(None, parts))


def told_batch(result: Result) -> str:
    """Return the samples per step of one rank that a script told, with their unit; empty
    without any."""
    told = result.told
    if not told:
        return ""
    count = {"count": f"{told.samples_per_step:,}", "unit": plain(told.unit)}
    return _("%(count)s %(unit)s per step") % count


def variant_name(variant: Variant, comparison: InterleavedComparison) -> str:
    """Return the name of a variant of an interleaved comparison: "PyTorch" for framework=torch,
    "Paddle 2.6.2" beside another version; of a script, what the others don't have in common
    with it; other variants as typed."""
    values = dict(variant.values)
    if values.keys() & {"script", "arguments"}:
        return _script_variant(values, comparison)
    framework = values.pop("framework", None)
    values.pop("python", None)
    if values:
        return plain(variant.name)
    frameworks = [other.values.get("framework") for other in comparison.variants]
    if framework and frameworks.count(framework) == 1:
        return DISPLAY_NAMES.get(str(framework), plain(str(framework)))
    version = _framework_version(variant, comparison)
    return version or plain(variant.name)


def _framework_version(variant: Variant, comparison: InterleavedComparison) -> str:
    """Return the framework of a variant with its version, by which it differs from the base or,
    of the base, another one from it; empty if it doesn't."""
    for pair in comparison.pairs:
        framework = str(pair.keys.get("framework"))
        versions = pair.differs.get(framework)
        if versions and variant is comparison.base:
            return f"{DISPLAY_NAMES[framework]} {versions[0]}"
        if versions and pair.b.name == variant.id:
            return f"{DISPLAY_NAMES[framework]} {versions[1]}"
    return ""


def _script_variant(values: Mapping[str, Any], comparison: InterleavedComparison) -> str:
    parts = []
    every = [str(other.values.get("arguments") or "") for other in comparison.variants]
    for name, value in values.items():
        match name:
            case "script":
                parts.append(plain(str(value)))
            case "arguments":
                arguments = variant_arguments(str(value), every)
                parts.append(arguments)
            case _:
                parts.append(plain(f"{name}={value}"))
    return " ".join(parts)


def comparison_title(comparison: InterleavedComparison) -> str:
    """Return the short name of the compared model, with its size if all variants have the same
    one, or of a script's file."""
    return work_title(comparison.model, comparison.model_size)


def configuration_name(configuration: Configuration) -> str:
    """Return a configuration in a few words, with the parameters that differ from the defaults
    and what tells it from others."""
    values = configuration.values
    unusual = traits(values)
    words = [row_title(values, NAME), *unusual.values()]
    for column in configuration.apart:
        if values[column] is not None and column not in unusual:
            words.append(column_value(column, values[column]))
    return " · ".join(words)


def variant_names(comparison: InterleavedComparison) -> list[str]:
    """Return the names of all variants of an interleaved comparison."""
    return [variant_name(variant, comparison) for variant in comparison.variants]


def framework_version(result: Result) -> str:
    """Return the framework's name with its version, if that is known; that of a command is
    unknown."""
    if result.work.launches_itself:
        return ""
    framework = result.config.framework
    version = result.fact(framework) or ""
    return f"{DISPLAY_NAMES[framework]} {version}".rstrip()


def command(result: Result, **others: Any) -> str:
    """Return the command that repeats the measurement with the same settings on any machine,
    and with `others`."""
    work = result.work
    values = requested(result) | others | work.model_dump(include={"script"})
    return shlex.join(run_command(work.word, values))


def taken_parameters(result: Result) -> dict[str, Any]:
    """Return the values of the parameters that the model, or the script, takes."""
    values = {}
    for name, value in result.parameters.items():
        if takes(result.work.word, name):
            values[name] = value
    return values


def requested(result: Result) -> dict[str, Any]:
    """Return the parameters that a request on any machine needs to repeat the measurement."""
    c = result.config
    defaults = {name: each.default for name, each in parameters(type(c.work)).items()}
    defaults |= Protocol.named(result.protocol.name).model_dump()
    of_this_machine = [*select(is_path=True, identifies=False)]
    values = {}
    for name, value in taken_parameters(result).items():
        about = ABOUT[name]
        has_effect = about.is_for("device", c.device)
        has_effect &= about.is_for("accelerated", c.accelerated)
        has_effect &= about.is_for("input", c.work.input)
        if has_effect and value != defaults[name] and name not in of_this_machine:
            values[name] = value
    return values
