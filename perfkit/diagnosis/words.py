"""A diagnosis in sentences."""

from perfkit import config
from perfkit.diagnosis.verdict import Diagnosis, InputAlone, cost_in_turn
from perfkit.models import MODELS
from perfkit.words.language import gettext as _
from perfkit.words.wording import number, percent


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
