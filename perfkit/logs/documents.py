"""Figures that logs give themselves, and files that are one JSON object or one table."""

import csv
import io
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from perfkit.logs.formats import REAL, Prints, Semantics, Unit
from perfkit.logs.log import LogError, ReportedFigure
from perfkit.logs.windows import prints_of

NAME_CHARACTERS = 100
"""Of a log's own figure; names and digits are foreign."""
RATE = re.compile(r"ips$|throughput|per_sec|samples/s|(?:img|image|frame|item|token)s?/s", re.I)
SECONDS = re.compile(r"(?<!infer)(?:_|\b)(?:time|runtime|latenc(?:y|ies))$", re.I)
NO_TRAINING = re.compile(r"^val[._]|_val$|^infer|^eval|^test[._]|test=eval")
RECORD = re.compile(
    r"DLL [-\d]{10} [\d:.]{8,15} - (?P<where>Summary:|Epoch: \d{1,9}|\(\)|) "
    r"(?!PARAMETER|(?:Training )?Iteration:) ?(?P<figures>.{1,4000})"
)
FIGURE = re.compile(r"([\w./]{1,60}) : ([-+.\w]{1,32})(?= |$)")
AVERAGE = re.compile(
    rf"INFO:tensorflow:(Throughput Average \(sentences/sec\) with overhead) = ({REAL})"
)
CELL = re.compile(
    rf" {{1,11}}(\d{{1,9}}) {{1,11}}\|((?: {{1,11}}(?:{REAL}) {{1,11}}\|?){{1,20}})$"
)


def figure(
    name: str, text: str, unit: Unit, line: int, ranks: int | None = None
) -> ReportedFigure:
    """A figure whose parts are a log's; nan if it is none."""
    try:
        value = float(text)
    except ValueError:
        value = np.nan
    return ReportedFigure(
        name[:NAME_CHARACTERS], value, text[:NAME_CHARACTERS], line, unit, ranks
    )


def unit_of(name: str) -> Unit:
    if RATE.search(name):
        return "samples/s"
    return "s" if SECONDS.search(name) else ""


def dllogger_figures(lines: list[tuple[int, str]]) -> Iterator[ReportedFigure]:
    """The closing records of NVIDIA's suites, in both forms, and their tables."""
    for number, line in lines:
        if match := RECORD.search(line):
            where = match["where"].strip("():")
            for name, text in FIGURE.findall(match["figures"]):
                yield from _summary(where, name, text, number)
        elif '"data"' in line and (record := record_of(line)):
            step = record.get("step")
            if step in ([], "", None) or (isinstance(step, list) and len(step) == 1):
                where = f"Epoch: {step[0]}" if step and isinstance(step, list) else ""
                for name, value in record["data"].items():
                    if isinstance(value, int | float):
                        yield from _summary(where, name, repr(value), number)
        elif match := AVERAGE.search(line):
            yield figure(match[1], match[2], "samples/s", number)
    yield from _closing_tables(lines)


def parsed(text: str) -> Any:
    """The JSON in a text; None if it is none, or nested too deeply."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def record_of(line: str) -> dict[str, Any] | None:
    """The JSON object that begins in a line of DLLogger's file; None without its `data`."""
    record = parsed(line[max(line.find("{"), 0) :])
    known = isinstance(record, dict) and isinstance(record.get("data"), dict)
    return record if known else None


def _summary(where: str, name: str, text: str, line: int) -> Iterator[ReportedFigure]:
    """A figure of training; what validation gave is none."""
    found = figure(f"{where} {name}".strip(), text, unit_of(name), line)
    if not (NO_TRAINING.search(name) or np.isnan(found.value)):
        yield found


def _closing_tables(lines: list[tuple[int, str]]) -> Iterator[ReportedFigure]:
    """NVIDIA's MXNet benchmark closes with a table of rates: a row for each number of devices,
    a column for each batch size."""
    for index, (_number, line) in enumerate(lines):
        title = line.strip()
        if title not in ("train.ips", "train.total_ips") or index + 3 >= len(lines):
            continue
        batches = re.findall(r"\d{1,9}", lines[index + 1][1])
        for number, row in lines[index + 3 : index + 103]:
            if not (cells := CELL.match(row)):
                break
            values = cells[2].replace("|", " ").split()
            for batch, text in zip(batches, values, strict=False):
                name = f"closing table {title}{f', {batch}' if len(batches) > 1 else ''}"
                yield figure(name, text, "samples/s", number, int(cells[1]))


@dataclass(frozen=True)
class Contents:
    """What a document holds: prints, facts by name, and its own figures."""

    name: str
    semantics: Semantics
    prints: Prints = field(default_factory=partial(prints_of, 0))
    facts: dict[str, int | str] = field(default_factory=dict)
    reported: list[ReportedFigure] = field(default_factory=list)


def read(path: Path, text: str) -> Contents | None:
    """A file that is one JSON object or one table; None if it is in no known format. Raises
    LogError for broken JSON."""
    if text.lstrip()[:1] != "{":
        return _table(text)
    try:
        document = json.loads(text)
    except RecursionError as error:
        raise LogError(f"{path} begins like JSON, but is not: nested too deeply.") from error
    except ValueError as error:
        if isinstance(parsed(text.lstrip().partition("\n")[0]), dict) or "'" in text[:200]:
            return None  # JSON lines of no known keys, or a printed Python dict
        raise LogError(f"{path} begins like JSON, but is not: {error}.") from error
    found = (one(document) for one in (_torchbench, _optimum))
    return next((one for one in found if one), None)


