"""Stored measurements as pandas DataFrames."""

from collections.abc import Iterable, Mapping
from math import nan
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from perfkit.measuring.parameters import CONTENTS, parameters
from perfkit.measuring.results.schema import NodeSeen, Throughput
from perfkit.measuring.results.store import (
    Events,
    Measurement,
    ResultError,
    read_events,
)
from perfkit.measuring.statistics import median

MEASURED = [
    "throughput",
    "throughput_low",
    "throughput_high",
    "interval_level",
    "n",
    "unit",
    "repeat_throughputs",
    "steps_per_second",
    "data_wait_share",
    "other_load_cores",
    "disturbed",
    "energy_joules_per_sample",
    "throughput_per_device",
    "tflops_per_device",
    "share_of_peak",
    "peak_memory_bytes",
    "first_step_seconds",
]
NO_FLOATS = ("n", "unit", "repeat_throughputs", "disturbed", "peak_memory_bytes")
FLOATS = [name for name in MEASURED if name not in NO_FLOATS]
COLUMNS = [
    *("id", "folder", "status", "failure", "created", "model"),
    *parameters(),
    *("topology", "statistic"),
    *MEASURED,
    *("effective.precision", "effective.tf32", "effective.threads"),
    *("nodes_differ", "input_sha256"),
]
"""Columns that `load` always has, besides `environment.<fact>` for each fact; with scripts
also `script`, `arguments`, `script_sha256` and, for what a script told, `told.<field>`."""
MeasurementRow = dict[str, Any]
"""Column -> value of one measurement, without the columns that have no value."""


class RawStep(NamedTuple):
    """One step of one rank, as in its raw file, or the `steps` up to `step` of which a line of
    a log tells. `loss` is None if it was not read, `data_wait_seconds` is NaN if a script does
    not tell it."""

    repeat: int
    rank: int
    step: int
    seconds: float
    data_wait_seconds: float
    samples: int
    loss: float | None
    steps: int


def as_frame(measurement_rows: Iterable[MeasurementRow]) -> pd.DataFrame:
    """Return the frame of `load` for these rows."""
    rows = [*measurement_rows]
    other_names: set[str] = set()
    for row in rows:
        other_names |= row.keys() - {*COLUMNS}
    names = [*COLUMNS, *sorted(other_names)]
    objects = [name for name in names if name not in FLOATS]
    # Converting single columns would make a block of each, which is slow.
    parts = [_columns(rows, objects, object), _columns(rows, FLOATS, float)]
    return pd.concat(parts, axis="columns")[names]


def _columns(rows: list[MeasurementRow], names: list[str], dtype: type) -> pd.DataFrame:
    cells = []
    for row in rows:
        cells.append([row.get(name) for name in names])
    return pd.DataFrame(cells, columns=names, dtype=dtype)


def row_of(measurement: Measurement) -> MeasurementRow:
    """Return the row of `load` for one measurement, without the columns it has no value for."""
    result = measurement.result
    config, failure, input_data = result.config, result.failure, result.input_data
    row = {
        "id": result.id,
        "folder": measurement.folder.name,
        "status": result.status,
        "failure": failure and failure.code,
        "created": result.created,
        "model": result.work.name,
        **result.parameters,
        "topology": config.topology,
        "repeat_throughputs": tuple(result.throughputs),
        "data_wait_share": result.data_wait_share,
        "other_load_cores": result.other_load_cores,
        "disturbed": result.is_disturbed,
        "energy_joules_per_sample": result.energy_joules_per_sample,
        "peak_memory_bytes": result.peak_memory_bytes,
        "first_step_seconds": result.first_step_seconds,
        "statistic": result.protocol.statistic,
        "unit": result.counts.unit,
        "nodes_differ": _differences(result.nodes) or None,
        "input_sha256": input_data and input_data.sha256,
    }
    row |= config.work.model_dump(include={*CONTENTS} - {"modules", "files"})
    if result.throughput:
        row |= _throughput_columns(result.throughput)
        row["throughput_per_device"] = result.throughput_per_device
        row["tflops_per_device"] = result.tflops_per_device
        shares = result.shares_of_peak
        row["share_of_peak"] = median(shares) if shares else None
    if result.told:
        told = result.told.model_dump()
        row |= {f"told.{name}": value for name, value in told.items()}
    if result.effective:
        row["effective.precision"] = result.effective.precision
        row["effective.tf32"] = result.effective.tf32
        row["effective.threads"] = ", ".join(map(str, result.effective.thread_counts))
    for name, reading in result.environment.items():
        value = reading.value
        row[f"environment.{name}"] = "; ".join(value) if isinstance(value, list) else value
    return row


