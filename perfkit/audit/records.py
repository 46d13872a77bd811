"""Files of records, by the `record` formats of formats.toml: JSON lines, a table with a row per
log line, or a JSON object with a list of records.

A record with all required fields is a print: it has a step and a time. Other records may have
figures that the log reports.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from perfkit.audit.config_facts import Facts
from perfkit.audit.documents import MOST_FIGURES, figure
from perfkit.audit.formats import RECORDS, Semantics, semantics_of
from perfkit.audit.log import Log, LogError, ReportedFigure, prints_of, windows_of
from perfkit.audit.numbers import seconds
from perfkit.audit.rows import NumberedRow, heading_of, is_json, json_records, table_rows
from perfkit.audit.statements import LaggingMeans, Note
from perfkit.core.statistics import median

HEAD = 2000
"""Records searched for a known format before all are."""
MOST_STEPS = 2**40
"""Step numbers from here on are not steps."""
LARGEST_FACT = 2**40
RANK_SUFFIX = re.compile(r":\d{1,6}$")
"""End of a figure's name that numbers the devices of a node: throughput:3."""
LONGEST_NUMBER = 60
"""Characters of a number or a duration."""
LEADING_DIGITS = re.compile(r"\d{1,15}")
SINCE_START = ("mean_rate", "mean_seconds", "elapsed")
"""Columns with the time since the start of the training, the most exact first."""
Columns = dict[str, list[float | None]]


@dataclass(frozen=True)
class RecordFormat:
    """A format of records.

    `required` are the fields of each print. `columns` names, for a column of a print, the
    fields that may hold it, of which the first present one counts; `constants` are columns with
    the same value in each print. `figures` matches the fields with figures that the log
    reports. `each` says what a record is if every record has figures of its own, such as a
    node; the median over them is taken. `units` are those of figures, by a pattern of their
    names. `facts` names the fields with the configuration. `unit` is that of all rates, and
    `unit_field` the field that tells it, if all prints agree in one that is known.
    `lacks` is the reason why the file can't be read. `is_table`: whether the format is known as
    a table only.
    """

    name: str
    semantics: Semantics
    required: Sequence[str] = ()
    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    constants: Mapping[str, int] = field(default_factory=dict)
    figures: str = ""
    each: str = ""
    units: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)
    framework: str = ""
    unit: str = ""
    unit_field: str = ""
    lacks: str = ""
    is_table: bool = False

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> "RecordFormat":
        """Return a format of formats.toml."""
        columns = {}
        for column, names in entry.get("columns", {}).items():
            columns[column] = [names] if isinstance(names, str) else names
        plain = {name: entry[name] for name in PLAIN if name in entry}
        return cls(semantics=semantics_of(entry), columns=columns, **plain)

    def is_print(self, values: Mapping[str, Any]) -> bool:
        """Whether a record has all required fields, of which an empty cell of a table is none,
        and a figure if every record has figures of its own."""
        if any(values.get(name) in (None, "") for name in self.required):
            return False
        return not self.each or any(map(self.is_figure, values))

    def is_figure(self, name: str) -> bool:
        """Whether a field has a figure that the log reports."""
        return bool(self.figures and re.search(self.figures, name))

    def unit_of(self, name: str) -> str:
        """Return the unit of a figure; empty if the format tells none."""
        for pattern, unit in self.units.items():
            if re.search(pattern, name):
                return unit
        return ""


PLAIN = (
    *("name", "required", "constants", "figures", "each", "units", "facts", "framework"),
    *("unit", "unit_field", "lacks", "is_table"),
)
"""Keys of formats.toml copied without conversion."""
UNITS = {"items/s": "items/s", "tok/s": "tokens/s", "tokens/s": "tokens/s"}
"""Units that records tell, in lower case."""
FORMATS = [RecordFormat.of(entry) for entry in RECORDS]


def read(path: Path, text: str) -> Log | None:
    """Read a file of records; None if it has no print of a known format. Raises LogError if the
    format has no times."""
    form = _recognised(text)
    if not form:
        return None
    if form.lacks:
        raise LogError(path, form.lacks)
    table = PrintTable(form)
    figures = FigureTable(form)
    facts: dict[str, int] = {}
    units: set[str] = set()
    rows = json_records(text) if is_json(text) else table_rows(text)
    for row in rows:
        table.add(row)
        figures.add(row)
        facts |= _facts(form, row.values)
        if form.unit_field and form.is_print(row.values):
            units.add(UNITS.get(str(row.values.get(form.unit_field)).lower(), ""))
    unit = units.pop() if len(units) == 1 else form.unit
    collected = Facts(framework=form.framework, unit=unit, **facts)
    collected.complete(path)
    prints = prints_of(table.columns())
    return Log(
        path=path,
        format=form.name,
        sha256="",
        semantics=form.semantics,
        windows=windows_of(prints, form.semantics),
        facts=collected.by_name,
        reported=figures.reported(),
        notes=[*_notes(form)],
        of_several=bool(form.each) and len(figures.values) > 1,
    )


