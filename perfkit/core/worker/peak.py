"""Peak rates of a device, measured with the framework's own matrix product and copy.

Each worker measures them on its device, in its training process, with the same threads and
precision. The peak is the fastest of several groups of calls, since disturbances only slow a
group down; the sustained rate is the mean of all groups, over several periods of a CPU quota
and long enough for a lower clock to show. Short calls are timed in groups to exclude the time
of a synchronization, 10 to 15 us on a GPU: an H100 copies 256 MiB in 0.18 ms.
"""

import math
import time
from collections.abc import Callable
from statistics import fmean
from typing import Any, NamedTuple

from perfkit.core.frameworks.interface import Workloads
from perfkit.core.timing.devices import Clock, Device

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


class GroupTimes(NamedTuple):
    """Seconds of a call in the fastest group, and on average over all groups."""

    fastest: float
    mean: float


def measure_peak(
    workloads: Workloads, device: Device, clock: Clock = time.perf_counter
) -> dict[str, float]:
    """Return `matmul_flops_per_second` (two per multiply-add) for matrices of `matmul_size`
    rows and columns, `copy_bytes_per_second`, bytes read plus bytes written as in STREAM
    (McCalpin, 1995), and both as `sustained_…`."""

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
        size, call = SMALLEST, workloads.matmul(SMALLEST)
        while (alone := warm(call)) < MINIMUM_SECONDS and size < LARGEST:
            size *= 2
            del call
            call = workloads.matmul(size)
        flops, times = 2 * size**3, grouped(call, alone, PRODUCT_SECONDS)
        return {
            "matmul_flops_per_second": flops / times.fastest,
            "sustained_matmul_flops_per_second": flops / times.mean,
            "matmul_size": size,
        }

    def measured_copy() -> dict[str, float]:
        call = workloads.copy(COPIED_BYTES)
        times = grouped(call, warm(call), COPY_SECONDS)
        return {
            "copy_bytes_per_second": 2 * COPIED_BYTES / times.fastest,
            "sustained_copy_bytes_per_second": 2 * COPIED_BYTES / times.mean,
        }

    # The matrices are freed before the copy, since the training may have left little memory.
    return measured_matmul() | measured_copy()
