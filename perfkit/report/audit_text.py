"""Texts of audits in the current language: statistics, steps and claims."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from perfkit.audit.audit import AuditedLog, Claim, ClaimState, Explanation, Stage
from perfkit.audit.claims import FEWEST_TRIED
from perfkit.audit.figure import Figure, Period, Statistic
from perfkit.audit.quantity import LogQuantity, unit_text
from perfkit.audit.statements import DIGITS, ByChance
from perfkit.core.format import change, number, percent
from perfkit.core.statements import N_
from perfkit.report.text.language import enumerated, labelled, ngettext
from perfkit.report.text.language import gettext as _
from perfkit.report.text.statements import sentence

MOST_EXPLANATIONS = 5
"""Explanations of a number that are shown, at most; the JSON has all."""
LONGEST_NUMBER = 12
"""Characters of a number that a log reports, at most."""
STATES: dict[ClaimState, str] = {
    "reproduced": N_("reproduced"),
    "near": N_("near"),
    "one line": N_("printed by a single line"),
    "printed otherwise": N_("printed, not recomputed"),
    "not reproduced": N_("not reproduced"),
    "no number": N_("no number in the log"),
    "no log": N_("no log"),
}
STATISTICS: dict[Statistic, str] = {
    "reported": N_("the log's own “%(name)s”"),
    "samples/time": N_("samples / time"),
    "clock": N_("samples / time by the lines' timestamps"),
    "mean of rates": N_("mean of printed rates"),
    "harmonic mean": N_("harmonic mean of printed rates"),
    "median": N_("median of printed rates"),
    "last print": N_("last printed rate"),
    "first print": N_("first printed rate"),
    "maximum": N_("highest printed rate"),
    "mean after skipping": N_("mean of printed rates without the first %(skipped)d"),
    "median step": N_("samples / median step time"),
    "median step by clock": N_("samples / median step time by the lines' timestamps"),
}
OF_ONE_LINE = ("last print", "first print", "maximum")
PERIODS: dict[Period | None, str] = {
    "warm": N_("without the warm-up"),
    "steady": N_("steady"),
}
"""Periods that the steps alone do not tell."""
STAGES: dict[Stage, str] = {
    "claimed": N_("published"),
    "explained": N_("the statistic that explains it"),
    "protocol": N_("samples / time, protocol's steps"),
    "steady": N_("samples / time, steady steps"),
}
COVERS = {
    "step": N_("the last step"),
    "running": N_("a running mean since step %(step)s"),
    "rolling": N_("a mean over the log's own window"),
    "window": N_("the steps since the last print, from step %(step)s on"),
}


def state_text(claim: Claim) -> str:
    """Return the state of a claim, whether its digits were truncated, and how many such matches
    chance gives if that is no small number."""
    state = _(STATES[claim.state])
    if claim.explanations and claim.explanations[0].truncated:
        state = _("%(state)s, truncated") % {"state": state}
    if _is_by_chance(claim):
        words = _("%(state)s, but %(chance)s such matches are expected by chance")
        return words % {"state": state, "chance": number(claim.chance, 2)}
    return state


def _is_by_chance(claim: Claim) -> bool:
    """Return whether a claim is reproduced, but perhaps by chance."""
    findings = [located.finding for located in claim.findings]
    is_weak = any(isinstance(finding, ByChance) for finding in findings)
    return claim.state == "reproduced" and is_weak


def claim_counts(claims: Sequence[Claim]) -> list[str]:
    """Return the numbers of claims in each state: 3 reproduced (1 perhaps by chance), 1
    near."""
    counts = []
    for state, text in STATES.items():
        of_state = [claim for claim in claims if claim.state == state]
        if not of_state:
            continue
        count = f"{len(of_state)} {_(text)}"
        by_chance = sum(map(_is_by_chance, of_state))
        if by_chance:
            words = _("%(count)s (%(by_chance)s perhaps by chance)")
            count = words % {"count": count, "by_chance": by_chance}
        counts.append(count)
    return counts


def stage_text(stage: Stage) -> str:
    return _(STAGES[stage])


def covers_text(log: AuditedLog) -> str:
    """Return the steps that a printed line of a log covers."""
    return _(COVERS[log.covers]) % {"step": log.since}


# Figures.


class FigureRow(NamedTuple):
    """The texts of a figure in a table."""

    statistic: str
    steps: str
    all_devices: str
    one_device: str


def figure_rows(log: AuditedLog) -> list[FigureRow]:
    rows = []
    for figure in log.figures:
        throughput, per_device = number(figure.throughput, 7), number(figure.per_device, 7)
        rows.append(FigureRow(method_text(figure), steps_text(figure), throughput, per_device))
    return rows


def method_text(figure: Figure) -> str:
    """Return the statistic that a figure is."""
    return _(STATISTICS[figure.statistic]) % {"name": figure.name, "skipped": figure.skipped}


def steps_text(figure: Figure) -> str:
    """Return the steps that a figure covers, or its line in the log."""
    if figure.statistic == "reported":
        return _("line %(line)d") % {"line": figure.line}
    if figure.statistic in OF_ONE_LINE:
        return _("one line")
    count = {"prints": figure.prints}
    lines = ngettext("%(prints)d line", "%(prints)d lines", figure.prints) % count
    if figure.first is None or figure.last is None:
        return lines
    if figure.prints == figure.steps < figure.last - figure.first + 1:
        # Each line is of one step, and steps between them are not printed.
        words = ngettext("%(prints)d printed step", "%(prints)d printed steps", figure.prints)
        lines = words % count
    steps = _("steps %(first)d–%(last)d") % figure.ends()
    if figure.epochs > 1:
        ends = figure.ends() | {"epochs": figure.epochs}
        steps = _("steps %(first)d–%(last)d of %(epochs)d epochs") % ends
    if figure.period in PERIODS:
        return enumerated([steps, _(PERIODS[figure.period]), lines])
    return enumerated([steps, lines])


def figure_text(figure: Figure) -> str:
    return f"{method_text(figure)} ({steps_text(figure)})"


def difference_text(share: float | None) -> str:
    """Return a relative difference in percent; empty if there is none."""
    return "" if share is None else change(share, 3)


def wait_text(figure: Figure | None) -> str:
    """Return the share of data wait in the steps of a figure."""
    return percent(figure.wait_share if figure else None, 2)


# Claims.


def explanation_text(explanation: Explanation) -> str:
    figure = figure_text(explanation.figure)
    if explanation.devices is None:
        return figure
    if explanation.devices == 1:
        return _("%(figure)s of one device") % {"figure": figure}
    of_devices = {"figure": figure, "devices": explanation.devices}
    return _("%(figure)s of one device × %(devices)d") % of_devices


def explained_value(claim: Claim, explanation: Explanation) -> str:
    """Return an explanation's value to the claim's digits or, if these differ from the claim,
    with the bounds of the log's rounding."""
    _whole, _point, decimals = claim.text.partition(".")
    is_scientific = "e" in claim.text.lower()
    digits = 0 if is_scientific else len(decimals)
    value = f"{explanation.value:.{digits}f}"
    if float(value) == claim.value:
        return value
    if explanation.truncated:
        return number(explanation.value, 8)
    error = explanation.figure.rounding * explanation.value
    return f"{number(explanation.value, 8)} ± {number(error, 2)}"


