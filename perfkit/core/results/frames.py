"""Stored measurements as pandas DataFrames."""

from collections.abc import Iterable, Iterator
from math import isfinite
from pathlib import Path
from typing import Any

import pandas as pd

from perfkit.core.config import parameters
from perfkit.core.models import model_of
from perfkit.core.paths import resolved_path
from perfkit.core.results.store import (
    Measurement,
    ResultError,
    Store,
    read_events,
    read_result,
)

MEASURED = ["throughput", "throughput_low", "throughput_high", "interval_level", "n", "unit"]
MEASURED += ["repeat_throughputs", "steps_per_second", "data_wait_share"]
MEASURED += ["other_load_cores", "energy_joules_per_sample"]
COLUMNS = ["id", "folder", "status", "failure", "created", "model", *parameters(), "topology"]
COLUMNS += ["statistic", *MEASURED, "effective.precision", "effective.tf32"]
COLUMNS += ["nodes_differ", "input_sha256"]
"""Columns that `load` always has, besides `environment.<fact>` for each fact."""
STEP_COLUMNS = ["repeat", "rank", "step", "seconds", "data_wait_seconds", "samples"]
STEP_COLUMNS += ["loss", "measured"]
Row = dict[str, Any]
"""Column -> value of one measurement, without the columns that have no value."""


def as_frame(found: Iterable[Row]) -> pd.DataFrame:
    """Return the frame of `load` for these rows."""
    rows = [*found]
    names = [*COLUMNS, *sorted({name for row in rows for name in row} - {*COLUMNS})]
    numbers = [name for name in MEASURED if name not in ("n", "unit", "repeat_throughputs")]
    others = [name for name in names if name not in numbers]

    def part(names: list[str], dtype: type) -> pd.DataFrame:
        cells = [[row.get(name) for name in names] for row in rows]
        return pd.DataFrame(cells, columns=names, dtype=dtype)

    # Converting single columns would make a block of each, which is slow.
    return pd.concat([part(others, object), part(numbers, float)], axis="columns")[names]


def row_of(measurement: Measurement) -> Row:
    """Return the row of `load` for one measurement, without the columns it has no value for."""
    result = measurement.result
    config, number, used = result.config, result.throughput, result.effective
    differences = {f"{k}: {v}" for node in result.nodes for k, v in node.differs.items()}
    row = {
        "id": result.id,
        "folder": measurement.folder.name,
        "status": result.status,
        "failure": result.failure.code if result.failure else None,
        "created": result.created,
        "model": config.model,
        **result.parameters,
        "topology": config.topology,
        "repeat_throughputs": tuple(result.throughputs),
        "data_wait_share": result.data_wait_share,
        "other_load_cores": result.other_load_cores,
        "energy_joules_per_sample": result.energy_joules_per_sample,
        "statistic": result.protocol.statistic,
        "unit": model_of(config).unit,
        "nodes_differ": "; ".join(sorted(differences)) or None,
        "input_sha256": result.input_data.sha256 if result.input_data else None,
    }
    if number:
        low, high = number.interval or (None, None)
        row |= {"throughput": number.value, "throughput_low": low, "throughput_high": high}
        row |= {"interval_level": number.interval_level, "n": number.n}
        row |= {"steps_per_second": number.steps_per_second}
    if used:
        row |= {"effective.precision": used.precision, "effective.tf32": used.tf32}
    for name, reading in result.environment.items():
        value = reading.value
        row[f"environment.{name}"] = "; ".join(value) if isinstance(value, list) else value
    return row


def load_steps(folder: str | Path) -> pd.DataFrame:
    """Return the raw steps of one measurement, including warm-up, one row per step and rank:
    repeat, rank, step, seconds, data_wait_seconds, samples, loss, measured.

    A relative path starts at the checkout. Raises ResultError if a file does not have the
    events of a rank.
    """
    folder = resolved_path(str(folder))
    return steps_of(Measurement(folder, read_result(Store(folder).result_file)))


def steps_of(measurement: Measurement) -> pd.DataFrame:
    """Return the raw steps of a measurement that has been read, as `load_steps` does."""
    result = measurement.result
    rows: list[tuple[Any, ...]] = []
    for repeat in result.repeats:
        for rank in range(result.config.ranks):
            path = measurement.rank_file(repeat.index, rank)
            if not path.exists():
                continue
            try:
                rows += [(repeat.index, rank, *step) for step in _steps(read_events(path))]
            except ResultError:
                raise
            except (KeyError, TypeError, ValueError, ArithmeticError, OSError) as error:
                problem = f"not the events of a rank ({error!r})"
                raise ResultError(path, problem) from error
    frame = pd.DataFrame(rows, columns=STEP_COLUMNS[:-1])
    warmup = {repeat.index: result.warmup_steps(repeat) for repeat in result.repeats}
    return frame.assign(measured=frame["step"] > frame["repeat"].map(warmup))


def _steps(events: list[dict[str, Any]]) -> Iterator[tuple[Any, ...]]:
    losses = {e["step"]: e["value"] for e in events if e["event"] == "loss"}
    seen: set[int] = set()
    for event in events:
        if event["event"] == "step":
            seconds, wait = float(event["seconds"]), float(event["data_wait_seconds"])
            if not (isfinite(seconds) and isfinite(wait)) or seconds <= 0:
                raise ValueError(f"step {event['step']} takes {seconds} s")
            step, samples = int(event["step"]), int(event["samples"])
            if step in seen or samples < 1:
                raise ValueError(f"step {step} is given twice, or has {samples} samples")
            seen.add(step)
            yield step, seconds, wait, samples, losses.get(step)


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows as dictionaries, with None for missing values."""
    # Many times faster than to_dict for few rows of many columns.
    rows = frame.astype(object).where(frame.notna(), None).to_numpy().tolist()
    return [dict(zip(frame.columns, row, strict=True)) for row in rows]


def row_order(row: dict[str, Any]) -> tuple[Any, ...]:
    """Return the sort key of a row of `load`: batch size, then devices, then nodes."""
    return (row["batch_size"], *topology_size(row["topology"]), row["id"], row["folder"])


def topology_size(topology: str) -> tuple[int, int]:
    """Return the number of devices of all nodes, and of nodes, of a topology `NxG`."""
    nodes, devices = map(int, topology.split("x"))
    return (nodes * devices, nodes)
