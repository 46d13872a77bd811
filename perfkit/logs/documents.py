"""Figures that logs give themselves, and files that are one JSON object or one table."""

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from perfkit.logs.config_facts import Facts
from perfkit.logs.formats import DOCUMENTS, REAL, REPORTED, semantics_of
from perfkit.logs.log import Log, LogError, ReportedFigure, Unit
from perfkit.logs.windows import prints_of, windows_of

NAME_CHARACTERS = 100
"""Of a log's own figure; names and digits are foreign."""
UNITS: dict[Unit, re.Pattern[str]] = {
    "samples/s": re.compile(
        r"ips$|throughput|per_sec|samples/s|(?:img|image|frame|item|token)s?/s", re.I
    ),
    "s": re.compile(r"(?<!infer)(?:_|\b)(?:time|runtime|latenc(?:y|ies)|\w+_sum)$", re.I),
    "": re.compile(""),
}
"""What the names of figures tell of their unit."""
NO_TRAINING = re.compile(r"^val[._]|_val$|^infer|^eval|^test[._]|test=eval")
CELL = re.compile(
    rf" {{1,11}}(\d{{1,9}}) {{1,11}}\|((?: {{1,11}}(?:{REAL}) {{1,11}}\|?){{1,20}})$"
)
LONGEST_HEADING = 10_000
"""Characters of a table's first line."""
DEPTH = 8
"""Levels of a JSON object whose values have names."""
BACKENDS = {"pytorch": "torch"}
Row = tuple[int, dict[str, Any]]
"""A line, and the values in it by their names."""


def figure(
    name: str, value: Any, line: int, ranks: int | None = None, unit: Unit | None = None
) -> ReportedFigure:
    """A figure whose parts are a log's, its unit by its name if that is not given; nan if its
    value is no number."""
    by_name = next(known for known, pattern in UNITS.items() if pattern.search(name))
    name, text = name[:NAME_CHARACTERS], str(value)
    return ReportedFigure(
        name, number_of(text), text[:NAME_CHARACTERS], line, unit or by_name, ranks
    )


def number_of(text: str) -> float:
    """nan if it is none."""
    try:
        return float(text)
    except ValueError:
        return np.nan


