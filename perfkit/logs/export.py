"""Export measurements to other tools' formats, one file per complete repeat: NVIDIA's DLLogger,
MLPerf's mllog and optimum-benchmark; and series to CSV files for Apache Otava."""

import json
import re
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import yaml

from perfkit.comparison.history import History
from perfkit.config import select
from perfkit.models import MODELS, units_per_sample
from perfkit.results.frames import load_steps, records
from perfkit.results.schema import Repeat, Result
from perfkit.results.store import Measurement, ResultError, make_folder, write_atomically
from perfkit.results.summarize import check_against_raw

CONFIG = "otava.yaml"
ATTRIBUTES = ("measurement", "label", "changes")


def otava_files(history: History) -> dict[str, str]:
    """Return name -> text of the files: a CSV per series with a row per measurement, and the
    configuration that declares them as tests, with higher `throughput` as better."""
    files, tests = {}, {}
    for number, series in enumerate(history.series):
        slug = re.sub(r"[^a-z0-9]+", "-", series.name.lower()).strip("-")[:80]
        name = f"{number:03}-{slug}"
        rows = [
            (point.created, point.throughput, point.id, point.label, " ".join(point.changes))
            for point in series.points
        ]
        table = pd.DataFrame(rows, columns=["time", "throughput", *ATTRIBUTES])
        files[f"{name}.csv"] = table.to_csv(index=False, lineterminator="\n")
        tests[name] = {
            "type": "csv",
            "file": f"{name}.csv",
            "time_column": "time",
            "metrics": {"throughput": {"column": "throughput", "direction": 1, "scale": 1}},
            "attributes": [*ATTRIBUTES],
        }
    return files | {CONFIG: yaml.safe_dump({"tests": tests}, sort_keys=False)}


FOLDER = "exported"
OF_THIS_MACHINE = select(identifies=False) + select(private=True)
"""Parameters that do not define the training or are private."""
DLLOGGER_KEYS = {
    "train.step_time": "seconds",
    "train.data_time": "data_wait_seconds",
    "train.total_ips": "units_per_second",
    "train.loss": "loss",
}
PERCENTILES = (50, 90, 95, 99)


class Training(NamedTuple):
    """A complete repeat of a measurement, warm-up included.

    `steps` are those of the rank with the longest window: step (from 1), seconds,
    data_wait_seconds, loss (None if there is none), samples_per_second and units_per_second
    (tokens for some models) of all ranks, and the end time `at`, which assumes that the first
    step began with the repeat: the start-up time of the processes is not included.
    """

    result: Result
    repeat: Repeat
    begin: datetime
    steps: list[dict[str, Any]]
    warmup_steps: int


def _trainings(measurement: Measurement) -> Iterator[Training]:
    """Yield the complete repeats. Raises ResultError if there are none, or if the raw steps do
    not match the stored numbers."""
    result, why = measurement.result, ""
    if result.imported:
        files = ", ".join(log.file for log in result.imported.logs)
        why = f"imported from {files}, so it can't be exported"
    elif not result.complete_repeats:
        why = "no complete repeat"
    elif wrong := check_against_raw(measurement):
        why = f"raw steps and result differ: {wrong[0]}"
    if why:
        raise ResultError(f"{result.id}: {why}")
    all_steps = load_steps(measurement.folder)
    for repeat in result.complete_repeats:
        slowest = max(repeat.ranks, key=lambda rank: rank.window_seconds).rank
        of_repeat = all_steps[all_steps["repeat"] == repeat.index].set_index("step")
        steps = of_repeat[of_repeat["rank"] == slowest]
        rates = result.config.global_batch / steps["seconds"]
        begin = datetime.fromisoformat(repeat.began or result.created)
        ended = [begin + timedelta(seconds=after) for after in steps["seconds"].cumsum()]
        steps = steps.assign(
            loss=of_repeat[of_repeat["rank"] == 0]["loss"],
            samples_per_second=rates,
            units_per_second=rates * units_per_sample(result.config),
        )
        rows = [
            row | {"at": at}
            for row, at in zip(records(steps.reset_index()), ended, strict=True)
        ]
        yield Training(result, repeat, begin, rows, result.warmup_steps(repeat))


