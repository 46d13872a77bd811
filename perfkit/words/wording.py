"""Numbers, names and commands as a reader is to see them."""

import shlex
from collections.abc import Iterable
from math import isfinite
from typing import Any

from perfkit import config
from perfkit.models import MODELS
from perfkit.results.schema import Result
from perfkit.words.language import gettext as _

FRAMEWORK_NAMES = {
    "paddle": "Paddle",
    "oneflow": "OneFlow",
    "tensorflow": "TensorFlow",
    "pytorch": "PyTorch",
    "torch": "PyTorch",
    "jax": "JAX",
    "mxnet": "MXNet",
}


def number(value: float | None, digits: int = 4) -> str:
    """`value` to that many significant digits, trailing zeros kept; a dash for None."""
    if value is None or not isfinite(value):
        return "–" if value is None else str(value)
    if round(abs(value)) >= 10 ** (digits - 1):
        return f"{value:,.0f}" if round(abs(value)) >= 10**digits else f"{value:.0f}"
    return f"{value:#.{digits}g}"


def percent(share: float | None, digits: int = 3) -> str:
    if share is None:
        return "–"
    # Not 1e+02 %: whole percents are all written out.
    return f"{share * 100:.{max(digits, len(f'{abs(share) * 100:.0f}'))}g} %"


def changes(shares: Iterable[float]) -> str:
    """Relative differences with their signs."""
    return ", ".join(f"{'+' if share > 0 else ''}{percent(share, 2)}" for share in shares)


def interval_words(low: float | None, high: float | None, level: float | None, n: int) -> str:
    """An interval with its level and the number of repeats, or that there is none."""
    if low is None:
        return _("no interval (n=1)")
    return f"{number(low)} – {number(high)} ({percent(level, 4)}, n={n})"


def fact_name(name: str) -> str:
    """A fact's key as a reader would write it: `driver_cuda` is "driver CUDA"."""
    spelt = {"cpu": "CPU", "gpu": "GPU", "gpus": "GPUs", "os": "OS", "cuda": "CUDA"}
    spelt |= {"cudnn": "cuDNN", "nccl": "NCCL", "dali": "DALI", "numpy": "NumPy"}
    text = " ".join(spelt.get(word, word) for word in name.split("_"))
    return _(text)


def traits(c: config.Config) -> str:
    """What sets a configuration apart that has the same title, batch, topology and input."""
    usual = {"execution": "dynamic", "strategy": "none", "layout": "NCHW"}
    words = [
        value
        for name, common in usual.items()
        if (value := getattr(c, name)) not in (None, common)
    ]
    words += ["TF32"] if c.tf32 else []
    words += [c.optimizer] if c.optimizer == "lamb" else []
    words += [_("accumulate %(count)d") % {"count": c.accumulate}] if c.accumulate > 1 else []
    words += [f"{c.image_size} px"] if c.image_size not in (None, 224) else []
    if c.sequence_length not in (None, 128):
        words.append(_("%(count)d tokens") % {"count": c.sequence_length})
    return ", ".join(words)


def protocol_name(protocol: config.Protocol) -> str:
    """Its name, and whether it was followed to the letter."""
    changed = config.Protocol.named(protocol.name) != protocol
    return _("%(name)s, changed") % {"name": protocol.name} if changed else protocol.name


def title(result: Result) -> str:
    """The configuration in a few words, with the precision that was really used."""
    c = result.config
    device = "CPU" if c.device == "cpu" else gpu_name(result)
    used = result.effective.precision if result.effective else c.precision
    if used != c.precision:
        used += " ({})".format(_("asked for: %(precision)s") % {"precision": c.precision})
    words = [MODELS[c.model].name, FRAMEWORK_NAMES[c.framework], used, c.topology, device]
    return " · ".join(words)


def gpu_name(result: Result) -> str:
    names = result.fact("gpus")
    return names[0].split(",")[0] if isinstance(names, list) and names else _("unknown GPU")


def environment_in_short(result: Result) -> str:
    """What trained: the GPU or the CPU, and the framework with its version."""
    c = result.config
    cpu = str(result.fact("cpu") or "CPU").split(" (")[0]
    version = result.fact(c.framework) or ""
    device = cpu if c.device == "cpu" else gpu_name(result)
    return f"{device}, {FRAMEWORK_NAMES[c.framework]} {version}".rstrip()


def command(result: Result) -> str:
    """The command that makes this measurement again, whatever the machine would choose."""
    c, p = result.config, result.protocol
    if imported := result.imported:
        logs = [log.file for log in imported.logs]
        options = [word for one in imported.given.items() for word in ("-p", *one)]
        return shlex.join(["perfkit", "import", *logs, *options])
    given: dict[str, Any] = {
        name: getattr(c, name)
        for name, (default, _meaning) in config.parameters().items()
        if name in type(c).model_fields
        and getattr(c, name) != default
        and name not in ("outputs_dir", "gpus", "processes")
    }
    given |= {"processes": c.processes} if c.device == "cpu" else {"gpus": c.gpus}
    given["protocol"] = p.name
    usual = config.Protocol.named(p.name)
    given |= {
        name: getattr(p, name)
        for name in config.PROTOCOL_PARAMETERS[1:]
        if getattr(p, name) != getattr(usual, name)
    }
    return shlex.join(config.run_command(c.model, given))
