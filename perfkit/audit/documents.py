"""Read figures that logs report, and files that are one JSON object or one table."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from perfkit.audit import numbers
from perfkit.audit.config_facts import Facts
from perfkit.audit.formats import DOCUMENTS, REPORTED, semantics_of
from perfkit.audit.log import Log, ReportedFigure, prints_of, windows_of
from perfkit.audit.rows import (
    NumberedRow,
    flat,
    heading_of,
    json_records,
    parsed,
    table_rows,
)

NAME_CHARACTERS = 100
"""Longest name or text kept of a reported figure, which is untrusted."""
RATE = re.compile(
    r"ips$|throughput|(?<!steps_)(?<!tokens_)per_sec|samples/s|^samples / time"
    r"|(img|image|frame|item|token)s?/s|^data\.rate|\.train_rate ",
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
LARGEST_FACT = 2**40
BACKENDS = {"pytorch": "torch"}
Lines = Sequence[tuple[int, str]]


def figure(name: str, value: Any, line: int, ranks: int | None = None) -> ReportedFigure:
    """Return a reported figure; its value is nan if `value` is not a number."""
    text = str(value)
    return ReportedFigure(
        name=name[:NAME_CHARACTERS],
        value=number_of(text),
        text=text[:NAME_CHARACTERS],
        line=line,
        is_rate=bool(RATE.search(name[-NAME_CHARACTERS:])),
        ranks=ranks,
    )


def number_of(text: str) -> float:
    """Return the number in a text, or nan."""
    try:
        return numbers.number(text)
    except ValueError:
        return np.nan


# Figures in lines.


def reported_figures(lines: Lines) -> Iterator[ReportedFigure]:
    """Yield the figures that logs report: those found by the patterns of formats.toml, except
    validation results, and those in closing tables."""
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


# Files that are one JSON object or one table.


def read(path: Path, text: str) -> Log | None:
    """Read a file that is one JSON object or one table; None if the format is unknown."""
    is_table = not text.lstrip().startswith("{")
    rows = _table(text) if is_table else [NumberedRow(1, flat(parsed(text)))]
    if text.lstrip().startswith("["):
        rows = [*json_records(text)]
    first = rows[0].values if rows else {}
    roots = {name.partition(".")[0] for name in first if name}
    for form in DOCUMENTS:
        if form.get("table", False) == is_table and roots >= {*form.get("required", ())}:
            log = _log(path, form, rows)
            if log:
                return log
    return None


def _log(path: Path, form: Mapping[str, Any], rows: list[NumberedRow]) -> Log | None:
    """Return the log in a document of a format; None without a figure or the time of a step."""
    figures = [*islice(_figures(form, rows), MOST_FIGURES)]
    first = rows[0].values if rows else {}
    seconds = _first(form.get("steps"), first)
    if not isinstance(seconds, list):
        seconds = []
    if not figures and not seconds:
        return None
    facts = Facts(**_facts(form, first, figures))
    facts.complete(path)
    semantics = semantics_of(form)
    prints = prints_of(_prints(seconds, _first(form.get("steps_of_process"), first)))
    return Log(
        path=path,
        format=form["name"],
        sha256="",
        semantics=semantics,
        windows=windows_of(prints, semantics),
        facts=facts.by_name,
        reported=figures,
        of_several=(form.get("several", False) or len(rows) > 1) and len(figures) > 1,
    )


def _table(text: str) -> list[NumberedRow]:
    """Return the rows of a table if a column is a figure of a known format."""
    patterns = [form["figures"] for form in DOCUMENTS if form.get("table")]
    for name in heading_of(text):
        if any(re.search(pattern, name) for pattern in patterns):
            return [*table_rows(text)]
    return []


def _figures(form: Mapping[str, Any], rows: list[NumberedRow]) -> Iterator[ReportedFigure]:
    """Yield the figures in the rows of a document; those of a table have the row's name."""
    for row in rows:
        label = ""
        if form.get("table"):
            label = str(row.values.get("model") or row.values.get("name") or "").strip()
        for name, value in row.values.items():
            match = re.search(form["figures"], name or "")
            if not match or isinstance(value, bool):
                continue
            reported = figure(" ".join([label, *match.groups()]).strip(), value, row.line)
            if not np.isnan(reported.value):
                yield reported


def _first(pattern: str | None, values: Mapping[str, Any]) -> Any:
    """Return the first value whose name matches the pattern."""
    if pattern:
        for name, value in values.items():
            if re.search(pattern, name or ""):
                return value
    return None


def _facts(
    form: Mapping[str, Any], values: Mapping[str, Any], figures: list[ReportedFigure]
) -> dict[str, int | str]:
    facts: dict[str, int | str] = {
        "framework": form.get("framework", ""),
        "unit": form.get("unit", ""),
    }
    for fact, pattern in form.get("facts", {}).items():
        value = _first(pattern, values)
        if str(value) in BACKENDS:
            facts[fact] = BACKENDS[str(value)]
        elif type(value) is int and 0 < value < LARGEST_FACT:
            facts[fact] = value
    if figures and all(NO_TRAINING.search(reported.name) for reported in figures):
        facts["mode"] = "inference"
    return facts


def _prints(seconds: Sequence[Any], steps_of_process: Any) -> dict[str, Sequence[Any]]:
    """Return prints of single steps. Those of several processes follow one another: with 2
    steps of a process, four times are those of ranks 0, 0, 1 and 1."""
    count = len(seconds)
    ranks: list[int | None] = [None] * count
    steps = [*range(1, count + 1)]
    if type(steps_of_process) is int and 0 < steps_of_process <= count:
        ranks = [index // steps_of_process for index in range(count)]
        steps = [index % steps_of_process + 1 for index in range(count)]
    return {
        "line": [1] * count,
        "rank": ranks,
        "step": steps,
        "seconds": [number_of(str(value)) for value in seconds],
    }
