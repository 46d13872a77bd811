"""Files of records, by the `record` formats of formats.toml: JSON lines, a JSON document, a
list of records in it, or a table with a heading.

A record with all required fields is a print if the format has columns; others may have figures
that the log reports. Files are untrusted: records may be cut off, nested, huge, of any type.
"""

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from perfkit.audit.config_facts import Facts
from perfkit.audit.formats import RECORDS, Semantics, semantics_of
from perfkit.audit.log import MOST_STEPS, Log, LogError, ReportedFigure, prints_of, windows_of
from perfkit.audit.numbers import seconds_or_nan
from perfkit.audit.reported import MOST_FIGURES, figure
from perfkit.audit.statements import LaggingMeans, Note
from perfkit.measuring.statistics import median

HEAD = 2000
"""Records searched for a known format before all are."""
DEPTH = 8
"""Nesting levels of a JSON object that are flattened."""
LONGEST_HEADING = 200_000
"""Characters read of a table's first line: an untrusted file may have a line of any length."""
MOST_COLUMNS = 20_000
LARGEST_DOCUMENT = 32 * 1024 * 1024
"""Characters of a file that is read as a single JSON document."""
LONGEST_NUMBER = 60
"""Characters of a number or a duration."""
HISTORY = "log_history"
"""List of records within a record, as in the state of Hugging Face's Trainer."""
RESULT, SCHEMA = "result.json", '"schema_version"'
"""Name of a measurement's file, and the name of its first field."""
OF_PERFKIT = (
    "a measurement of perfkit: its page has its throughput, and perfkit compare compares it"
)
STEP = ("Epoch", "Iteration", "Validation Iteration")
"""DLLogger's names for the numbers of a step."""
PLAIN_NAME = re.compile(r"[\w/. ()%-]{0,80}")
"""Name of a column in a table."""
RANK_SUFFIX = re.compile(r":\d{1,6}$")
"""End of a figure's name that numbers the devices of a node: throughput:3."""


class Record(NamedTuple):
    """A row of a table or a JSON object: its line, and its values by (dotted) names."""

    line: int
    values: dict[str, Any]


@dataclass(frozen=True)
class RecordFormat:
    """A format of records.

    `required` are the fields of each record of the format, `columns` the field of each column
    of a print, `figures` matches the fields with figures that the log reports. `figures_of`
    says what a figure is: the last one of the file, one of its record, which is named by its
    `model` or `name`, or the median of all records, such as nodes. `is_table`: whether the
    format is known as a table only.
    """

    name: str
    semantics: Semantics
    required: Sequence[str] = ()
    columns: Mapping[str, str] = field(default_factory=dict)
    figures: str = ""
    figures_of: Literal["file", "record", "median"] = "file"
    framework: str = ""
    unit: str = ""
    is_table: bool = False

    def is_print(self, record: Record) -> bool:
        """Whether a record has all required fields, of which an empty cell of a table is none,
        and a figure if each record has some."""
        if any(record.values.get(name) in (None, "") for name in self.required):
            return False
        return self.figures_of == "file" or any(map(self.is_figure, record.values))

    def is_figure(self, name: str) -> bool:
        return bool(self.figures and re.search(self.figures, name or ""))


FORMATS = [
    RecordFormat(
        semantics=semantics_of(entry),
        **{
            field.name: entry[field.name]
            for field in fields(RecordFormat)
            if field.name in entry
        },
    )
    for entry in RECORDS
]


def read(path: Path, text: str) -> Log | None:
    """Read a file of records; None if it has none of a known format. Raises LogError if it is a
    measurement of perfkit."""
    is_json = text.lstrip()[:1] in ("{", "[")
    if path.name == RESULT and SCHEMA in text[:HEAD]:
        raise LogError(path, OF_PERFKIT)
    form = _recognised(text, is_json)
    if not form:
        return None
    columns: dict[str, list[float]] = {name: [] for name in ("line", *form.columns)}
    figures: dict[str, list[ReportedFigure]] = {}
    for record in _records(text, is_json):
        _add_print(form, record, columns)
        _add_figures(form, record, figures)
    reported = [*_reported(form, figures)]
    facts = Facts(framework=form.framework, unit=form.unit)
    facts.complete(path)
    semantics = form.semantics
    is_lagging = semantics.covers == "rolling" and not semantics.window
    return Log(
        path=path,
        format=form.name,
        sha256="",
        semantics=semantics,
        windows=windows_of(prints_of(columns), semantics),
        facts=facts.by_name,
        reported=reported,
        notes=[Note(LaggingMeans())] if is_lagging or semantics.mean_of == "medians" else [],
        of_several=_is_of_several(form, reported),
    )


def as_lines(text: str) -> list[tuple[int, str]]:
    """Return the rows of a table or of a history as lines of names and values; empty for other
    text."""
    is_json = text.lstrip()[:1] in ("{", "[")
    if not is_json and not _heading(text):
        return []
    lines = []
    for record in _records(text, is_json):
        pairs = [f"{name}: {value}, " for name, value in record.values.items() if value != ""]
        lines.append((record.line, "".join(pairs)))
    return lines if len(lines) > 1 else []


def _recognised(text: str, is_json: bool) -> RecordFormat | None:
    """Return the first format of which a record is a print; of a table, whose columns are all
    there."""
    if not is_json:
        heading = Record(1, dict.fromkeys(_heading(text), 0))
        formats = (form for form in FORMATS if heading.values and form.is_print(heading))
        return next(formats, None)
    formats_of_json = [form for form in FORMATS if not form.is_table]
    first = len(formats_of_json)
    for number, record in enumerate(_records(text, is_json)):
        for index, form in enumerate(formats_of_json[:first]):
            if form.is_print(record):
                first = index
                break
        if number >= HEAD and first < len(formats_of_json):
            break
    return formats_of_json[first] if first < len(formats_of_json) else None


