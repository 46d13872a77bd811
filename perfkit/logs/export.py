"""Measurements in the formats of other tools, a file for each complete repeat: NVIDIA's
DLLogger, MLPerf's mllog, optimum-benchmark."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
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


@dataclass(frozen=True)
class Training:
    """A complete repeat of a measurement, warm-up included.

    `steps` are those of the rank with the longest window: step (from 1), seconds,
    data_wait_seconds, loss (None if there is none), and `at`, when it ended, were the first
    step begun when the repeat was: how long the processes took to start is not in it.
    """

    result: Result
    repeat: Repeat
    begin: datetime
    steps: list[dict[str, Any]]

    @property
    def step_samples(self) -> int:
        """Samples of a step, of all ranks."""
        return self.result.config.global_batch


def _trainings(measurement: Measurement) -> Iterator[Training]:
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
        every = load_steps(measurement.folder)
    except ResultError as error:
        raise ExportError(f"{result.id}: {error}") from error
    for repeat in result.complete_repeats:
        slowest = max(repeat.ranks, key=lambda rank: rank.window_seconds).rank
        of_repeat = every[every["repeat"] == repeat.index].set_index("step")
        steps = of_repeat[of_repeat["rank"] == slowest]
        losses = of_repeat[of_repeat["rank"] == 0]["loss"].astype(object)
        begin = datetime.fromisoformat(repeat.began or result.created)
        moments = [begin + timedelta(seconds=end) for end in steps["seconds"].cumsum()]
        steps = steps.assign(
            loss=losses.where(losses.notna(), None), at=pd.Series(moments, steps.index, object)
        )
        yield Training(result, repeat, begin, steps.reset_index().to_dict("records"))


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
        stamps = {
            "timestamp": str(at.timestamp()),
            "datetime": at.replace(tzinfo=None).isoformat(" ", "microseconds"),
            "elapsedtime": str((at - begin).total_seconds()),
            "type": kind,
        }
        return f"DLLL {json.dumps(stamps | content)}\n"

    lines = [
        line(begin, "METADATA", metric=name, metadata={"unit": unit})
        for name, unit in units.items()
    ]
    lines.append(line(begin, "LOG", step="PARAMETER", data=parameters))
    for step in training.steps:
        data = {
            "train.step_time": step["seconds"],
            "train.data_time": step["data_wait_seconds"],
            "train.total_ips": training.step_samples / step["seconds"],
        }
        data |= {} if step["loss"] is None else {"train.loss": step["loss"]}
        lines.append(line(step["at"], "LOG", step=[0, step["step"]], data=data))
    total = {"train_throughput": training.repeat.throughput}
    lines.append(line(training.steps[-1]["at"], "LOG", step=[], data=total))
    return "".join(lines)


def mlperf(training: Training) -> str:
    """As MLPerf's mllog writes: of a training that was no submission, its sizes, where it
    begins and ends, and the throughput of each step in `tracked_stats`."""
    config, protocol = training.result.config, training.result.protocol
    lines: list[str] = []

    def event(at: datetime, kind: str, key: str, value: Any, **metadata: Any) -> None:
        content = {"namespace": "", "time_ms": round(at.timestamp() * 1000)}
        content |= {"event_type": kind, "key": key, "value": value, "metadata": metadata}
        lines.append(f":::MLLOG {json.dumps(content)}\n")

    start, stop, point = "INTERVAL_START", "INTERVAL_END", "POINT_IN_TIME"
    sizes = {
        "global_batch_size": training.step_samples,
        "gradient_accumulation_steps": config.accumulate,
        "max_sequence_length": config.sequence_length,
        "seed": config.seed,
    }
    end = training.begin
    for key, value in sizes.items():
        if value is not None:
            event(end, point, key, value)
    event(end, start, "run_start", None)
    for step in training.steps:
        if step["step"] == protocol.warmup_steps + 1:
            event(end, start, "block_start", None, step=step["step"])
        end, stats = step["at"], {"throughput": training.step_samples / step["seconds"]}
        if step["loss"] is not None:
            stats["loss"] = step["loss"]
        event(end, point, "tracked_stats", stats, step=step["step"])
    event(end, stop, "block_stop", None, step=protocol.steps)
    event(end, stop, "run_stop", None, status="success")
    return "".join(lines)


def optimum(training: Training) -> str:
    """As optimum-benchmark reports a training: the latencies of its steps, one JSON object, of
    one device. Where that tool divides the samples of all steps by the mean of one step, this
    is samples / time."""
    seconds = [step["seconds"] for step in training.steps]
    warmup = training.result.protocol.warmup_steps
    # The peak of the processes on a CPU; of GPUs the tool wants more than is known.
    peaks = [rank.memory_bytes for rank in training.repeat.ranks]
    memory: dict[str, Any] | None = None
    if training.result.config.device == "cpu" and None not in peaks:
        unknown = ("max_global_vram", "max_process_vram", "max_reserved", "max_allocated")
        memory = {"unit": "MB", "max_ram": sum(peak or 0 for peak in peaks) / 1e6}
        memory |= dict.fromkeys(unknown)

    def part(seconds: list[float]) -> dict[str, Any] | None:
        if not seconds:
            return None
        mean, spread = fmean(seconds), pstdev(seconds)
        rate = training.step_samples / training.result.config.ranks / mean
        return {
            "memory": memory,
            "latency": {
                "unit": "s",
                "values": seconds,
                "count": len(seconds),
                "total": sum(seconds),
                "mean": mean,
                **{f"p{k}": float(np.percentile(seconds, k)) for k in (50, 90, 95, 99)},
                "stdev": spread,
                "stdev_": spread / mean * 100,
            },
            "throughput": {"unit": "samples/s", "value": rate},
            "energy": None,
            "efficiency": None,
        }

    parts = {"overall": seconds, "warmup": seconds[:warmup], "train": seconds[warmup:]}
    return json.dumps({name: part(some) for name, some in parts.items()}) + "\n"


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
