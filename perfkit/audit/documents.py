"""Read figures that logs report, files that are one JSON object or one table, and MLPerf's
events: `:::MLLOG {"time_ms": …, "key": …}`, v0.6's `:::MLL`, and v0.5's `:::MLP`."""

import csv
import io
import json
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from perfkit.audit.config_facts import Facts
from perfkit.audit.formats import DOCUMENTS, REPORTED, semantics_of
from perfkit.audit.log import Log, ReportedFigure, prints_of, windows_of

NAME_CHARACTERS = 100
"""Longest name or text kept of a reported figure, which is untrusted."""
RATE = re.compile(
    r"ips$|throughput|per_sec|samples/s|^samples / time|(img|image|frame|item|token)s?/s", re.I
)
"""Names of figures in samples per second."""
NO_TRAINING = re.compile(r"^val[._]|_val$|^infer|^eval|^test[._]|test=eval")
RANKS = re.compile(r" {1,11}(\d{1,9}) {1,11}")
MOST_FIGURES = 10_000
"""Figures read of a log, which is untrusted."""
LONGEST_HEADING = 10_000
"""Characters read of a table's first line."""
DEPTH = 8
"""Nesting levels of a JSON object that are flattened."""
BACKENDS = {"pytorch": "torch"}
Row = tuple[int, dict[str, Any]]
"""A line number and its values by name."""


def figure(name: str, value: Any, line: int, ranks: int | None = None) -> ReportedFigure:
    """Return a reported figure; its value is nan if `value` is not a number."""
    text, is_rate = str(value), bool(RATE.search(name[-NAME_CHARACTERS:]))
    name, shown = name[:NAME_CHARACTERS], text[:NAME_CHARACTERS]
    return ReportedFigure(name, number_of(text), shown, line, is_rate, ranks)


def number_of(text: str) -> float:
    """Return the number in a text, or nan."""
    try:
        return float(text)
    except ValueError:
        return np.nan


def parsed(text: str) -> Any:
    """Return the JSON in a text; None if it is invalid or nested too deeply."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def reported_figures(lines: Sequence[tuple[int, str]]) -> Iterator[ReportedFigure]:
    """Yield the figures that logs report, found by the patterns of formats.toml, except
    validation results; and the closing tables of NVIDIA's MXNet benchmark: rates with a row per
    device count and a column per batch size."""
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
                left, _bar, cells = row.partition("|")
                texts = cells.replace("|", " ").split()
                if not (count := RANKS.fullmatch(left)) or not texts:
                    break
                for batch, text in zip(batches, texts, strict=False):
                    name = f"closing table {title}{f', {batch}' if len(batches) > 1 else ''}"
                    yield figure(name, text, row_number, int(count[1]))


def read(path: Path, text: str) -> Log | None:
    """Read a file that is one JSON object or one table; None if the format is unknown."""
    is_table = not text.lstrip().startswith("{")
    rows = _table(text) if is_table else [(1, dict(_values("", parsed(text), DEPTH)))]
    first = rows[0][1] if rows else {}
    roots = {name.partition(".")[0] for name in first if name}
    for form in DOCUMENTS:
        if form.get("table", False) != is_table or not roots >= {*form.get("required", ())}:
            continue
        found = (reported for line, row in rows for reported in _figures(form, line, row))
        figures = [*islice(found, MOST_FIGURES)]
        steps = _first(form.get("steps"), first)
        seconds = steps if isinstance(steps, list) else []
        if figures or seconds:
            facts = Facts(**_facts(form, first, figures))
            facts.complete(path)
            semantics = semantics_of(form)
            prints = _prints(seconds, _first(form.get("steps_of_process"), first))
            windows = windows_of(prints_of(prints), semantics)
            return Log(path, form["name"], "", semantics, windows, facts.by_name, figures)
    return None


def _values(name: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    """Yield the values below `value` by their dotted names."""
    if not (isinstance(value, dict) and value and depth):
        yield name, value
        return
    for key, inner in value.items():
        yield from _values(f"{name}.{key}" if name else key, inner, depth - 1)


def _table(text: str) -> list[Row]:
    """Return the rows of a CSV with line numbers if a column is a figure of a known format."""
    text = text.lstrip()
    known = [form["figures"] for form in DOCUMENTS if form.get("table")]
    try:
        # The first line of an untrusted file may have any length.
        names = next(csv.reader([text[:LONGEST_HEADING].partition("\n")[0]]), [])
        is_known = any(re.search(pattern, name) for pattern in known for name in names)
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
    """Return the first value whose name matches the pattern."""
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
    if figures and all(NO_TRAINING.search(reported.name) for reported in figures):
        found["mode"] = "inference"
    return found


def _prints(seconds: Sequence[Any], of_process: Any) -> dict[str, Sequence[Any]]:
    """Return prints of single steps; those of several processes follow one another."""
    count = len(seconds)
    known = type(of_process) is int and 0 < of_process <= count
    places = [divmod(k, of_process) if known else (None, k) for k in range(count)]
    return {
        "line": [1] * count,
        "rank": [rank for rank, _step in places],
        "step": [step + 1 for _rank, step in places],
        "seconds": [number_of(str(value)) for value in seconds],
    }


MLLOG = re.compile(r":::MLLOG (\{.{1,20000}\})")
OLDER = re.compile(
    r":::ML(?:L|P[vV][\d.]{1,9} (?P<benchmark>\w{1,40})) (?P<at>\d{1,12}\.\d{1,9}) "
    r"(?:\([^)]{1,200}\) )?(?P<key>\w{1,80})(?::? (?P<value>.{1,20000}))?"
)
KEYS = {"input_batch_size": "global_batch_size"}
"""Keys of v0.5 and their current names."""
MOST = 2**53
"""Numbers up to here are exact as floats; larger ones are ignored."""
IMAGENET = 1_281_167
"""Training samples of MLPerf's resnet, which v0.5 and v0.6 do not log."""


