"""The facts that tell measurements apart which read alike in a list."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

from perfkit.analysis.comparison.keys import HARDWARE
from perfkit.analysis.script_arguments import telling_apart
from perfkit.measuring.format import plain
from perfkit.measuring.parameters import ABOUT
from perfkit.measuring.results.identity import NOT_IDENTITY
from perfkit.report.text.wording import column_value

Row = Mapping[str, Any]
"""A row of `perfkit.load`."""
MOST_FACTS = 3
"""Facts that are told of a row, at most."""
PARAMETERS = [name for name, about in ABOUT.items() if about.identifies]
FIRST = ["python", "script", "arguments", "script_sha256", "input_sha256", *PARAMETERS]
FIRST += [f"environment.{fact}" for fact in HARDWARE]
LAST = [f"environment.{fact}" for fact in NOT_IDENTITY]
"""FIRST and LAST: columns whose differences are told before and after those of other facts."""


def distinctions(
    rows: Iterable[Row], appearance: Callable[[Row], Hashable]
) -> dict[str, list[str]]:
    """Return folder -> facts in words, for the rows whose `appearance` others share: as few as
    tell them apart, and at most MOST_FACTS."""
    alike: dict[Hashable, list[Row]] = {}
    for row in rows:
        alike.setdefault(appearance(row), []).append(row)
    told: dict[str, list[str]] = {}
    for group in alike.values():
        columns = _telling_columns(group) if len(group) > 1 else []
        for column in columns:
            _tell(told, group, column)
    return told


def _telling_columns(rows: Sequence[Row]) -> list[str]:
    """Return the first columns that tell these rows apart."""
    columns: list[str] = []
    seen = 1
    for column in _ordered(rows[0]):
        values = {tuple(row.get(name) for name in [*columns, column]) for row in rows}
        if len(values) > seen:
            seen = len(values)
            columns.append(column)
        if seen == len(rows) or len(columns) == MOST_FACTS:
            break
    return columns


def _ordered(row: Row) -> list[str]:
    """Return the columns that may tell rows apart, in the order in which they are tried."""
    facts = [column for column in row if column.startswith("environment.")]
    between = [column for column in facts if column not in {*FIRST, *LAST}]
    return [column for column in [*FIRST, *between, *LAST] if column in row]


def _tell(
    told: dict[str, list[str]],
    rows: Sequence[Row],
    column: str,
) -> None:
    """Add to `told` each row's value of a column in words, if it has one."""
    values = {row["folder"]: plain(str(row[column])) for row in rows if row[column] is not None}
    texts = telling_apart(values.values())
    for folder, value in values.items():
        words = column_value(column, texts[value])
        told.setdefault(folder, []).append(words)
