"""Several audited logs as a table, on a page and in a terminal."""

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence

from perfkit.audit.audit import AuditedLog
from perfkit.measuring.format import number
from perfkit.report.audit_answer import digits_text
from perfkit.report.elements import table
from perfkit.report.section import Section
from perfkit.report.text.language import gettext as _

DIGITS = 4
SAME_WORK = ("model", "framework", "gpu", "precision", "batch_size", "sequence_length")
"""Facts that are equal in logs of the same work on different numbers of devices."""


def log_table(logs: Sequence[AuditedLog], names: Mapping[str, str]) -> Section:
    """Return a table with a row for each log."""
    speed_ups = _speed_ups(logs)
    rows = [_row(log, names[log.name], speed_ups.get(log.name)) for log in logs]
    headings = [_("Log"), _("Devices"), _("All"), _("Each"), _("Unit"), _("s/step")]
    return table(rows, [*headings, _("Speed-up")], as_cards=True)


def _row(log: AuditedLog, name: str, speed_up: float | None) -> list[str]:
    """Return the cells of a log; empty where nothing is known."""
    answer = log.answer
    seconds = answer.seconds_per_step if answer and log.step != "epoch" else None
    cells = [""] * 4
    if answer and answer.speed:
        speed = answer.speed
        rates = [_digits(speed.of_all), _digits(speed.per_device)]
        cells = [str(speed.devices or ""), *rates, answer.speed_unit]
    return [name, *cells, _digits(seconds), number(speed_up, 3) if speed_up else ""]


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
