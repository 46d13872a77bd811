"""Measurements in the words of other tools, a file for each complete repeat: NVIDIA's DLLogger,
MLPerf's mllog, optimum-benchmark."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import accumulate
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from perfkit.config import select
from perfkit.models import MODELS
from perfkit.results.frames import load_steps
from perfkit.results.schema import Repeat, Result
from perfkit.results.store import Measurement, ResultError, write_atomically
from perfkit.results.summarize import check_against_raw

FOLDER = "exported"
"""Where exported files lie in a measurement's folder."""
OF_THIS_MACHINE = select(identifies=False) + select(private=True)
"""Parameters that say nothing of the training, or are not for others."""


class ExportError(ValueError):
    """A measurement can't be exported; the message names it and says why."""


class Step(NamedTuple):
    """A step as the rank saw it whose window was the longest; `number` counts from 1. `at` is
    when it ended, were the first step begun at the moment at which the repeat was: how long
    the processes took to start is not in it."""

    number: int
    seconds: float
    wait_seconds: float
    loss: float | None
    at: datetime


@dataclass(frozen=True)
class Training:
    """A complete repeat of a measurement; `steps` are all of it, warm-up included."""

    result: Result
    repeat: Repeat
    begin: datetime
    steps: list[Step]

    @property
    def step_samples(self) -> int:
        """Samples of a step, of all ranks."""
        return self.result.config.global_batch


def _trainings(measurement: Measurement) -> list[Training]:
    """The complete repeats. Raises ExportError where there are none, or where the raw steps are
    not those of the numbers."""
    result = measurement.result
    if result.imported:
        files = ", ".join(log.file for log in result.imported.logs)
        raise ExportError(f"{result.id}: was imported itself, from {files}")
    if not result.complete_repeats:
        raise ExportError(f"{result.id}: has no complete repeat")
    if wrong := check_against_raw(measurement):
        raise ExportError(f"{result.id}: the raw steps are not its own: {wrong[0]}")
    try:
        steps = load_steps(measurement.folder)
    except ResultError as error:
        raise ExportError(f"{result.id}: {error}") from error
    return [
        _training(result, repeat, steps[steps["repeat"] == repeat.index])
        for repeat in result.complete_repeats
    ]


def _training(result: Result, repeat: Repeat, steps: pd.DataFrame) -> Training:
    slowest = max(repeat.ranks, key=lambda rank: rank.window_seconds).rank
    own, of_first = steps[steps["rank"] == slowest], steps[steps["rank"] == 0]
    losses = of_first.set_index("step")["loss"].dropna().to_dict()
    begin = datetime.fromisoformat(repeat.began or result.created)
    return Training(
        result,
        repeat,
        begin,
        [
            Step(
                row.step,
                row.seconds,
                row.data_wait_seconds,
                losses.get(row.step),
                begin + timedelta(seconds=end),
            )
            for row, end in zip(own.itertuples(), accumulate(own["seconds"]), strict=True)
        ],
    )


def dllogger(training: Training) -> str:
    """As NVIDIA's DLLogger writes its file: the parameters, a `DLLL` line for each step by its
    epoch (0) and number, and the repeat's throughput. `train.step_time` is all of a step, the
    wait for input included."""
    result, begin = training.result, training.begin
    unit = MODELS[result.config.model].unit
    parameters = {"measurement": result.id, "repeat": training.repeat.index}
    parameters |= {"model": result.config.model, "devices": result.config.devices}
    parameters |= {k: v for k, v in result.parameters.items() if k not in OF_THIS_MACHINE}
    units = {"train.step_time": "s", "train.data_time": "s", "train.total_ips": unit}
    units["train_throughput"] = unit

    def line(at: datetime, kind: str, **content: Any) -> str:
        stamps: Mapping[str, Any] = {
            "timestamp": str(at.timestamp()),
            "datetime": at.replace(tzinfo=None).isoformat(" ", "microseconds"),
            "elapsedtime": str((at - begin).total_seconds()),
            "type": kind,
        }
        return f"DLLL {json.dumps({**stamps, **content})}\n"

    lines = [
        line(begin, "METADATA", metric=name, metadata={"unit": unit})
        for name, unit in units.items()
    ]
    lines.append(line(begin, "LOG", step="PARAMETER", data=parameters))
    for step in training.steps:
        data = {
            "train.step_time": step.seconds,
            "train.data_time": step.wait_seconds,
            "train.total_ips": training.step_samples / step.seconds,
        }
        data |= {} if step.loss is None else {"train.loss": step.loss}
        lines.append(line(step.at, "LOG", step=[0, step.number], data=data))
    total = {"train_throughput": training.repeat.throughput}
    lines.append(line(training.steps[-1].at, "LOG", step=[], data=total))
    return "".join(lines)


