"""Stored measurements as pandas DataFrames."""

from pathlib import Path
from typing import Any

import pandas as pd

from perfkit.config import parameter_values
from perfkit.results import Result, ResultError, folders, raw_file, read_events, read_result

STEP_COLUMNS = ["repeat", "rank", "step", "seconds", "data_wait_seconds", "samples"]
STEP_COLUMNS += ["loss", "measured"]


def load(outputs: str | Path) -> pd.DataFrame:
    """One row per measurement under `outputs`; columns are named as the parameters, plus
    throughput, throughput_low, throughput_high (in `unit`), steps_per_second, status, id.

    Files that can't be read are left out of the rows and named in `.attrs["unreadable"]`.
    """
    rows, unreadable = [], []
    for folder in folders(Path(outputs)):
        try:
            rows.append(_row(read_result(folder / "result.json")))
        except ResultError as error:
            unreadable.append(str(error))
    frame = pd.DataFrame(rows, columns=None if rows else ["id", "status", "throughput"])
    frame.attrs["unreadable"] = unreadable
    return frame


def _row(result: Result) -> dict[str, Any]:
    number = result.throughput
    low, high = number.interval if number and number.interval else (None, None)
    return {
        "id": result.id,
        "status": result.status,
        "model": result.config.model,
        **parameter_values(result.config, result.protocol),
        "throughput": number.value if number else None,
        "throughput_low": low,
        "throughput_high": high,
        "steps_per_second": number.steps_per_second if number else None,
        "unit": number.unit if number else None,
    }


def load_steps(folder: str | Path) -> pd.DataFrame:
    """Every raw step of one measurement, warm-up included, one row per step and rank:
    repeat, rank, step, seconds, data_wait_seconds, samples, loss, measured."""
    folder = Path(folder)
    result = read_result(folder / "result.json")
    rows: list[dict[str, Any]] = []
    for repeat in result.repeats:
        for rank in range(result.config.ranks):
            path = raw_file(folder, repeat.index, rank)
            events = read_events(path) if path.exists() else []
            losses = {e["step"]: e["value"] for e in events if e["event"] == "loss"}
            rows += [
                {
                    "repeat": repeat.index,
                    "rank": rank,
                    "step": e["step"],
                    "seconds": e["seconds"],
                    "data_wait_seconds": e["data_wait_seconds"],
                    "samples": e["samples"],
                    "loss": losses.get(e["step"]),
                    "measured": e["step"] > result.protocol.warmup_steps,
                }
                for e in events
                if e["event"] == "step"
            ]
    return pd.DataFrame(rows, columns=STEP_COLUMNS)
