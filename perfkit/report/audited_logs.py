"""Texts about several audited logs in the current language: a row for each, the verdict on two,
and how both were computed."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from perfkit.audit.audit import Audit, AuditedLog
from perfkit.audit.verdicts import LogRatio, Verdict
from perfkit.core.format import percent, shortened
from perfkit.core.results.store import RESULT
from perfkit.report.audit_answer import digits_text
from perfkit.report.text.language import gettext as _
from perfkit.report.text.statements import sentence

DIGITS = 4
LONGEST_NAME = 60
"""Characters of a log's name in a sentence, at most."""
MOST_DIFFERING = 5
"""Facts in which two logs differ, at most."""


def without_middle(text: str, longest: int = LONGEST_NAME) -> str:
    """Return the beginning and the end of a text that is longer."""
    if len(text) <= longest:
        return text
    end = longest // 2
    return f"{text[: longest - end - 1]}…{text[-end:]}"


def base_names(logs: Sequence[AuditedLog], names: Mapping[str, str]) -> dict[str, str]:
    """Return the names of logs without their folders, or their short names where several files
    have the same name; of several measurements those of their folders."""
    without_folder = {log.name: Path(log.name).name for log in logs}
    all_names = [*without_folder.values()]
    for name, base_name in without_folder.items():
        if all_names.count(base_name) > 1:
            without_folder[name] = names[name].removesuffix(f"/{RESULT}")
    return without_folder


# A row for each log.


class LogRow(NamedTuple):
    """The texts of a log in the table; empty where there is nothing to tell."""

    unit: str = ""
    devices: str = ""
    of_all: str = ""
    per_device: str = ""
    seconds_per_step: str = ""
    ratio: str = ""
    interval: str = ""
    share_of_ideal: str = ""


class LogTable(NamedTuple):
    """The headings of a table of logs, and a row for each; columns that tell nothing are left
    out."""

    headings: list[str]
    rows: list[list[str]]


def log_table(audit: Audit, logs: Sequence[AuditedLog]) -> LogTable:
    rows = [_row(audit, log) for log in logs]
    units = {row.unit for row in rows if row.of_all or row.per_device}
    is_one_unit = len(units) == 1
    unit = (units.pop() if is_one_unit else "") or _("throughput")
    has_whole = any(row.of_all for row in rows)
    level = audit.ratios[0].level if audit.ratios else 0.0
    headings = LogRow(
        unit=_("unit"),
        devices=_("devices"),
        of_all=unit,
        per_device=_("each") if has_whole else _("%(unit)s each") % {"unit": unit},
        seconds_per_step=_("s/step"),
        ratio=_("ratio"),
        interval=_("%(level)s interval") % {"level": percent(level)},
        share_of_ideal=_("of ideal"),
    )
    if is_one_unit:
        rows = [row._replace(unit="") for row in rows]
    kept = [index for index, column in enumerate(zip(*rows, strict=True)) if any(column)]
    cells = []
    for row in rows:
        cells.append([row[index] for index in kept])
    return LogTable([headings[index] for index in kept], cells)


def _row(audit: Audit, log: AuditedLog) -> LogRow:
    answer = log.answer
    if not answer:
        return LogRow()
    row = LogRow()
    if log.step != "epoch":
        row = LogRow(seconds_per_step=_digits(answer.seconds_per_step))
    speed = answer.speed
    if speed:
        row = row._replace(
            unit=answer.speed_unit,
            devices=str(speed.devices or ""),
            of_all=_digits(speed.of_all),
            per_device=_digits(speed.per_device),
        )
    for ratio in audit.ratios:
        if ratio.log == log.name:
            row = row._replace(ratio=_digits(ratio.ratio), interval=_interval(ratio))
    for scaling in audit.scaling:
        if scaling.log == log.name:
            row = row._replace(share_of_ideal=percent(scaling.share, 3))
    if audit.ratios and log is audit.logs[0]:
        row = row._replace(ratio="1")
    return row


def _digits(value: float | None) -> str:
    return digits_text(value, DIGITS) if value else ""


def _interval(ratio: LogRatio) -> str:
    if not ratio.low or not ratio.high:
        return ""
    return f"{_digits(ratio.low)}–{_digits(ratio.high)}"


def table_notes(audit: Audit) -> Iterator[str]:
    """Yield how ratios and shares were computed."""
    if any(ratio.low for ratio in audit.ratios):
        yield _(
            "Ratios are to the first log; their intervals by bootstrap of up to 20 blocks of "
            "consecutive steps in each log. Other runs of the same work may differ by more."
        )
    if audit.scaling:
        yield _(
            "Of ideal: throughput per device over that of the same work on the fewest devices."
        )


# Two logs.


def verdict_texts(audit: Audit, names: Mapping[str, str]) -> Iterator[str]:
    """Yield the verdict on two logs with their names, and the facts in which they differ."""
    if not audit.verdict:
        return
    yield sentence(_with_names(audit.verdict, names))
    for ratio in audit.ratios:
        texts = []
        for fact in ratio.differing[:MOST_DIFFERING]:
            values = {
                "name": fact.name,
                "base": shortened(fact.base or _("unknown")),
                "value": shortened(fact.value or _("unknown")),
            }
            texts.append(_("%(name)s %(base)s and %(value)s") % values)
        if texts:
            yield _("They differ in %(facts)s.") % {"facts": "; ".join(texts)}


def _with_names(verdict: Verdict, names: Mapping[str, str]) -> Verdict:
    changed = {}
    for field in ("log", "base", "few", "unknown"):
        name = getattr(verdict, field, None)
        if name is not None:
            changed[field] = without_middle(names.get(name, name))
    return verdict.model_copy(update=changed)
