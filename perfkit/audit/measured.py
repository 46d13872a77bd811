"""perfkit's own measurements as logs, so that another suite's log stands beside one.

The steps are those of the measured window of the repeat whose throughput is the median of all
repeats; with an even number, of the two in the middle. All of them are steady: the measurement
has decided so.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from perfkit.audit.config_facts import Facts
from perfkit.audit.documents import figure
from perfkit.audit.formats import Semantics
from perfkit.audit.log import Log, LogError, prints_of, windows_of
from perfkit.audit.rows import json_records, parsed
from perfkit.audit.statements import FactValue
from perfkit.core.format import amount
from perfkit.core.results.frames import steps_of
from perfkit.core.results.schema import Result
from perfkit.core.results.store import Measurement, ResultError, Store, read_result
from perfkit.core.script_config import ScriptConfig

RESULT = "result.json"
RANK_FILE = re.compile(r"rank(\d{1,6})\.jsonl")
FIELDS = {"schema_version", "config", "protocol", "repeats"}
"""Fields by which a result.json of perfkit is known."""
FORMAT = "perfkit"
SEMANTICS = Semantics(
    rate_of="all",
    covers="step",
    reader="in",
    source="docs/results.md: a line per step of a rank, with its time",
)
FRAMES = ["repeat", "rank", "step", "seconds", "data_wait_seconds"]


def read(path: Path, text: str) -> Log | None:
    """Read a measurement by its result.json, or one raw file of a rank; None if the file is
    neither. Raises LogError if the measurement can't be read or has no complete repeat."""
    if path.name == RESULT and _is_result(text):
        return _of_measurement(path, _measurement(path.parent))
    match = RANK_FILE.fullmatch(path.name)
    if match and text.startswith('{"event":'):
        folder = path.absolute().parents[2]
        if Store(folder).result_file.exists():
            repeat, rank = path.absolute().parent.name, int(match[1])
            return _of_rank(path, _measurement(folder), repeat, rank)
        return _of_lone_file(path, text, int(match[1]))
    return None


def without_raw_files(files: Sequence[Path]) -> list[Path]:
    """Return the files without those that belong to a measurement whose result.json is among
    them."""
    folders = set()
    for file in files:
        if file.name == RESULT and (file.parent / "repeats").is_dir():
            folders.add(file.parent)
    kept = []
    for file in files:
        is_result = file.name == RESULT and file.parent in folders
        if is_result or folders.isdisjoint(file.parents):
            kept.append(file)
    return kept


def _is_result(text: str) -> bool:
    document = parsed(text)
    return isinstance(document, dict) and document.keys() >= FIELDS


def _measurement(folder: Path) -> Measurement:
    """Read the measurement in a folder of any name. Raises LogError."""
    path = Store(folder).result_file
    try:
        return Measurement(folder, read_result(path))
    except ResultError as error:
        raise LogError(path, str(error)) from error


def _of_measurement(path: Path, measurement: Measurement) -> Log:
    result = measurement.result
    throughput = result.throughput
    if not throughput:
        raise LogError(path, "a measurement without a complete repeat: it has no throughput")
    indices = _median_repeats(result)
    frame = _measured_steps(path, measurement)
    frame = frame[frame["repeat"].isin(indices)]
    log = _log(path, _to_the_end(frame, result), _facts(result))
    name = f"throughput, median of {amount(throughput.n, 'repeat')}"
    log.reported = [figure(f"{name}, {result.work.unit}", throughput.value, 1)]
    return log


