"""Several audited logs side by side, as text for a terminal: a table and the verdict on two."""

from collections.abc import Mapping, Sequence

from perfkit.audit.answer import Answer
from perfkit.audit.audit import Audit, AuditedLog
from perfkit.audit.verdicts import LogRatio, Verdict
from perfkit.core.format import number, percent, shortened
from perfkit.report.text.statements import sentence
from perfkit.report.text.terminal import fitted, tabulated

DIGITS = 5
LONGEST_NAME = 60
"""Characters of a log's name, at most: its end tells more than its folder."""
MOST_TRAININGS = 12
"""Trainings of a single file that are shown, at most, unless everything is asked for."""
MOST_DIFFERING = 5
"""Facts in which two logs differ, at most."""


def shortened_name(name: str) -> str:
    """Return the end of a long name."""
    return name if len(name) <= LONGEST_NAME else f"…{name[1 - LONGEST_NAME :]}"


def logs_lines(audit: Audit, names: Mapping[str, str], *, everything: bool) -> list[str]:
    """Return the verdict on two logs, and the table of all."""
    lines = []
    if audit.verdict:
        lines += _verdict(audit, names)
    logs = audit.logs
    of_one_file = len({log.sha256 for log in logs}) == 1
    if of_one_file and not everything:
        logs = logs[:MOST_TRAININGS]
    lines += _table(audit, logs, names)
    if len(logs) < len(audit.logs):
        lines.append(f"and {len(audit.logs) - len(logs)} more trainings")
    return lines + _notes(audit)


def _verdict(audit: Audit, names: Mapping[str, str]) -> list[str]:
    """Return the verdict on two logs with short names, and the facts in which they differ."""
    assert audit.verdict
    lines = fitted(sentence(_with_short_names(audit.verdict, names)))
    for ratio in audit.ratios:
        texts = []
        for fact in ratio.differing[:MOST_DIFFERING]:
            value, base = fact.value or "unknown", fact.base or "unknown"
            texts.append(f"{fact.name} {shortened(base)} and {shortened(value)}")
        if texts:
            lines += fitted(f"They differ in {'; '.join(texts)}.")
    return [*lines, ""]


def _with_short_names(verdict: Verdict, names: Mapping[str, str]) -> Verdict:
    short = {}
    for field in ("log", "base", "few", "unknown"):
        name = getattr(verdict, field, None)
        if name is not None:
            short[field] = shortened_name(names.get(name, name))
    return verdict.model_copy(update=short)


def _table(audit: Audit, logs: Sequence[AuditedLog], names: Mapping[str, str]) -> list[str]:
    """Return a table with a row for each log; columns that tell nothing are left out."""
    ratios = {ratio.log: ratio for ratio in audit.ratios}
    shares = {scaling.log: scaling.share for scaling in audit.scaling}
    units = {log.answer.speed_unit for log in logs if log.answer and log.answer.speed}
    headings = ["log", "unit", "devices", *_speed_headings(units), "s/step", "ratio"]
    headings += [f"{percent(_level(audit))} interval", "of ideal"]
    rows = []
    for log in logs:
        row = [shortened_name(names[log.name]), *_speed_cells(log.answer)]
        row += _ratio_cells(ratios.get(log.name), is_first=log is audit.logs[0])
        row.append(percent(shares[log.name], 3) if log.name in shares else "")
        rows.append(row)
    left_out = {"unit"} if len(units) < 2 else set()
    columns = [*zip(*rows, strict=True)]
    kept = []
    for index, heading in enumerate(headings):
        if any(columns[index]) and heading not in left_out:
            kept.append(index)
    cells = [[row[index] for index in kept] for row in rows]
    return tabulated(cells, [headings[index] for index in kept], ["unit"])


def _speed_headings(units: set[str]) -> list[str]:
    """Return the headings of the throughputs of all devices and of one."""
    unit = units.pop() if len(units) == 1 else "throughput"
    return [unit, "per device"]


def _speed_cells(answer: Answer | None) -> list[str]:
    if not answer:
        return ["", "", "", "", ""]
    unit, devices, of_all, per_device = "", "", "", ""
    speed = answer.speed
    if speed:
        unit = answer.speed_unit
        of_all, per_device = number(speed.of_all, DIGITS), number(speed.per_device, DIGITS)
        if speed.of_all and speed.per_device:
            devices = str(round(speed.of_all / speed.per_device))
    seconds = number(answer.seconds_per_step, DIGITS) if answer.seconds_per_step else ""
    return [unit, devices, of_all, per_device, seconds]


def _ratio_cells(ratio: LogRatio | None, *, is_first: bool) -> list[str]:
    if is_first:
        return ["1", ""]
    if not ratio:
        return ["", ""]
    interval = ""
    if ratio.low and ratio.high:
        interval = f"{number(ratio.low, 4)}–{number(ratio.high, 4)}"
    return [number(ratio.ratio, 4), interval]


def _level(audit: Audit) -> float:
    return audit.ratios[0].level if audit.ratios else 0.95


def _notes(audit: Audit) -> list[str]:
    """Return how the ratios and the shares were computed."""
    lines = []
    if any(ratio.low for ratio in audit.ratios):
        lines += fitted(
            "Ratios are to the first log; their intervals by bootstrap of up to 20 blocks of "
            "consecutive steps in each log. Other runs of the same work may differ by more."
        )
    if audit.scaling:
        lines += fitted(
            "Of ideal: throughput per device over that of the same work on the fewest devices."
        )
    return lines
