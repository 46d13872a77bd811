"""Several audited logs as a table, on a page and in a terminal."""

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

from perfkit.audit.audit import AuditedLog
from perfkit.measuring.format import number
from perfkit.report.audit_answer import digits_text
from perfkit.report.text.language import gettext as _

DIGITS = 4
SAME_WORK = ("model", "framework", "gpu", "precision", "batch_size", "sequence_length")
"""Facts that are equal in logs of the same work on different numbers of devices."""


class LogRow(NamedTuple):
    """The texts of a log; empty where nothing is known."""

    name: str
    devices: str = ""
    of_all: str = ""
    per_device: str = ""
    unit: str = ""
    seconds_per_step: str = ""
    speed_up: str = ""


class LogTable(NamedTuple):
    """The headings of a table, and a row for each log, without columns that tell nothing."""

    headings: list[str]
    rows: list[list[str]]


def log_table(logs: Sequence[AuditedLog], names: Mapping[str, str]) -> LogTable:
    headings = LogRow(
        name=_("Log"),
        devices=_("Devices"),
        of_all=_("All"),
        per_device=_("Each"),
        unit=_("Unit"),
        seconds_per_step=_("s/step"),
        speed_up=_("Speed-up"),
    )
    speed_ups = _speed_ups(logs)
    rows = [_row(log, names[log.name], speed_ups.get(log.name)) for log in logs]
    columns = [*zip(headings, *rows, strict=True)]
    headings_told, *rows_told = zip(*(each for each in columns if any(each[1:])), strict=True)
    return LogTable([*headings_told], [[*row] for row in rows_told])


def _row(log: AuditedLog, name: str, speed_up: float | None) -> LogRow:
    row = LogRow(name)
    answer = log.answer
    if answer and log.step != "epoch":
        row = row._replace(seconds_per_step=_digits(answer.seconds_per_step))
    if answer and answer.speed:
        row = row._replace(
            devices=str(answer.speed.devices or ""),
            of_all=_digits(answer.speed.of_all),
            per_device=_digits(answer.speed.per_device),
            unit=answer.speed_unit,
            speed_up=number(speed_up, 3) if speed_up else "",
        )
    return row


def _digits(value: float | None) -> str:
    return digits_text(value, DIGITS) if value else ""


def _speed_ups(logs: Sequence[AuditedLog]) -> dict[str, float]:
    """Return, by a log's name, the throughput of all devices over that of the same work on the
    fewest devices; only of work that has logs on different numbers of devices."""
    same_work: dict[Hashable, list[tuple[int, float, str]]] = defaultdict(list)
    for log in logs:
        speed = log.answer.speed if log.answer else None
        if log.answer and speed and speed.of_all and speed.devices:
            work = (log.answer.speed_unit, *map(log.fact, SAME_WORK))
            same_work[work].append((speed.devices, speed.of_all, log.name))
    speed_ups: dict[str, float] = {}
    for scales in same_work.values():
        fewest, of_fewest, _name = min(scales)
        if any(devices > fewest for devices, *_others in scales):
            speed_ups |= {name: of_all / of_fewest for _devices, of_all, name in scales}
    return speed_ups
