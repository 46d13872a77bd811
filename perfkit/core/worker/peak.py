"""Peak rates of a device, measured with the framework's own matrix product and copy.

Each worker measures them on its device, in its training process, with the same threads and
precision. The fastest of several groups of calls counts, since disturbances only slow a group
down. Short calls are timed in groups to exclude the time of a synchronization, 10 to 15 us on a
GPU: an H100 copies 256 MiB in 0.18 ms.
"""

import math
import time
from collections.abc import Callable
from typing import Any

from perfkit.core.frameworks.devices import Clock, Device
from perfkit.core.frameworks.interface import Workloads

SMALLEST, LARGEST = 512, 8192
"""Rows of the square matrices."""
COPIED_BYTES = 2**28
"""Larger than most devices' caches; those of some processors are more than twice as large."""
MINIMUM_SECONDS = 0.02
"""A call this long is timed alone: its overhead is negligible."""
MINIMUM_GROUP = 10
"""Least number of shorter calls between two synchronizations."""
MEASURING_SECONDS = 0.3
MINIMUM_TIMES = 3


def measure_peak(
    workloads: Workloads, device: Device, clock: Clock = time.perf_counter
) -> dict[str, float]:
    """Return `matmul_flops_per_second` (two per multiply-add) for matrices of `matmul_size`
    rows and columns, and `copy_bytes_per_second`, bytes read plus bytes written as in STREAM
    (McCalpin, 1995)."""

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

    def fastest(call: Callable[[], Any], alone: float) -> float:
        """Return the seconds of a call in the fastest of at least MINIMUM_TIMES groups, which
        take at least MEASURING_SECONDS. `alone` is the result of `warm`."""
        calls = 1
        if alone < MINIMUM_SECONDS:
            calls = max(MINIMUM_GROUP, math.ceil(MINIMUM_SECONDS / max(alone, 1e-6)))
        seconds: list[float] = []
        end = clock() + MEASURING_SECONDS
        while len(seconds) < MINIMUM_TIMES or clock() < end:
            seconds.append(timed(call, calls))
        return min(seconds)

    def measured_matmul() -> dict[str, float]:
        size, call = SMALLEST, workloads.matmul(SMALLEST)
        while (alone := warm(call)) < MINIMUM_SECONDS and size < LARGEST:
            size *= 2
            del call
            call = workloads.matmul(size)
        rate = 2 * size**3 / fastest(call, alone)
        return {"matmul_flops_per_second": rate, "matmul_size": size}

    def measured_copy() -> dict[str, float]:
        call = workloads.copy(COPIED_BYTES)
        return {"copy_bytes_per_second": 2 * COPIED_BYTES / fastest(call, warm(call))}

    # The matrices are freed before the copy, since the training may have left little memory.
    return measured_matmul() | measured_copy()