def _add_print(form: RecordFormat, record: Record, columns: dict[str, list[float]]) -> None:
    """Add a record to the columns of prints if it is one with a usable step."""
    if not form.columns or not form.is_print(record):
        return
    values = {column: _number(record.values.get(name)) for column, name in form.columns.items()}
    if 0 <= values["step"] < MOST_STEPS:
        columns["line"].append(record.line)
        for column, value in values.items():
            columns[column].append(value)


def _number(value: Any) -> float:
    """Return a number or a duration in seconds, of "10/438" the first number; nan if the value
    is none."""
    if isinstance(value, bool):
        return np.nan
    return seconds_or_nan(str(value)[:LONGEST_NUMBER].partition("/")[0])


def _add_figures(
    form: RecordFormat, record: Record, figures: dict[str, list[ReportedFigure]]
) -> None:
    """Add the figures of a record by their names."""
    label = ""
    if form.figures_of == "record":
        label = str(record.values.get("model") or record.values.get("name") or "")
    for name, value in record.values.items():
        if isinstance(value, bool) or not form.is_figure(name):
            continue
        own_name = RANK_SUFFIX.sub("", name) if form.figures_of == "median" else name
        told = figure(f"{label} {own_name.strip()}".strip(), value, record.line)
        if np.isfinite(told.value) and (told.name in figures or len(figures) < MOST_FIGURES):
            figures.setdefault(told.name, []).append(told)


def _reported(
    form: RecordFormat, figures: Mapping[str, list[ReportedFigure]]
) -> Iterator[ReportedFigure]:
    for name, values in figures.items():
        if form.figures_of == "median":
            middle = median([told.value for told in values])
            yield figure(f"{name} (median of {len(values)})", f"{middle:.10g}", values[-1].line)
        else:
            yield values[-1]


def _is_of_several(form: RecordFormat, reported: list[ReportedFigure]) -> bool:
    """Whether the figures are those of several models."""
    if form.figures_of == "record":
        return len({told.line for told in reported}) > 1
    return form.figures_of == "median" and len(reported) > 1


# Records.


def parsed(text: str) -> Any:
    """Return the JSON in a text; None if it is invalid or nested too deeply."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def as_text(line: str) -> str:
    """Return a record of DLLogger's file as the printed line; other lines unchanged."""
    begin = max(line.find("{"), 0)
    record = parsed(line[begin:])
    if not isinstance(record, dict) or not isinstance(record.get("data"), dict):
        return line
    place = record.get("step")
    if isinstance(place, int):
        place = f"Iteration: {place}"
    elif not place:
        place = "()"
    elif isinstance(place, list):
        place = " ".join(f"{name}: {number}" for name, number in zip(STEP, place, strict=False))
    prefix = line[:begin].removesuffix("DLLL ")
    pairs = " ".join(f"{name} : {value} " for name, value in record["data"].items())
    return f"{prefix}DLL {record.get('datetime')} - {place} {pairs}"


def _records(text: str, is_json: bool) -> Iterator[Record]:
    return _json_records(text) if is_json else _table_rows(text)


def _json_records(text: str) -> Iterator[Record]:
    """Yield the records of JSON lines or of a JSON document, in their order."""
    # Of JSON lines, only the first object is parsed here.
    document = parsed(text) if len(text) <= LARGEST_DOCUMENT else None
    if document is not None:
        yield from _with_history(1, document)
        return
    for number, line in enumerate(io.StringIO(text), 1):
        if line.lstrip().startswith("{"):
            yield from _with_history(number, parsed(line))


def _with_history(line: int, document: Any) -> Iterator[Record]:
    """Yield the records of a JSON object or list, and those of its history."""
    for record in document if isinstance(document, list) else [document]:
        if not isinstance(record, dict) or not record:
            continue
        yield Record(line, dict(_values("", record, DEPTH)))
        history = record.get(HISTORY)
        for entry in history if isinstance(history, list) else []:
            if isinstance(entry, dict):
                yield Record(line, dict(_values("", entry, DEPTH)))


def _values(name: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    """Yield the values of a JSON object by dotted names: ("a.b", 1) for {"a": {"b": 1}}."""
    if not (isinstance(value, dict) and value and depth):
        yield name, value
        return
    for key, inner in value.items():
        yield from _values(f"{name}.{key}" if name else key, inner, depth - 1)


def _heading(text: str) -> list[str]:
    """Return the column names of a table; empty for a text without two of them in its first
    line."""
    first_line = text.lstrip()[:LONGEST_HEADING].partition("\n")[0]
    try:
        names = next(csv.reader([first_line]), [])
    except csv.Error:
        return []
    is_heading = 2 <= len(names) <= MOST_COLUMNS and all(map(PLAIN_NAME.fullmatch, names))
    return [name.strip() for name in names] if is_heading else []


def _table_rows(text: str) -> Iterator[Record]:
    """Yield the rows of a table by the names in its heading, until one can't be read."""
    names = _heading(text)
    lines = csv.reader(io.StringIO(text.lstrip()))
    try:
        for number, cells in enumerate(islice(lines, 1, None), 2):
            if cells:
                yield Record(number, dict(zip(names, cells, strict=False)))
    except csv.Error:
        return