def listed(values: Mapping[str, Any]) -> str:
    """Return named values as text, sorted by name: "libgomp=2, libiomp=2"."""
    return ", ".join(f"{name}={value}" for name, value in sorted(values.items()))


def _differences(nodes: list[NodeSeen]) -> str:
    """Return the facts in which nodes differ from the first one."""
    differences = set()
    for node in nodes:
        differences |= {f"{fact}: {values}" for fact, values in node.differs.items()}
    return "; ".join(sorted(differences))


def _throughput_columns(throughput: Throughput) -> MeasurementRow:
    low, high = throughput.interval or (None, None)
    return {
        "throughput": throughput.value,
        "throughput_low": low,
        "throughput_high": high,
        "interval_level": throughput.interval_level,
        "n": throughput.n,
        "steps_per_second": throughput.steps_per_second,
    }


def load_steps(folder: str | Path) -> pd.DataFrame:
    """Return the raw steps of one measurement, including warm-up, one row per step and rank:
    repeat, rank, step, seconds, data_wait_seconds (NaN if a script does not tell it), samples,
    loss, steps, measured. A row of a command's log has the seconds and samples of its `steps`
    up to `step`.

    Raises ResultError if a file does not have the events of a rank.
    """
    return steps_of(Measurement.read(folder))


def steps_of(measurement: Measurement) -> pd.DataFrame:
    """Return the raw steps of a measurement that has been read, as `load_steps` does."""
    result = measurement.result
    steps: list[RawStep] = []
    warmup_steps = {}
    for repeat in result.repeats:
        warmup_steps[repeat.index] = result.warmup_steps(repeat)
        for rank in range(result.config.ranks):
            path = measurement.rank_file(repeat.index, rank)
            if path.exists():
                steps += _steps_in(path, repeat.index, rank)
    frame = pd.DataFrame(steps, columns=RawStep._fields)
    return frame.assign(measured=frame["step"] > frame["repeat"].map(warmup_steps))


def _steps_in(path: Path, repeat: int, rank: int) -> list[RawStep]:
    """Return the steps in a rank's raw file. Raises ResultError."""
    try:
        return _steps(read_events(path), repeat, rank)
    except ResultError:
        raise
    except (KeyError, TypeError, ValueError, OSError) as error:
        raise ResultError(path, f"not the events of a rank ({error!r})") from error


def _steps(events: Events, repeat: int, rank: int) -> list[RawStep]:
    """Return the steps among the raw events of a rank. Raises the errors of events that lack a
    value."""
    losses = {event["step"]: event["value"] for event in events if event["event"] == "loss"}
    steps = []
    for event in events:
        if event["event"] != "step":
            continue
        step = RawStep(
            repeat=repeat,
            rank=rank,
            step=int(event["step"]),
            seconds=float(event["seconds"]),
            data_wait_seconds=float(event.get("data_wait_seconds", nan)),
            samples=int(event["samples"]),
            loss=losses.get(int(event["step"])),
            steps=int(event.get("steps", 1)),
        )
        steps.append(step)
    return steps


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows as dictionaries, with None for missing values."""
    objects = frame.astype(object)
    without_nan = objects.where(frame.notna(), None)
    # Many times faster than to_dict for few rows of many columns.
    rows = without_nan.to_numpy().tolist()
    return [dict(zip(frame.columns, row, strict=True)) for row in rows]


def row_order(row: dict[str, Any]) -> tuple[Any, ...]:
    """Return the sort key of a row of `load`: batch size, of a script samples per step, then
    devices, then nodes."""
    batch = row.get("batch_size") or row.get("told.samples_per_step") or 0
    return (batch, *topology_size(row["topology"]), row["id"], row["folder"])


def topology_size(topology: str) -> tuple[int, int]:
    """Return the number of devices of all nodes, and of nodes, of a topology `NxG`."""
    nodes, devices = map(int, topology.split("x"))
    return (nodes * devices, nodes)