def dllogger(training: Training) -> str:
    """Return a repeat as NVIDIA's DLLogger writes it: the parameters, a `DLLL` line per step
    with epoch (0) and step number, and the repeat's throughput. `train.step_time` is the whole
    step, including the wait for input."""
    result, begin, end = training.result, training.begin, training.steps[-1]["at"]
    parameters = {"measurement": result.id, "repeat": training.repeat.index}
    parameters |= {"model": result.config.model, "devices": result.config.devices}
    parameters |= {k: v for k, v in result.parameters.items() if k not in OF_THIS_MACHINE}
    units = dict.fromkeys(("train.step_time", "train.data_time"), "s")
    units |= dict.fromkeys(
        ("train.total_ips", "train_throughput"), MODELS[result.config.model].unit
    )
    lines: list[tuple[datetime, dict[str, Any]]] = [
        (begin, {"type": "METADATA", "metric": name, "metadata": {"unit": unit}})
        for name, unit in units.items()
    ]
    lines.append((begin, {"type": "LOG", "step": "PARAMETER", "data": parameters}))
    for step in training.steps:
        data = {key: step[name] for key, name in DLLOGGER_KEYS.items()}
        known = {key: value for key, value in data.items() if value is not None}
        lines.append((step["at"], {"type": "LOG", "step": [0, step["step"]], "data": known}))
    summary = {"train_throughput": training.repeat.throughput}
    lines.append((end, {"type": "LOG", "step": [], "data": summary}))
    stamped = (
        {
            "timestamp": str(at.timestamp()),
            "datetime": at.replace(tzinfo=None).isoformat(" ", "microseconds"),
            "elapsedtime": str((at - begin).total_seconds()),
            **content,
        }
        for at, content in lines
    )
    return "".join(f"DLLL {json.dumps(line)}\n" for line in stamped)


def mlperf(training: Training) -> str:
    """Return a repeat as MLPerf's mllog events, without submission fields: sizes, begin and
    end, and the throughput of each step in `tracked_stats`."""
    config, steps, begin = training.result.config, training.steps, training.begin
    lines: list[str] = []

    def log(at: datetime, kind: str, key: str, value: Any = None, **metadata: Any) -> None:
        event = {"namespace": "", "time_ms": round(at.timestamp() * 1000), "event_type": kind}
        event |= {"key": key, "value": value, "metadata": metadata}
        lines.append(f":::MLLOG {json.dumps(event)}\n")

    sizes = {
        "global_batch_size": config.global_batch,
        "gradient_accumulation_steps": config.accumulate,
        "max_sequence_length": config.sequence_length,
        "seed": config.seed,
    }
    for key, value in sizes.items():
        if value is not None:
            log(begin, "POINT_IN_TIME", key, value)
    log(begin, "INTERVAL_START", "run_start")
    before = begin
    for row in steps:
        step, at, stats = row["step"], row["at"], {"throughput": row["samples_per_second"]}
        stats |= {} if row["loss"] is None else {"loss": row["loss"]}
        if step == training.warmup_steps + 1:
            log(before, "INTERVAL_START", "block_start", step=step)
        log(at, "POINT_IN_TIME", "tracked_stats", stats, step=step)
        before = at
    log(before, "INTERVAL_END", "block_stop", step=steps[-1]["step"])
    log(before, "INTERVAL_END", "run_stop", status="success")
    return "".join(lines)


def optimum(training: Training) -> str:
    """Return a repeat as optimum-benchmark's training report: one JSON object with the step
    latencies of one device. Throughput is samples / time, where optimum-benchmark divides the
    samples of all steps by the mean of one step."""
    config = training.result.config
    seconds = [step["seconds"] for step in training.steps]

    def part(seconds: list[float]) -> dict[str, Any] | None:
        if not seconds:
            return None
        mean, spread = fmean(seconds), pstdev(seconds)
        latency = {"unit": "s", "values": seconds, "count": len(seconds)}
        latency |= {"total": sum(seconds), "mean": mean}
        latency |= {f"p{k}": float(np.percentile(seconds, k)) for k in PERCENTILES}
        rate = config.global_batch / config.ranks / mean
        return {
            "latency": latency | {"stdev": spread, "stdev_": spread / mean * 100},
            "throughput": {"unit": "samples/s", "value": rate},
            **dict.fromkeys(("memory", "energy", "efficiency")),
        }

    warmup = training.warmup_steps
    parts = {"overall": seconds, "warmup": seconds[:warmup], "train": seconds[warmup:]}
    return json.dumps({name: part(values) for name, values in parts.items()}) + "\n"


EXPORTERS: dict[str, tuple[Callable[[Training], str], str]] = {
    "dllogger": (dllogger, "dllogger.json"),
    "mlperf": (mlperf, "mlperf.txt"),
    "optimum": (optimum, "benchmark_report.json"),
}
"""Name -> writer of a repeat, and ending of its file name."""


def export(measurement: Measurement, name: str, to: Path | None = None) -> list[Path]:
    """Write each complete repeat in the format `name` into `to` or the measurement's folder,
    and return the paths. Raises OSError, or ResultError if there is nothing to export."""
    write, ending = EXPORTERS[name]
    folder, files = to or measurement.folder / FOLDER, []
    for training in _trainings(measurement):
        files.append(folder / f"{training.result.id}-{training.repeat.index}.{ending}")
        make_folder(folder)
        write_atomically(files[-1], write(training))
    return files