def _torchbench(document: dict[str, Any]) -> Contents | None:
    """torchbench's results: `{"name": …, "environ": {…}, "metrics": {name: 1.5}}`."""
    metrics = document.get("metrics")
    if not (isinstance(metrics, dict) and {"name", "environ"} <= document.keys()):
        return None
    figures = [
        figure(name, repr(value), unit_of(name.partition("metric=")[2] or name), 1)
        for name, value in metrics.items()
        if isinstance(value, int | float)
    ]
    facts: dict[str, int | str] = {"framework": "torch"}
    if metrics and all("test=eval" in name for name in metrics):
        facts["mode"] = "inference"
    source = (
        "pytorch/benchmark, userbenchmark/ADDING_USERBENCHMARKS.md; a metric's name is all "
        "that says what it is: latencies are in milliseconds, of one step"
    )
    return Contents("torchbench", Semantics(source=source), facts=facts, reported=figures)


def _optimum(document: dict[str, Any]) -> Contents | None:
    """optimum-benchmark's report of a training, beside its `config` or alone, at any depth:
    `overall`, `warmup` and `train` with `latency` (each step's seconds) and `throughput`."""
    config, report = _find(document, "config"), _find(document, "train")
    parts = {part: _at(report, part) for part in ("overall", "warmup", "train")}
    values = _at(parts["overall"], "latency", "values") or _at(
        parts["train"], "latency", "values"
    )
    rates = {part: _at(one, "throughput", "value") for part, one in parts.items()}
    if not isinstance(values, list) and not any(
        isinstance(one, float) for one in rates.values()
    ):
        return None
    scenario = _at(config, "config", "scenario") or _at(config, "config", "benchmark")
    arguments = _at(scenario, "training_arguments")
    asked = {
        "batch_size": _at(arguments, "per_device_train_batch_size"),
        "accumulate": _at(arguments, "gradient_accumulation_steps"),
    }
    counts = {k: v for k, v in asked.items() if type(v) is int and 0 < v < 2**40}
    facts: dict[str, int | str] = {**counts}
    if _at(config, "config", "backend", "name") == "pytorch":
        facts["framework"] = "torch"
    source = (
        "huggingface/optimum-benchmark, scenarios/training/scenario.py and "
        "trackers/latency.py: latency is from on_step_begin to on_step_end"
    )
    return Contents(
        "optimum-benchmark",
        Semantics(rate_of="device", covers="step", reader="apart", source=source),
        _steps(values if isinstance(values, list) else [], _at(scenario, "max_steps")),
        facts,
        [
            figure(f"{part} throughput", repr(rate), "samples/s", 1)
            for part, rate in rates.items()
            if isinstance(rate, int | float)
        ],
    )


def _find(value: Any, key: str, depth: int = 4) -> Any:
    """The outermost dict with this key."""
    if not isinstance(value, dict) or key in value or not depth:
        return value if isinstance(value, dict) and key in value else None
    found = (_find(inner, key, depth - 1) for inner in [*value.values()][:100])
    return next((one for one in found if one), None)


def _at(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _steps(values: list[Any], steps: Any) -> Prints:
    """Prints of single steps; the `steps` of several processes stand one after the other."""
    numbers = np.arange(len(values))
    seconds = [figure("", repr(value), "s", 1).value for value in values]
    rank, step = np.full(len(values), -1), numbers + 1
    if type(steps) is int and 0 < steps <= len(values):
        rank, step = np.divmod(numbers, steps)
        step = step + 1
    return prints_of(len(values), rank=rank, step=step, seconds=seconds)


def _table(text: str) -> Contents | None:
    """A CSV of timm's or optimum-benchmark's: a row for each model or run."""
    head = text[:10_000].lstrip().partition("\n")[0]
    names = [name.strip() for name in head.split(",")]
    for name, wanted, source in TABLES:
        if len(names) > 1 and any(wanted(one) for one in names):
            rows = csv.DictReader(io.StringIO(text.lstrip()))
            try:
                figures = [*_cells(rows, wanted)]
            except csv.Error:
                return None
            if figures:
                framework: dict[str, int | str] = {"framework": "torch"}
                semantics = Semantics(source=source)
                return Contents(name, semantics, facts=framework, reported=figures)
    return None


def _cells(rows: Any, wanted: Callable[[str], bool]) -> Iterator[ReportedFigure]:
    for line, row in enumerate(rows, 2):
        label = str(row.get("model") or row.get("name") or "").strip()
        for name, value in row.items():
            if name and value and wanted(name):
                found = figure(f"{label} {name.strip()}".strip(), value, "samples/s", line)
                if not (NO_TRAINING.search(name) or np.isnan(found.value)):
                    yield found


TABLES: tuple[tuple[str, Callable[[str], bool], str], ...] = (
    (
        "timm, CSV",
        lambda name: name.strip() in ("train_samples_per_sec", "samples_per_sec"),
        "huggingface/pytorch-image-models, benchmark.py: samples of one device by the mean "
        "time of its steps",
    ),
    (
        "optimum-benchmark, CSV",
        lambda name: "throughput" in name and "inference" not in name,
        "huggingface/optimum-benchmark, report.to_csv: the report's fields, joined by dots",
    ),
)
NAMES = ("torchbench", "optimum-benchmark", *(name for name, _wanted, _source in TABLES))
