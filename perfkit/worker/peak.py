"""Peak rates of a device, by the framework's own matrix product and copy.

Each worker measures them after its window: on the same device, in the process that has just
trained, with its threads and its precision. The fastest of several groups of calls counts,
since every disturbance makes one slower. Short calls are timed many at a time, so that waiting
for the device, 10 to 15 us on a GPU, is no part of them: an H100 copies 256 MiB in 0.18 ms.
"""

import math
import time
from collections.abc import Callable
from typing import Any

from perfkit.frameworks.base import Clock, Device, Workloads

SMALLEST, LARGEST = 512, 8192
"""Rows and columns of the square matrices."""
COPIED_BYTES = 2**28
"""More than the caches of most devices hold; some processors have more than twice as much."""
MINIMUM_SECONDS = 0.02
"""A call this long is not mostly overhead, and is timed alone."""
MINIMUM_GROUP = 10
"""Shorter calls between two synchronizations."""
MEASURING_SECONDS = 0.3
MINIMUM_TIMES = 3


def measure_peak(
    workloads: Workloads, device: Device, clock: Clock = time.perf_counter
) -> dict[str, float]:
    """`matmul_flops_per_second`, a multiply-add being two operations, for matrices of
    `matmul_size` rows and columns, and `copy_bytes_per_second`, the sum of read and written
    bytes as in STREAM (McCalpin, 1995)."""

    def fastest(call: Callable[[], Any], lasting: float = MEASURING_SECONDS) -> float:
        """Seconds of a call in the fastest of MINIMUM_TIMES, or of as many as take `lasting`
        seconds."""

        def timed(calls: int) -> float:
            device.synchronize()
            began = clock()
            for _ in range(calls):
                call()
            device.synchronize()
            return (clock() - began) / calls

        # The first call may load kernels, or start threads.
        shortest = min(timed(1), timed(1))
        calls = 1
        if shortest < MINIMUM_SECONDS:
            calls = max(MINIMUM_GROUP, math.ceil(MINIMUM_SECONDS / max(shortest, 1e-6)))
        seconds: list[float] = []
        ending = clock() + lasting
        while len(seconds) < MINIMUM_TIMES or clock() < ending:
            seconds.append(timed(calls))
        return min(seconds)

    size = SMALLEST
    while size < LARGEST and fastest(workloads.matmul(size), 0) < MINIMUM_SECONDS:
        size *= 2
    return {
        "matmul_flops_per_second": 2 * size**3 / fastest(workloads.matmul(size)),
        "matmul_size": size,
        "copy_bytes_per_second": 2 * COPIED_BYTES / fastest(workloads.copy(COPIED_BYTES)),
    }