def _recognised(text: str) -> RecordFormat | None:
    """Return the first format of which a record is a print; of a table, whose columns are all
    there."""
    if is_json(text):
        head = islice(json_records(text), HEAD)
        return _format_in(head) or _format_in(json_records(text))
    names = heading_of(text)
    for form in FORMATS:
        if not form.each and {*names} >= {*form.required}:
            return form
    return None


def _format_in(rows: Iterable[NumberedRow]) -> RecordFormat | None:
    """Return the first format of which one of the rows is a record."""
    first = len(FORMATS)
    for row in rows:
        for index, form in enumerate(FORMATS[:first]):
            if not form.is_table and form.is_print(row.values):
                first = index
                break
    return FORMATS[first] if first < len(FORMATS) else None


def _notes(form: RecordFormat) -> Iterator[Note]:
    """Yield what a reader of the figures must know of the format."""
    semantics = form.semantics
    is_lagging = semantics.covers == "rolling" and not semantics.window
    if is_lagging or semantics.mean_of == "medians":
        yield Note(LaggingMeans())


def _facts(form: RecordFormat, values: Mapping[str, Any]) -> dict[str, int]:
    """Return the configuration that a record tells."""
    facts = {}
    for fact, name in form.facts.items():
        value = values.get(name)
        if type(value) is int and 0 < value < LARGEST_FACT:
            facts[fact] = value
    return facts


class PrintTable:
    """The prints of a file by column, as `prints_of` takes them."""

    def __init__(self, form: RecordFormat) -> None:
        self.form = form
        self.lines: list[int] = []
        self.values: Columns = {name: [] for name in (*form.columns, *form.constants)}

    def add(self, row: NumberedRow) -> None:
        """Add a record if it is a print with a usable step."""
        if not self.form.columns or not self.form.is_print(row.values):
            return
        step = _whole(_first(row.values, self.form.columns["step"]))
        if step is None:
            return
        self.lines.append(row.line)
        for column, names in self.form.columns.items():
            value = _first(row.values, names)
            number = step if column == "step" else _number(column, value, step)
            self.values[column].append(number)
        for column, constant in self.form.constants.items():
            self.values[column].append(constant)

    def columns(self) -> dict[str, Sequence[Any]]:
        """Return the columns; `clock` is the time since the start, by the most exact field."""
        columns: dict[str, Sequence[Any]] = {"line": self.lines, **self.values}
        for name in SINCE_START:
            times = columns.pop(name, None)
            if times and "clock" not in columns and None not in times:
                columns["clock"] = times
        return columns


def _first(values: Mapping[str, Any], names: Sequence[str]) -> Any:
    """Return the first present value of these names."""
    for name in names:
        if values.get(name) not in (None, ""):
            return values[name]
    return None


def _whole(value: Any) -> int | None:
    """Return a step number; of "10/438" the first number; None if it is none."""
    if isinstance(value, str):
        match = LEADING_DIGITS.match(value.strip())
        value = int(match[0]) if match else None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if type(value) is int and 0 <= value < MOST_STEPS:
        return value
    return None


def seconds_of(value: Any) -> float:
    """Return a number or a duration in seconds; nan if the value is none."""
    if isinstance(value, bool):
        return np.nan
    try:
        return seconds(str(value)[:LONGEST_NUMBER])
    except ValueError:
        return np.nan


def _number(column: str, value: Any, step: int) -> float | None:
    """Return the value of a column. The time since the start follows from the mean rate or the
    mean time since the start: 20 steps at a mean of 0.5 steps/s took 40 s."""
    number = seconds_of(value)
    if np.isnan(number):
        return None
    if column == "mean_rate":
        return step / number if number > 0 else None
    if column == "mean_seconds":
        return step * number
    return number


class FigureTable:
    """The figures that the records of a file report, by name: the last one, or each record's if
    every record has figures of its own. `count` is the number of records with figures."""

    def __init__(self, form: RecordFormat) -> None:
        self.form = form
        self.values: dict[str, list[tuple[float, str, int]]] = {}
        self.count = 0

    def add(self, row: NumberedRow) -> None:
        """Add the figures of a record."""
        has_figures = False
        for name, value in row.values.items():
            if isinstance(value, bool) or not self.form.is_figure(name):
                continue
            number = seconds_of(value)
            if np.isfinite(number):
                has_figures = True
                self._add(name, (number, str(value), row.line))
        self.count += has_figures

    def _add(self, name: str, value: tuple[float, str, int]) -> None:
        if self.form.each:
            name = RANK_SUFFIX.sub("", name)
        if name not in self.values and len(self.values) >= MOST_FIGURES:
            return
        if self.form.each:
            self.values.setdefault(name, []).append(value)
        else:
            self.values[name] = [value]

    def reported(self) -> list[ReportedFigure]:
        figures = []
        for name, values in self.values.items():
            qualifiers = [self.form.unit_of(name)]
            _number, text, line = values[-1]
            if self.form.each:
                number = median([value for value, _text, _line in values])
                text = f"{number:.10g}"
                qualifiers.append(f"median of {len(values)}")
            qualifier = ", ".join(filter(None, qualifiers))
            label = f"{name} ({qualifier})" if qualifier else name
            figures.append(figure(label, text, line))
        return figures