class Event(NamedTuple):
    """One logged event, `at` seconds of the log's clock."""

    line: int
    at: float
    key: str
    value: Any
    metadata: Any


Span = tuple[Event, Event]
"""A NAME_start event and its NAME_stop."""


def events(lines: Sequence[tuple[int, str]]) -> list[Event]:
    """Return the events of all lines that can be parsed."""
    found: list[Event] = []
    for number, line in lines:
        if ":::ML" not in line:
            continue
        if match := MLLOG.search(line):
            record = parsed(match[1])
            at = record.get("time_ms") if isinstance(record, dict) else None
            if isinstance(at, int | float) and abs(at) < MOST:
                key, value = str(record.get("key")), record.get("value")
                found.append(Event(number, at / 1000, key, value, record.get("metadata")))
        elif match := OLDER.search(line):
            at, key, value = float(match["at"]), match["key"], parsed(match["value"] or "null")
            metadata = value.get("metadata") if isinstance(value, dict) else None
            value = value if metadata is None else value.get("value")
            if match["benchmark"] and not found:
                name = match["benchmark"]
                found.append(Event(number, at, "submission_benchmark", name, None))
            found.append(Event(number, at, KEYS.get(key, key), value, metadata))
    return found


def _spans(found: Sequence[Event], name: str) -> list[Span]:
    """Return each NAME_start with its NAME_stop. Of consecutive equal events, as each process
    may log them, the first counts."""
    edges = [event for event in found if event.key in (f"{name}_start", f"{name}_stop")]
    distinct = [next(equal) for _key, equal in groupby(edges, lambda event: event.key)]
    first = 1 if distinct and distinct[0].key.endswith("stop") else 0
    return [*zip(distinct[first::2], distinct[first + 1 :: 2], strict=False)]


def _count(value: Any) -> int:
    """Return a positive count; 0 if the value is not one."""
    return value if type(value) is int and 0 < value < MOST else 0


def _sizes(found: Sequence[Event]) -> tuple[int, int]:
    """Return the samples of an epoch and of a step; 0 if unknown."""
    first = {event.key: event.value for event in reversed(found)}
    default = IMAGENET if first.get("submission_benchmark") == "resnet" else 0
    samples = first.get("train_samples") or default
    return _count(samples), _count(first.get("global_batch_size"))


def prints(found: Sequence[Event]) -> dict[str, list[Any]]:
    """Return each epoch as one print of all its steps; none if samples or batch are unknown."""
    samples, batch = _sizes(found)
    spans = _spans(found, "epoch") if samples and batch else []
    seconds = [end.at - begin.at for begin, end in spans]
    return {
        "line": [end.line for _begin, end in spans],
        "epoch": [*range(1, len(spans) + 1)],
        "begin": [0] * len(spans),
        "step": [round(samples / batch) for _span in spans],
        "window_seconds": seconds,
        "rate": [samples / time if time > 0 else None for time in seconds],
        "clock": [end.at for _begin, end in spans],
    }


def reported(found: Sequence[Event]) -> Iterator[ReportedFigure]:
    """Yield the time to train, the throughput by blocks (including time between their epochs)
    and by epochs, and the logged throughputs and step times."""
    for begin, end in _spans(found, "run"):
        yield figure("time to train, minutes", f"{(end.at - begin.at) / 60:.6f}", end.line)
    (samples, _batch), epochs = _sizes(found), _spans(found, "epoch")
    for name in ("block", "epoch"):
        spans = _spans(found, name)
        begins = [begin.at for begin, _end in spans]
        of_epochs = ((bisect_right(begins, begin.at), end.at) for begin, end in epochs)
        within = sum(k > 0 and at <= spans[k - 1][1].at for k, at in of_epochs)
        logged = (begin.metadata for begin, _end in spans if isinstance(begin.metadata, dict))
        count = within or sum(_count(metadata.get("epoch_count")) for metadata in logged)
        seconds = sum(end.at - begin.at for begin, end in spans)
        if seconds > 0 and (rate := samples * count / seconds):
            label, line = f"samples / time of all {name}s", spans[-1][1].line
            yield figure(label, f"{rate:.5f}", line)
    for event in found:
        if event.key in ("throughput", "tracked_stats", "train_step_time"):
            stats = event.value if isinstance(event.value, dict) else {event.key: event.value}
            for name in ("throughput", "train_step_time"):
                if isinstance(stats.get(name), int | float):
                    label = " ".join(dict.fromkeys((event.key, name)))
                    yield figure(label, repr(stats[name]), event.line)
