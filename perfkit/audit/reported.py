"""Figures that logs report as their own results, found by patterns of formats.toml."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from perfkit.audit.formats import REPORTED
from perfkit.audit.log import ReportedFigure
from perfkit.audit.numbers import number_or_nan

NAME_CHARACTERS = 100
"""Longest name or text kept of a reported figure, which is untrusted."""
RATE = re.compile(
    r"ips$|throughput|(?<!steps_)(?<!tokens_)per_sec|samples/s|^samples / time"
    r"|(img|image|frame|item|token)s?/s|^data\.rate",
    re.I,
)
"""Names of figures in samples per second."""
NO_TRAINING = re.compile(r"^val[._]|_val$|^infer|^eval|^test[._]|test=eval")
RANKS = re.compile(r" {1,11}(\d{1,9}) {1,11}")
"""First cell of a closing table's row: the number of devices."""
CLOSING_TABLES = ("train.ips", "train.total_ips")
"""Titles of the closing tables of NVIDIA's MXNet benchmark."""
MOST_ROWS = 100
"""Rows read of a closing table."""
MOST_FIGURES = 10_000
"""Figures read of a log, which is untrusted."""
Lines = Sequence[tuple[int, str]]


def figure(name: str, value: Any, line: int, ranks: int | None = None) -> ReportedFigure:
    """Return a reported figure; its value is nan if `value` is not a number."""
    text = str(value)
    return ReportedFigure(
        name=name[:NAME_CHARACTERS],
        value=number_or_nan(text),
        text=text[:NAME_CHARACTERS],
        line=line,
        is_rate=bool(RATE.search(name[-NAME_CHARACTERS:])),
        ranks=ranks,
    )


def reported_figures(lines: Lines) -> Iterator[ReportedFigure]:
    """Yield the figures in lines, except validation results, and those in closing tables."""
    for index, (number, line) in enumerate(lines):
        yield from _figures_in(line, number)
        if line.strip() in CLOSING_TABLES:
            table = lines[index + 1 : index + 3 + MOST_ROWS]
            yield from _closing_table(line.strip(), table)


def _figures_in(line: str, number: int) -> Iterator[ReportedFigure]:
    for key, head, pattern in REPORTED:
        begin = head.search(line) if key in line else None
        if not begin:
            continue
        where = begin.groupdict().get("where") or ""
        for match in pattern.finditer(line, begin.end()):
            if not NO_TRAINING.search(match["name"]):
                yield figure(f"{where} {match['name']}".strip(), match["value"], number)


def _closing_table(title: str, table: Lines) -> Iterator[ReportedFigure]:
    """Yield the rates of a table with a row per device count and a column per batch size:

         |    96   |   128   |
    -------------------------
      1  |  390.5  |  412.5  |
      8  | 2990.5  | 3120.5  |
    """
    if not table:
        return
    (_number, heading), *rows = table
    batch_sizes = re.findall(r"\d{1,9}", heading)
    for number, row in rows[1:]:
        left, _bar, cells = row.partition("|")
        count, rates = RANKS.fullmatch(left), cells.replace("|", " ").split()
        if not count or not rates:
            return
        for batch_size, rate in zip(batch_sizes, rates, strict=False):
            name = f"closing table {title}"
            if len(batch_sizes) > 1:
                name += f", {batch_size}"
            yield figure(name, rate, number, int(count[1]))
