"""Texts of audits in the current language: statistics, steps and claims."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from perfkit.audit.audit import AuditedLog
from perfkit.audit.claim import Claim, ClaimState, LogNumber, NumberStatistic
from perfkit.audit.claims import Stage
from perfkit.audit.figure import Figure, Period, Statistic, unit_for
from perfkit.audit.quantity import significant_digits
from perfkit.audit.statements import DIGITS
from perfkit.measuring.format import change, number
from perfkit.measuring.statements import N_
from perfkit.report.audit_answer import period_text
from perfkit.report.text.language import enumerated, labelled, ngettext
from perfkit.report.text.language import gettext as _

MOST_MATCHES = 5
"""Numbers of a log with a claim's digits that are shown, at most; the JSON has all."""
LONGEST_NUMBER = 12
"""Characters of a number that a log reports, at most."""
STATES: dict[ClaimState, str] = {
    "reproduced": N_("reproduced"),
    "near": N_("near"),
    "close": N_("not reproduced, but close"),
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
    "answer": N_("the log's answer"),
}
PRINTED: dict[NumberStatistic, str] = {
    "": N_("the log's own “%(name)s”"),
    "first": N_("first printed “%(name)s”"),
    "median": N_("median of printed “%(name)s”"),
    "last": N_("last printed “%(name)s”"),
    "mean": N_("mean of printed “%(name)s”, steps 21–120"),
    "harmonic mean": N_("harmonic mean of printed “%(name)s”, steps 21–120"),
}
OF_DEVICES = {
    "device": N_("%(figure)s of one device"),
    "all": N_("%(figure)s of all devices"),
}
COVERS = {
    "step": N_("the last step"),
    "running": N_("a running mean since step %(step)s"),
    "rolling": N_("a mean over the log's own window"),
    "window": N_("the steps since the last print, from step %(step)s on"),
}


def state_text(claim: Claim) -> str:
    return _(STATES[claim.state])


def claim_counts(claims: Sequence[Claim]) -> list[str]:
    """Return the numbers of claims in each state: 3 reproduced, 1 near."""
    counts = []
    for state, text in STATES.items():
        count = sum(claim.state == state for claim in claims)
        if count:
            counts.append(f"{count} {_(text)}")
    return counts


def stage_text(stage: Stage) -> str:
    return _(STAGES[stage])


def covers_text(log: AuditedLog) -> str:
    """Return the steps that a printed line of a log covers."""
    return _(COVERS[log.covers]) % {"step": log.since}


# Figures.


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


# Claims.


def claim_lines(claim: Claim) -> list[str]:
    """Return the numbers of the log that a claim is, or is close to, and what its log needs to
    have one."""
    digits = max(DIGITS, significant_digits(claim.text))
    texts = [_number_text(match, digits) for match in claim.matches[:MOST_MATCHES]]
    if claim.state == "close":
        texts[0] = _("close to %(figure)s") % {"figure": texts[0]}
    elif claim.closest and claim.matches:
        texts[0] = _("equal to %(figure)s") % {"figure": texts[0]}
    elif claim.closest:
        closest = _("closest: %(figure)s") % {"figure": _number_text(claim.closest, digits)}
        texts.append(enumerated([closest, difference_text(claim.difference)]))
    if len(claim.matches) > MOST_MATCHES:
        more = {"count": len(claim.matches) - MOST_MATCHES}
        texts.append(_("and %(count)s more") % more)
    if claim.needs:
        options = {"options": " ".join(claim.needs)}
        texts.append(_("a number in this quantity needs %(options)s") % options)
    return texts


def _number_text(of_log: LogNumber, digits: int) -> str:
    """Return what a number of a log is, of how many devices, and its value."""
    if of_log.figure:
        text = figure_text(of_log.figure)
    elif of_log.time:
        words = _("median time of %(steps)s")
        if of_log.statistic == "mean":
            words = _("mean time of %(steps)s")
        text = words % {"steps": period_text(of_log.time)}
    else:
        text = _(PRINTED[of_log.statistic]) % {"name": of_log.name}
    if of_log.of:
        text = _(OF_DEVICES[of_log.of]) % {"figure": text}
    value = f"{number(of_log.value, digits)} {of_log.unit}".rstrip()
    return labelled(f"{text} {of_log.conversion}".rstrip(), value)


def reference_text(claim: Claim) -> str:
    """Return the log's answer in the claim's quantity; empty if it is unknown."""
    if claim.reference is None or claim.compared is None:
        return ""
    unit = unit_for(claim.compared.unit, of_all=claim.compared.of != "device")
    return f"{number(claim.reference, DIGITS)} {unit}".rstrip()


def answer_steps(log: AuditedLog) -> str:
    """Return the steps of a log's answer; empty if it is a figure of the whole log."""
    answer = log.answer
    if answer is None or answer.first is None:
        return ""
    return period_text(answer, answer.epochs)


def other_work(claim: Claim, log: AuditedLog) -> str:
    """Return the batch size and precision of a log that differ from those of a published
    number; empty if they agree or are unknown."""
    texts = []
    for name in ("batch_size", "precision"):
        published, of_log = getattr(claim, name), log.fact(name)
        if None not in (published, of_log) and published != of_log:
            texts.append(f"{name} {of_log}")
    return _("the log has %(facts)s") % {"facts": enumerated(texts)} if texts else ""


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