def mlperf(training: Training) -> str:
    """As MLPerf's mllog writes: of a training that was no submission, its sizes, where it
    begins and ends, and the throughput of each step in `tracked_stats`."""
    return "".join(
        ":::MLLOG "
        + json.dumps(
            {
                "namespace": "",
                "time_ms": round(at.timestamp() * 1000),
                "event_type": kind,
                "key": key,
                "value": value,
                "metadata": metadata,
            }
        )
        + "\n"
        for at, kind, key, value, metadata in _events(training)
    )


def _events(
    training: Training,
) -> Iterator[tuple[datetime, str, str, Any, dict[str, Any]]]:
    """When, event type, key, value, metadata."""
    config, protocol = training.result.config, training.result.protocol
    start, stop, point = "INTERVAL_START", "INTERVAL_END", "POINT_IN_TIME"
    sizes = {
        "global_batch_size": training.step_samples,
        "gradient_accumulation_steps": config.accumulate,
        "max_sequence_length": config.sequence_length,
        "seed": config.seed,
    }
    for key, value in sizes.items():
        if value is not None:
            yield training.begin, point, key, value, {}
    end = training.begin
    yield end, start, "run_start", None, {}
    for step in training.steps:
        if step.number == protocol.warmup_steps + 1:
            yield end, start, "block_start", None, {"step": step.number}
        end, stats = step.at, {"throughput": training.step_samples / step.seconds}
        if step.loss is not None:
            stats["loss"] = step.loss
        yield end, point, "tracked_stats", stats, {"step": step.number}
    yield end, stop, "block_stop", None, {"step": protocol.steps}
    yield end, stop, "run_stop", None, {"status": "success"}


def optimum(training: Training) -> str:
    """As optimum-benchmark reports a training: the latencies of its steps, one JSON object, of
    one device. Where that tool divides the samples of all steps by the mean of one step, this
    is samples / time."""
    steps, warmup = training.steps, training.result.protocol.warmup_steps
    parts = {"overall": steps, "warmup": steps[:warmup], "train": steps[warmup:]}
    report = {name: _part(some, training) for name, some in parts.items()}
    return json.dumps(report) + "\n"


def _part(steps: Sequence[Step], training: Training) -> dict[str, Any] | None:
    """None of no steps, as of a protocol without a warm-up."""
    if not steps:
        return None
    seconds = [step.seconds for step in steps]
    mean, ranks = fmean(seconds), training.result.config.ranks
    spread = pstdev(seconds)
    percentiles = {f"p{k}": float(np.percentile(seconds, k)) for k in (50, 90, 95, 99)}
    return {
        "memory": _memory(training),
        "latency": {
            "unit": "s",
            "values": seconds,
            "count": len(seconds),
            "total": sum(seconds),
            "mean": mean,
            **percentiles,
            "stdev": spread,
            "stdev_": spread / mean * 100,
        },
        "throughput": {"unit": "samples/s", "value": training.step_samples / ranks / mean},
        "energy": None,
        "efficiency": None,
    }


def _memory(training: Training) -> dict[str, Any] | None:
    """The peak of all ranks: of the processes on a CPU, of what is allocated on GPUs."""
    peaks = [rank.memory_bytes for rank in training.repeat.ranks]
    total = sum(peak or 0 for peak in peaks) / 1e6
    if training.result.config.device == "gpu" or None in peaks:
        return None
    none = ("max_global_vram", "max_process_vram", "max_reserved", "max_allocated")
    return {"unit": "MB", "max_ram": total, **dict.fromkeys(none)}


class Exporter(NamedTuple):
    """How a repeat is written, and how the name of such a file ends."""

    text: Callable[[Training], str]
    ending: str


EXPORTERS = {
    "dllogger": Exporter(dllogger, "dllogger.json"),
    "mlperf": Exporter(mlperf, "mlperf.txt"),
    "optimum": Exporter(optimum, "benchmark_report.json"),
}


def export(measurement: Measurement, name: str, to: Path | None = None) -> list[Path]:
    """Write the complete repeats by the exporter `name`, into `to` or beside the measurement;
    the files. Raises ExportError where no number stands behind the measurement's raw steps,
    OSError."""
    form = EXPORTERS[name]
    texts = [(one.repeat.index, form.text(one)) for one in _trainings(measurement)]
    folder = to or measurement.folder / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for index, text in texts:
        files.append(folder / f"{measurement.result.id}-{index}.{form.ending}")
        write_atomically(files[-1], text)
    return files


def printed(measurement: Measurement, name: str) -> str:
    """The same as one text: the repeats one after the other. Raises ExportError."""
    return "".join(EXPORTERS[name].text(one) for one in _trainings(measurement))