def parsed(text: str) -> Any:
    """The JSON in a text; None if it is none, or nested too deeply."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def reported_figures(lines: Sequence[tuple[int, str]]) -> Iterator[ReportedFigure]:
    """The figures that logs give themselves, by the patterns of formats.toml, but for what
    validation gave; and the tables with which NVIDIA's MXNet benchmark closes: of rates, with a
    row for each number of devices, a column for each batch size."""
    for index, (number, line) in enumerate(lines):
        for key, head, pattern in REPORTED:
            if key in line and (begin := head.search(line)):
                where = begin.groupdict().get("where") or ""
                for match in pattern.finditer(line, begin.end()):
                    if not NO_TRAINING.search(match["name"]):
                        yield figure(f"{where} {match['name']}".strip(), match["value"], number)
        if (title := line.strip()) in ("train.ips", "train.total_ips"):
            table = [*lines[index + 1 : index + 103], (0, "")]
            batches = re.findall(r"\d{1,9}", table[0][1])
            for row_number, row in table[2:]:
                if not (cells := CELL.match(row)):
                    break
                texts = cells[2].replace("|", " ").split()
                for batch, text in zip(batches, texts, strict=False):
                    name = f"closing table {title}{f', {batch}' if len(batches) > 1 else ''}"
                    yield figure(name, text, row_number, int(cells[1]))


def read(path: Path, text: str) -> Log | None:
    """A file that is one JSON object or one table; None if it is in no known format. Raises
    LogError for broken JSON."""
    is_table = not text.lstrip().startswith("{")
    rows = _table(text) if is_table else _object(path, text)
    first = rows[0][1] if rows else {}
    roots = {name.partition(".")[0] for name in first if name}
    for form in DOCUMENTS:
        if form.get("table", False) != is_table or not roots >= {*form.get("required", ())}:
            continue
        figures = [one for line, row in rows for one in _figures(form, line, row)]
        steps = _first(form.get("steps"), first)
        if figures or isinstance(steps, list):
            seconds = steps if isinstance(steps, list) else []
            facts = Facts(**_facts(form, first, figures))
            facts.complete(path)
            semantics = semantics_of(form)
            prints = _prints(seconds, _first(form.get("steps_of_process"), first))
            windows = windows_of(prints_of(prints), semantics)
            return Log(path, form["name"], "", semantics, windows, facts.found, figures)
    return None


def _object(path: Path, text: str) -> list[Row]:
    """The values of a JSON object by their names, in line 1; none of JSON lines or of what is
    a printed Python dict."""
    try:
        return [(1, dict(_values("", json.loads(text), DEPTH)))]
    except RecursionError as error:
        raise LogError(f"{path} begins like JSON, but is not: nested too deeply.") from error
    except ValueError as error:
        if isinstance(parsed(text.lstrip().partition("\n")[0]), dict) or "'" in text[:200]:
            return []
        raise LogError(f"{path} begins like JSON, but is not: {error}.") from error


def _values(name: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    """The values below this one, by their names joined by dots."""
    if not (isinstance(value, dict) and value and depth):
        yield name, value
        return
    for key, inner in value.items():
        yield from _values(f"{name}.{key}" if name else key, inner, depth - 1)


def _table(text: str) -> list[Row]:
    """The rows of a CSV with their lines, if a column is a figure of a known format."""
    text = text.lstrip()
    known = [form["figures"] for form in DOCUMENTS if form.get("table")]
    try:
        # No more of it than the heading of a table can have: it may be one line of any length.
        names = next(csv.reader([text[:LONGEST_HEADING].partition("\n")[0]]), [])
        is_known = any(re.search(one, name) for one in known for name in names)
        if is_known and len(names) > 1:
            return [*enumerate(csv.DictReader(io.StringIO(text)), 2)]
    except csv.Error:
        pass
    return []


def _figures(
    form: Mapping[str, Any], line: int, row: Mapping[str, Any]
) -> Iterator[ReportedFigure]:
    label = (row.get("model") or row.get("name") or "") if form.get("table") else ""
    for key, value in row.items():
        if (match := re.search(form["figures"], key or "")) and not isinstance(value, bool):
            found = figure(" ".join([str(label).strip(), *match.groups()]).strip(), value, line)
            if not np.isnan(found.value):
                yield found


def _first(pattern: str | None, row: Mapping[str, Any]) -> Any:
    """The first value whose name has the pattern."""
    found = (value for name, value in row.items() if pattern and re.search(pattern, name or ""))
    return next(found, None)


def _facts(
    form: Mapping[str, Any], row: Mapping[str, Any], figures: list[ReportedFigure]
) -> dict[str, int | str]:
    found: dict[str, int | str] = {"framework": form.get("framework", "")}
    for fact, pattern in form.get("facts", {}).items():
        value = _first(pattern, row)
        if str(value) in BACKENDS or (type(value) is int and 0 < value < 2**40):
            found[fact] = BACKENDS.get(str(value), value)
    if figures and all(NO_TRAINING.search(one.name) for one in figures):
        found["mode"] = "inference"
    return found


def _prints(seconds: Sequence[Any], of_process: Any) -> dict[str, Sequence[Any]]:
    """Prints of single steps; those of several processes stand one after the other."""
    count = len(seconds)
    known = type(of_process) is int and 0 < of_process <= count
    places = [divmod(k, of_process) if known else (None, k) for k in range(count)]
    return {
        "line": [1] * count,
        "rank": [rank for rank, _step in places],
        "step": [step + 1 for _rank, step in places],
        "seconds": [number_of(str(value)) for value in seconds],
    }
