"""As optimum-benchmark reports a training: the latencies of its steps, one JSON object.

The fields are those of `Latency`, `Throughput` and `Memory` in its trackers. Where that tool
divides the samples of all steps by the mean of one step, this is samples / time; of one device,
as there.
"""

import json
from collections.abc import Sequence
from statistics import fmean, pstdev
from typing import Any

import numpy as np

from perfkit.exporters.training import Step, Training


def text(training: Training) -> str:
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
