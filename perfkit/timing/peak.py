"""Peak rates of a device, measured with the framework's own matrix product and copy.

Each rank measures them on its device after its window, with the same threads and precision. The
peak is the fastest of several groups of calls, since disturbances only slow a group down; the
sustained rate is the mean of all groups, over several periods of a CPU quota and long enough
for a lower clock to show. Short calls are timed in groups to exclude the time of a
synchronization, 10 to 15 us on a GPU: an H100 copies 256 MiB in 0.18 ms.
"""

import math
import time
from collections.abc import Callable
from functools import partial
from statistics import fmean
from typing import Any, NamedTuple

from perfkit.timing.devices import Clock, Device
from perfkit.timing.failure import classify
from perfkit.timing.frameworks import Framework, Workload

SMALLEST, LARGEST = 512, 8192
"""Rows of the square matrices."""
COPIED_BYTES = 2**28
"""Larger than most devices' caches; those of some processors are more than twice as large."""
MINIMUM_SECONDS = 0.02
"""A call this long is timed alone: its overhead is negligible."""
MINIMUM_GROUP = 10
"""Least number of shorter calls between two synchronizations."""
PRODUCT_SECONDS, COPY_SECONDS = 1.0, 0.3
"""Least time for which the product and the copy are measured."""
MINIMUM_TIMES = 3
PRECISIONS = {
    "bf16": ("bf16", "bfloat16"),
    "amp": ("amp", "fp16", "float16", "half"),
    "fp32": ("fp32", "float32", "tf32", "32"),
}
"""Precision of a product -> texts in the precision that a script tells."""


def peak_event(framework: Framework, precision: str | None, device: Device) -> dict[str, Any]:
    """Return the event `peak`; `missing` is the reason if it can't be measured."""
    try:
        matmul = partial(framework.matmul, precision=product_precision(precision))
        return {"event": "peak", **measure_peak(matmul, framework.copy, device)}
    except Exception as error:
        return {"event": "peak", "missing": classify(error).message}


def product_precision(precision: str | None) -> str:
    """Return the key of PRECISIONS for what a script tells. Raises ValueError."""
    if precision is None:
        raise ValueError(
            "the script does not tell its precision: StepTimer(..., precision='bf16')"
        )
    for used, texts in PRECISIONS.items():
        if any(text in precision.lower() for text in texts):
            return used
    raise ValueError(
        f"the peak can't be measured in the precision {precision!r} that the script tells"
    )


class GroupTimes(NamedTuple):
    """Seconds of a call in the fastest group, and on average over all groups."""

    fastest: float
    mean: float


def measure_peak(
    matmul: Callable[[int], Workload],
    copy: Callable[[int], Workload],
    device: Device,
    clock: Clock = time.perf_counter,
) -> dict[str, float]:
    """Return `matmul_flops_per_second` (two per multiply-add) for matrices of `matmul_size`
    rows and columns, `copy_bytes_per_second`, bytes read plus bytes written as in STREAM
    (McCalpin, 1995), and both as `sustained_…`. `matmul` and `copy` return the calls to time,
    for a number of rows and of bytes."""

    def timed(call: Callable[[], Any], calls: int = 1) -> float:
        """Return the seconds of a call in a group of `calls`."""
        device.synchronize()
        began = clock()
        for _ in range(calls):
            call()
        device.synchronize()
        return (clock() - began) / calls

    def warm(call: Callable[[], Any]) -> float:
        """Return the seconds of a call alone. The first may load kernels or start threads."""
        return min(timed(call), timed(call))

    def grouped(call: Callable[[], Any], alone: float, least_seconds: float) -> GroupTimes:
        """Time at least MINIMUM_TIMES groups of calls, which take at least `least_seconds`.
        `alone` is the result of `warm`."""
        calls = 1
        if alone < MINIMUM_SECONDS:
            calls = max(MINIMUM_GROUP, math.ceil(MINIMUM_SECONDS / max(alone, 1e-6)))
        seconds: list[float] = []
        end = clock() + least_seconds
        while len(seconds) < MINIMUM_TIMES or clock() < end:
            seconds.append(timed(call, calls))
        return GroupTimes(min(seconds), fmean(seconds))

    def measured_matmul() -> dict[str, float]:
        size, call = SMALLEST, matmul(SMALLEST)
        while (alone := warm(call)) < MINIMUM_SECONDS and size < LARGEST:
            size *= 2
            del call
            call = matmul(size)
        flops, times = 2 * size**3, grouped(call, alone, PRODUCT_SECONDS)
        return {
            "matmul_flops_per_second": flops / times.fastest,
            "sustained_matmul_flops_per_second": flops / times.mean,
            "matmul_size": size,
        }

    def measured_copy() -> dict[str, float]:
        call = copy(COPIED_BYTES)
        times = grouped(call, warm(call), COPY_SECONDS)
        return {
            "copy_bytes_per_second": 2 * COPIED_BYTES / times.fastest,
            "sustained_copy_bytes_per_second": 2 * COPIED_BYTES / times.mean,
        }

    # The matrices are freed before the copy, since the training may have left little memory.
    return measured_matmul() | measured_copy()
