"""How near a measurement came to what its devices can do.

Model FLOPs utilization is the arithmetic of the model per second over that of the device
(Chowdhery et al., PaLM, 2022, appendix B). Convolutions may be computed with fewer
multiplications than they have, so that it can be over 100 %. Here it is over the peak that
the same processes measured after their window and, for known GPUs, over the datasheet.
"""

import csv
from functools import cache
from pathlib import Path
from typing import NamedTuple

from perfkit.models import training_flops
from perfkit.results.schema import Result

FILE = Path(__file__).parent / "gpu_peaks.csv"
PRECISIONS = {"fp32": "fp32", "amp": "fp16", "pure_fp16": "fp16", "bf16": "bf16"}
"""Effective precision -> the datasheet's column; with TF32 on, fp32 is `tf32`."""


class Datasheet(NamedTuple):
    """What a GPU's maker states, of one GPU and without sparsity."""

    gpu: str
    flops_per_second: float
    bytes_per_second: float
    source: str


class Utilization(NamedTuple):
    """Of a measurement whose repeats have peaks. All are of all devices together.

    `flops` are the model's operations for one sample, or one token where throughput counts
    tokens. `shares` are the model's operations per second over the peak of the same repeat,
    0 to 1, by repeat; `peaks` those peaks (operations per second), `copies` those of memory
    (bytes per second, read and written).
    """

    flops: int
    shares: list[float]
    peaks: list[float]
    copies: list[float]


def utilization(result: Result) -> Utilization | None:
    """None where no repeat has a peak."""
    flops, repeats = training_flops(result.config), result.complete_repeats
    known = [(r.throughput or 0.0, r.peak) for r in repeats if r.peak]
    if not known or not flops:
        return None
    return Utilization(
        flops=flops,
        shares=[value * flops / peak.matmul_flops_per_second for value, peak in known],
        peaks=[peak.matmul_flops_per_second for _value, peak in known],
        copies=[peak.copy_bytes_per_second for _value, peak in known],
    )


def share_of_datasheet(result: Result, sheet: Datasheet) -> float | None:
    """The model's operations per second over the datasheet's, of all GPUs together."""
    flops = training_flops(result.config)
    if not result.throughput or not flops:
        return None
    return result.throughput.value * flops / (sheet.flops_per_second * result.config.ranks)


def datasheet(result: Result) -> Datasheet | None:
    """The datasheet of the GPUs that trained, if they are alike and known, in the precision
    that was really used."""
    names = result.fact("gpus")
    if result.config.device != "gpu" or not result.effective or not isinstance(names, list):
        return None
    used = {name.split(",")[0] for name in names[: result.config.devices]}
    column = PRECISIONS.get(result.effective.precision, "")
    if column == "fp32" and result.effective.tf32:
        column = "tf32"
    return datasheet_of(used.pop(), column) if len(used) == 1 else None


def datasheet_of(name: str, column: str) -> Datasheet | None:
    """The datasheet of the GPU that NVML calls so, in the precision of that column."""
    words = _words(name)
    # The name that tells most: an H200 NVL is no H200. A MIG instance is a part of its GPU.
    alike = [peak for peak in _peaks() if _words(peak["gpu"]) <= words and "MIG" not in words]
    peak = max(alike, key=lambda one: len(_words(one["gpu"])), default={})
    if not peak.get(column):
        return None
    speeds = float(peak[column]) * 1e12, float(peak["memory"]) * 1e9
    return Datasheet(peak["gpu"], *speeds, peak["source"])


@cache
def _peaks() -> list[dict[str, str]]:
    """Rows of TFLOP/s by precision, and GB/s."""
    with FILE.open(newline="") as stream:
        return list(csv.DictReader(stream))


def _words(name: str) -> set[str]:
    return {*name.upper().replace("-", " ").split()}
