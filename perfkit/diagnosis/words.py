"""A diagnosis in sentences."""

from perfkit import config
from perfkit.diagnosis.verdict import Diagnosis, InputAlone, cost_in_turn
from perfkit.models import MODELS
from perfkit.text.format import number, percent
from perfkit.text.language import gettext as _
from perfkit.text.language import gettext_noop

VERDICTS = {
    "input-bound": gettext_noop("input"),
    "training-bound": gettext_noop("training"),
    "mixed": gettext_noop("input and training"),
    "undecided": gettext_noop("undecided"),
}
"""What limits the throughput, by the verdict, in a few words."""


def diagnosis_lines(found: Diagnosis, c: config.Config) -> list[str]:
    """A diagnosis in sentences: verdict, figures, what would help, the parts of a step."""
    unit = MODELS[c.model].unit
    values = {
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
        "training-bound": _("Training-bound: the input costs almost no throughput."),
        "undecided": _("Undecided: these repeats do not show what the input costs."),
        "input-bound": _("Input-bound: training runs at the speed of the input pipeline."),
        "mixed": _("Mixed: the input alone is faster than training, but costs throughput."),
    }
    figures = _(
        "Median throughput: %(both)s %(unit)s with %(input)s, %(synthetic)s %(unit)s with "
        "synthetic input. Ratio: %(ratio)s (Hodges-Lehmann; %(level)s interval %(low)s to "
        "%(high)s). The interval does not cover drift between the two measurements."
    )
    lines = [verdicts[found.verdict], figures % values]
    lines += [_alone(one, unit) for one in found.input_alone]
    in_turn = cost_in_turn(found.synthetic, found.input_alone[0].samples_per_second)
    lines.append(
        _("Without any overlap with training, the input would cost %(cost)s.")
        % {"cost": percent(in_turn, 2)}
    )
    return [*lines, *_advice(found, c), _step_parts(found, c)]


def _alone(one: InputAlone, unit: str) -> str:
    values = {
        "setting": one.setting,
        "count": one.count,
        "rate": number(one.samples_per_second),
        "unit": unit,
    }
    return _("Input pipeline alone, %(setting)s=%(count)d: %(rate)s %(unit)s.") % values


def _advice(found: Diagnosis, c: config.Config) -> list[str]:
    """Which setting would remove the limit if the input is one, or how to decide."""
    if found.verdict == "training-bound":
        return []
    if found.verdict == "undecided":
        return [_("More repeats (-p repeats 10) or a quieter machine may decide.")]
    lines = []
    if enough := found.enough:
        values = {"setting": enough.setting, "count": enough.count, "depth": enough.depth}
        lines.append(
            _("%(setting)s=%(count)d or more is fast enough for this training.") % values
        )
        if enough.setting == "dali_threads" and enough.depth:
            lines.append(
                _("dali_prefetch=%(depth)d or more hides the jitter of the batches.") % values
            )
    else:
        lines.append(_("No setting tried is fast enough; more or faster cores are needed."))
    if c.device == "cpu":
        lines.append(_("Input and training share these cores; no setting removes all cost."))
    return lines


def _step_parts(found: Diagnosis, c: config.Config) -> str:
    parts = found.step_parts
    shares = {
        name: percent(seconds / parts.step, 2)
        for name, seconds in parts.model_dump(exclude_none=True).items()
    }
    text = _(
        "Shares of a profiled step: forward %(forward)s, backward %(backward)s, optimizer "
        "%(optimizer)s;"
    )
    if parts.forward is None or parts.backward is None:
        text = _(
            "Shares of a profiled step: optimizer %(optimizer)s; the profiler does not "
            "separate forward and backward;"
        )
    if c.ranks == 1:
        return f"{text[:-1]}." % shares
    if parts.communication is None:
        rest = _("communication is included, the profiler does not separate it.")
    else:
        rest = _("communication %(communication)s, possibly overlapped with the others.")
    return f"{text} {rest}" % shares