def explanation_lines(claim: Claim, mark: str = "") -> list[str]:
    """Return the first figures that equal a claim, each after a `mark`, how many more there
    are, and how many of many figures are expected by chance; nothing for an unexplained
    claim."""
    texts = []
    for explanation in claim.explanations:
        value = f"{explained_value(claim, explanation)} {claim.unit}".rstrip()
        texts.append(labelled(explanation_text(explanation), value))
    for quantity in claim.quantities:
        value = quantity_value(quantity, claim)
        texts.append(labelled(quantity_text(quantity), value))
    if not texts:
        return []
    lines = [f"{mark}{text}" for text in texts[:MOST_EXPLANATIONS]]
    more = len(texts) - MOST_EXPLANATIONS
    if more > 0:
        lines.append(_("and %(count)s more") % {"count": more})
    if claim.tried < FEWEST_TRIED:
        return lines
    chance = _(
        "%(tried)d figures tried, not all listed; %(chance)s equally simple ones are expected "
        "to match by chance"
    )
    lines.append(chance % {"tried": claim.tried, "chance": number(claim.chance, 2)})
    return lines


def closest_text(claim: Claim) -> str:
    """Return the number of the log closest to an unexplained claim, and their difference; empty
    for an explained one."""
    if claim.explanations or claim.quantities:
        return ""
    difference = difference_text(claim.difference)
    if claim.closest_quantity:
        closest = quantity_text(claim.closest_quantity)
        value = quantity_value(claim.closest_quantity, claim)
    elif claim.closest:
        closest = figure_text(claim.closest)
        value = rate_text(claim, claim.closest, of_all=bool(claim.closest.throughput))
    else:
        return ""
    text = _("closest: %(figure)s") % {"figure": closest}
    return labelled(text, f"{value}, {difference}")


def rate_text(claim: Claim, figure: Figure, *, of_all: bool) -> str:
    """Return the throughput of all devices or of one that a figure has, with its unit."""
    value = number(figure.rate(of_all=of_all), DIGITS)
    return f"{value} {claim.unit_of(of_all=of_all)}".rstrip()


def quantity_text(quantity: LogQuantity) -> str:
    """Return what a number of a log in a claimed quantity is, and of how many devices."""
    if quantity.figure:
        text = figure_text(quantity.figure)
    else:
        assert quantity.basis
        text = sentence(quantity.basis)
    if quantity.of == "device":
        text = _("%(figure)s of one device") % {"figure": text}
    elif quantity.of == "all":
        text = _("%(figure)s of all devices") % {"figure": text}
    if quantity.conversion:
        return f"{text} {sentence(quantity.conversion)}"
    return text


def quantity_value(quantity: LogQuantity, claim: Claim) -> str:
    """Return the value of a claimed quantity with its unit."""
    unit = unit_text(claim.quantity, claim.text)
    return f"{number(quantity.value, DIGITS)} {unit}"


def reported_text(text: str) -> str:
    """Return a figure that a log reports, with six digits if it is a number with many more."""
    if len(text) <= LONGEST_NUMBER:
        return text
    try:
        return f"{float(text):.{DIGITS}g}"
    except ValueError:
        return text


# Logs.


def short_names(logs: Iterable[AuditedLog]) -> dict[str, str]:
    """Return logs' short names: their paths in the common folder."""
    paths = {log.name: Path(log.name).absolute() for log in logs}
    if not paths:
        return {}
    common = os.path.commonpath([path.parent for path in paths.values()])
    return {name: os.path.relpath(path, common) for name, path in paths.items()}
