"""Names of results, devices and configurations, and commands, as text."""

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from perfkit.core import config
from perfkit.core.command import run_command
from perfkit.core.format import (  # noqa: F401 (templates look them up here)
    change,
    changes,
    counted,
    interval,
    minute,
    number,
    one_line,
    percent,
    shortened,
    spread,
)
from perfkit.core.frameworks import DISPLAY_NAMES
from perfkit.core.models import model_named, model_of
from perfkit.core.results.schema import Result
from perfkit.core.statistics import median
from perfkit.report.text.language import gettext as _

SPELLINGS = {
    word.lower(): word
    for word in ("CPU", "GPU", "GPUs", "OS", "CUDA", "cuDNN", "NCCL", "DALI", "NumPy")
}


def peak_share(shares: Sequence[float | None]) -> str:
    """Return the median share of the measured peak, or "unreliable" if any repeat exceeds
    100 %."""
    known = [share for share in shares if share is not None]
    if max(known, default=0) > 1:
        return _("unreliable, over 100 %")
    return percent(median(known) if known else None)


def interval_words(low: float | None, high: float | None, level: float | None, n: int) -> str:
    """Return an interval with its level and the number of repeats, or "no interval"."""
    if low is None:
        return _("no interval (n=1)")
    return f"{interval(low, high)} ({percent(level, 4)}, n={n})"


def stored_value(value: Any) -> str:
    """Return a stored value as text, by its type; empty for None."""
    text = "" if value is None else str(value)
    match value:
        case bool():
            text = _("yes") if value else _("no")
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


def fact_name(name: str) -> str:
    """Return the name of a fact of the environment: "driver CUDA" for `driver_cuda`."""
    return _(" ".join(SPELLINGS.get(word, word) for word in name.split("_")))


def column_value(column: str, value: Any) -> str:
    """Return a value of a column of `perfkit.load`, with the column's name where the value
    alone is unclear."""
    if column in ("environment.gpus", "environment.cpu"):
        return counted(part.split(",")[0] for part in str(value).split("; "))
    kind, _dot, name = column.rpartition(".")
    heading = fact_name(name) if kind == "environment" else column.replace(".", " ")
    return f"{heading} {shortened(value, 12 if name.endswith('commit') else 40)}"


def device_name(row: Mapping[str, Any]) -> str:
    """Return the GPU or CPU in a row of `perfkit.load`; for other devices, their type."""
    if row["device"] not in ("cpu", "gpu"):
        return str(row["device"]).upper()
    gpu = row["device"] == "gpu"
    known = row.get("environment.gpus" if gpu else "environment.cpu")
    name = stored_value(known) if known else _("unknown GPU") if gpu else "CPU"
    return re.split(r"[,;]" if gpu else r",| \(", one_line(name))[0]


def device(result: Result) -> str:
    """Return the name of the GPU or CPU that trained."""
    facts = {f"environment.{name}": result.fact(name) for name in ("gpus", "cpu")}
    return device_name({"device": result.config.device} | facts)


def traits(row: Mapping[str, Any]) -> dict[str, str]:
    """Return column -> text of the parameters in a row of `perfkit.load` that differ from the
    default, apart from model, framework, precision, batch size, topology and input."""
    usual = (None, "dynamic", "none", "NCHW", "momentum", "adamw")
    named = {name: row[name] for name in ("execution", "strategy", "layout", "optimizer")}
    words = {name: str(value) for name, value in named.items() if value not in usual}
    words |= {"tf32": "TF32"} if row["tf32"] else {}
    if row["accumulate"] > 1:
        words["accumulate"] = _("accumulate %(count)d") % {"count": row["accumulate"]}
    model, length = model_named(row["model"]), row["sequence_length"]
    if row["image_size"] not in (None, model.default_image_size):
        words["image_size"] = f"{row['image_size']} px"
    if length not in (None, model.default_sequence_length):
        words["sequence_length"] = _("%(count)d tokens") % {"count": length}
    return words


def protocol_name(protocol: config.Protocol) -> str:
    """Return the protocol's name, marked if any of its values was changed."""
    changed = config.Protocol.named(protocol.name) != protocol
    return _("%(name)s, changed") % {"name": protocol.name} if changed else protocol.name


def precision(result: Result) -> str:
    """Return the effective precision, with the requested precision if that differs."""
    requested = result.config.precision
    used = result.effective.precision if result.effective else requested
    if used == requested:
        return used
    return f"{used} ({_('requested: %(precision)s') % {'precision': requested}})"


def title(result: Result) -> str:
    """Return the configuration in a few words: "ResNet-50 · PyTorch · fp32 · batch 4"."""
    c, known = result.config, result.parameters | {"model": result.config.model}
    batch = _("batch %(size)s") % {"size": c.batch_size}
    words = [model_of(c).short_name, DISPLAY_NAMES[c.framework], precision(result), batch]
    words += [c.topology if c.ranks > 1 else "", c.input, *traits(known).values(), c.label]
    return " · ".join(filter(None, words))


def variant_name(side: Any) -> str:
    """Return the name of a variant of an interleaved comparison: "PyTorch" for framework=torch,
    "MXNet (.venv-mxnet)" with an interpreter of its own; other variants as typed."""
    values = dict(side.values)
    framework = DISPLAY_NAMES.get(str(values.pop("framework", None)))
    python = values.pop("python", None)
    if not framework or values:
        return str(side.name)
    return f"{framework} ({python.removesuffix('/bin/python')})" if python else framework


def variant_names(comparison: Any) -> str:
    """Return the names of all variants of an interleaved comparison."""
    return " · ".join(map(variant_name, comparison.variants))


def framework_version(result: Result) -> str:
    framework = result.config.framework
    return f"{DISPLAY_NAMES[framework]} {result.fact(framework) or ''}".rstrip()


def command(result: Result) -> str:
    """Return the command that repeats the measurement with the same settings on any machine."""
    return shlex.join(run_command(result.config.model, requested(result)))


def requested(result: Result) -> dict[str, Any]:
    """Return the parameters that a request on any machine needs to repeat the measurement."""
    c = result.config
    usual = {name: default for name, (default, _meaning) in config.parameters().items()}
    usual |= config.Protocol.named(result.protocol.name).model_dump()
    unused = [*config.select(is_path=True, identifies=False)]
    facts = {"device": c.device, "accelerated": c.accelerated}
    return {
        name: value
        for name, value in result.parameters.items()
        if value != usual[name]
        and name not in unused
        and all(config.ABOUT[name].is_for(*fact) for fact in facts.items())
    }
