"""A diagnosis as a section of its measurement's page and of the terminal, and the command for
one."""

import shlex

from perfkit.analysis.diagnosis import Diagnosis, Limit
from perfkit.measuring.command import run_command
from perfkit.measuring.config import Config
from perfkit.measuring.format import number, percent, plain
from perfkit.measuring.results.schema import Result
from perfkit.measuring.statements import N_
from perfkit.report.blocks import Inline
from perfkit.report.elements import bullets, code, joined, strong
from perfkit.report.section import Section
from perfkit.report.text import names
from perfkit.report.text.language import gettext as _

LIMITED_BY: dict[Limit, str] = {
    "input-bound": N_("input"),
    "training-bound": N_("training"),
    "undecided": N_("can't tell"),
}
"""Verdict -> what limits the throughput."""
ANSWERS: dict[Limit, str] = {
    "input-bound": N_("The input limits: alone, it is no faster than the training."),
    "training-bound": N_("The training limits: it hardly waits for data."),
    "undecided": N_("Can't tell: the training waits for data, but the input alone is faster."),
}
NOT_INTERLEAVED = ("input", "label", "repeats", "interval_target", "budget")
"""Parameters of a measurement that the comparison with synthetic input sets itself."""


def diagnosis_section(diagnosis: Diagnosis, result: Result) -> Section:
    """Return the answer, its two numbers, and the command for an exact one."""
    unit = plain(result.counts.unit)
    wait = _("Data wait: up to %(share)s of a window")
    alone = _("Input alone: %(alone)s %(unit)s, %(speed)s times the training's %(training)s")
    speeds = {
        "alone": number(diagnosis.input_alone),
        "unit": unit,
        "speed": number(diagnosis.speed, 3),
        "training": number(diagnosis.training),
    }
    share = {"share": percent(diagnosis.data_wait_share, 2)}
    lines: list[Inline] = [strong(_(ANSWERS[diagnosis.verdict])), wait % share, alone % speeds]
    exact = exact_command(result)
    if exact:
        lines.append(joined([_("Exactly, by interleaved repeats:"), code(exact)]))
    return bullets(lines)


def exact_command(result: Result) -> str:
    """Return the command that compares the measurement's input with synthetic input; empty for
    a script, which has none that perfkit knows."""
    work = result.work
    if work.input is None:
        return ""
    values = names.requested(result)
    shared = {name: values[name] for name in values if name not in NOT_INTERLEAVED}
    _perfkit, _run, model, *options = run_command(work.name, shared)
    variants = [f"input={work.input}", "input=synthetic"]
    return shlex.join(["perfkit", "compare", "--live", model, *variants, *options])


def obstacle(result: Result) -> Inline:
    """Return why a measurement can't be diagnosed, and what to change; empty if nothing is in
    the way."""
    if result.config.nodes > 1:
        return _("A diagnosis needs a single node.")
    if result.input == "synthetic":
        return _("Synthetic input takes no time, so there is nothing to diagnose.")
    if result.data_wait_share is None:
        advice = _("To diagnose it, read its batches through the timer and measure again:")
        return joined([advice, code("for batch in timer.batches(loader):")])
    return ""


def diagnose_command(result: Result) -> str:
    """Return the command that diagnoses the measurement by the repeats in its folder."""
    places = {}
    if result.config.outputs_dir != Config.model_fields["outputs_dir"].default:
        places["outputs_dir"] = result.config.outputs_dir
    return names.command(result, **places).replace("perfkit run", "perfkit diagnose", 1)
