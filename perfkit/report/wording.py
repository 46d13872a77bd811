"""Numbers, names and commands as a reader is to see them."""

import shlex
from collections.abc import Iterable
from math import isfinite
from typing import Any

from perfkit import config
from perfkit.diagnosis import Diagnosis, InputAlone, cost_in_turn
from perfkit.models import MODELS
from perfkit.report.language import gettext as _
from perfkit.results import Result

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


def diagnosis_lines(found: Diagnosis, c: config.Config) -> list[str]:
    """A diagnosis in sentences: verdict, figures, what would end it, the parts of a step."""
    unit = MODELS[c.model].unit
    told = {
        "unit": unit,
        "input": c.input,
        "both": number(found.throughput),
        "synthetic": number(found.synthetic),
        "ratio": percent(found.ratio),
        "low": percent(found.interval[0]),
        "high": percent(found.interval[1]),
        "level": percent(found.interval_level, 4),
    }
    verdicts = {
        "training-bound": _("Bound by training: the input costs next to nothing."),
        "undecided": _("Undecided: these repeats do not tell what the input costs."),
        "input-bound": _("Input-bound: training is as fast as the input alone."),
        "mixed": _("Mixed: the input alone is faster than training with it, and still costs."),
    }
    figures = _(
        "Medians: %(both)s %(unit)s with %(input)s, %(synthetic)s with synthetic input. With "
        "it, throughput is %(ratio)s of that without (Hodges-Lehmann; %(level)s interval "
        "%(low)s to %(high)s). The two were measured one after the other: what the machine "
        "drifted between is not in the interval."
    )
    lines = [verdicts[found.verdict], figures % told]
    lines += [_alone(one, unit) for one in found.input_alone]
    in_turn = cost_in_turn(found.synthetic, found.input_alone[0].samples_per_second)
    lines.append(
        _("In turn with training, without any overlap, it would cost %(cost)s.")
        % {"cost": percent(in_turn, 2)}
    )
    return [*lines, *_advice(found, c), _step_parts(found, c)]


def _alone(one: InputAlone, unit: str) -> str:
    told = {
        "setting": one.setting,
        "count": one.count,
        "rate": number(one.samples_per_second),
        "unit": unit,
    }
    return _("The input alone, %(setting)s %(count)d: %(rate)s %(unit)s.") % told


def _advice(found: Diagnosis, c: config.Config) -> list[str]:
    """Which setting would end the limit, where the input is one; or how to decide."""
    if found.verdict == "training-bound":
        return []
    if found.verdict == "undecided":
        return [_("More repeats may decide: -p repeats 10, or a quieter machine.")]
    lines = []
    if enough := found.enough:
        told = {"setting": enough.setting, "count": enough.count, "depth": enough.depth}
        lines.append(
            _("Fast enough for this training is %(setting)s=%(count)d or more.") % told
        )
        if enough.setting == "dali_threads" and enough.depth:
            lines.append(
                _("dali_prefetch=%(depth)d or more covers how uneven its batches come.") % told
            )
    else:
        lines.append(
            _("No setting that was tried is fast enough: it takes more or faster cores.")
        )
    if c.device == "cpu":
        lines.append(_("Input and training share these cores, so that no setting ends it all."))
    return lines


def _step_parts(found: Diagnosis, c: config.Config) -> str:
    parts = found.step_parts
    shares = {
        name: percent(seconds / parts.step, 2)
        for name, seconds in parts.model_dump(exclude_none=True).items()
    }
    told = _(
        "Of a step under the profiler: forward %(forward)s, backward %(backward)s, optimizer "
        "%(optimizer)s;"
    )
    if parts.forward is None or parts.backward is None:
        told = _(
            "Of a step under the profiler: optimizer %(optimizer)s; it does not tell forward "
            "from backward;"
        )
    if c.ranks == 1:
        return f"{told[:-1]}." % shares
    if parts.communication is None:
        rest = _("communication, which it does not tell, is in them.")
    else:
        rest = _("communication %(communication)s, which may overlap the others.")
    return f"{told} {rest}" % shares