def _median_repeats(result: Result) -> list[int]:
    """Return the numbers of the one or two repeats whose throughput is in the middle."""
    repeats = [(repeat.throughput, repeat.index) for repeat in result.complete_repeats]
    ordered = [index for _throughput, index in sorted(repeats)]
    count = len(ordered)
    return sorted(ordered[(count - 1) // 2 : count // 2 + 1])


def _of_rank(path: Path, measurement: Measurement, repeat: str, rank: int) -> Log:
    frame = _measured_steps(path, measurement)
    is_of_file = (frame["repeat"].astype(str) == repeat) & (frame["rank"] == rank)
    if not is_of_file.any():
        raise LogError(path, "no measured step")
    result = measurement.result
    return _log(path, _to_the_end(frame[is_of_file], result), _facts(result))


def _measured_steps(path: Path, measurement: Measurement) -> pd.DataFrame:
    """Return the steps of the measured windows. Raises LogError."""
    try:
        frame = steps_of(measurement)
    except ResultError as error:
        raise LogError(path, str(error)) from error
    return frame[frame["measured"]]


def _to_the_end(frame: pd.DataFrame, result: Result) -> pd.DataFrame:
    """Return the steps with the last one of each window ending when the window ends: when the
    device has completed it."""
    frame = frame.copy()
    for repeat in result.complete_repeats:
        for rank in repeat.ranks:
            of_rank = (frame["repeat"] == repeat.index) & (frame["rank"] == rank.rank)
            seconds = frame.loc[of_rank, "seconds"]
            if len(seconds):
                frame.loc[seconds.index[-1], "seconds"] += rank.window_seconds - seconds.sum()
    return frame


def _of_lone_file(path: Path, text: str, rank: int) -> Log:
    """Return the steps of a rank's file without its measurement: those behind the warm-up if
    its protocol does not fix their number, else all. Raises LogError."""
    try:
        return _of_events(path, [event for _line, event in json_records(text)], rank)
    except (TypeError, ValueError, ArithmeticError) as error:
        raise LogError(path, f"not the events of a rank ({error})") from error


def _of_events(path: Path, events: Sequence[Mapping[str, Any]], rank: int) -> Log:
    rows = []
    samples, warmup_steps = set(), 0
    for event in events:
        if event.get("event") == "warmup":
            warmup_steps = int(event["steps"])
        if event.get("event") == "step":
            rows.append([1, rank, *(event.get(name) for name in FRAMES[2:])])
            samples.add(event.get("samples"))
    frame = pd.DataFrame(rows, columns=FRAMES).astype(float)
    frame = frame[(frame["step"] > warmup_steps) & (frame["seconds"] > 0)]
    if not len(frame):
        raise ValueError("no step with a time")
    facts: dict[str, FactValue] = {}
    if len(samples) == 1:
        facts["batch_size"] = int(samples.pop() or 0)
    log = _log(path, frame, facts)
    log.is_measured = warmup_steps > 0
    return log


def _log(path: Path, frame: pd.DataFrame, facts: dict[str, FactValue]) -> Log:
    """Return a log of these steps; the repeats are its epochs."""
    columns: dict[str, Sequence[Any]] = {
        "line": [*range(1, len(frame) + 1)],
        "rank": [*frame["rank"]],
        "epoch": [*frame["repeat"]],
        "step": [*frame["step"]],
        "seconds": [*frame["seconds"]],
        "reader": [*frame["data_wait_seconds"]],
    }
    return Log(
        path=path,
        format=FORMAT,
        sha256="",
        semantics=SEMANTICS,
        windows=windows_of(prints_of(columns), SEMANTICS),
        facts=Facts(**facts).by_name,
        is_measured=True,
    )


def _facts(result: Result) -> dict[str, FactValue]:
    """Return the configuration of a measurement."""
    config = result.config
    if isinstance(config, ScriptConfig):
        return _script_facts(result, config)
    return {
        "model": config.model,
        "framework": config.framework,
        "precision": config.precision,
        "nodes": config.nodes,
        "devices": config.ranks // config.nodes,
        "ranks": config.ranks,
        "batch_size": config.batch_size,
        "accumulate": config.accumulate,
        "global_batch_size": config.global_batch,
        "sequence_length": config.sequence_length or 0,
        "unit": result.work.unit,
    }


def _script_facts(result: Result, config: ScriptConfig) -> dict[str, FactValue]:
    """Return the configuration of a script, whose samples per step are those it told."""
    return {
        "framework": config.framework,
        "nodes": config.nodes,
        "devices": config.devices,
        "ranks": config.ranks,
        "batch_size": result.work.samples_per_step or 0,
        "global_batch_size": result.global_batch,
        "unit": result.work.unit,
    }
