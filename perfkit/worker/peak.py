"""Peak rates of a device, by the framework's own matrix product and copy.

Each worker measures them after its window: on the same device, in the process that has just
trained, with its threads and its precision. The fastest of several calls counts, since every
disturbance makes a call slower.
"""

import time
from collections.abc import Callable
from typing import Any

from perfkit.frameworks.base import Clock, Device, Workloads

SMALLEST, LARGEST = 512, 8192
"""Rows and columns of the square matrices."""
COPIED_BYTES = 2**28
"""More than the caches of most devices hold; some processors have more than twice as much."""
MINIMUM_SECONDS = 0.02
"""A call this long is not mostly overhead."""
MEASURING_SECONDS = 0.3
MINIMUM_CALLS = 3


def measure_peak(
    workloads: Workloads, device: Device, clock: Clock = time.perf_counter
) -> dict[str, float]:
    """`matmul_flops_per_second`, a multiply-add being two operations, for matrices of
    `matmul_size` rows and columns, and `copy_bytes_per_second`, the sum of read and written
    bytes as in STREAM (McCalpin, 1995)."""

    def shortest(call: Callable[[], Any], lasting: float = MEASURING_SECONDS) -> float:
        """Seconds of the shortest of MINIMUM_CALLS, or of as many as take `lasting` seconds."""

        def timed() -> float:
            device.synchronize()
            began = clock()
            call()
            device.synchronize()
            return clock() - began

        # The first call may load kernels, or start threads.
        seconds = [timed()]
        ending = clock() + lasting
        while len(seconds) < MINIMUM_CALLS or clock() < ending:
            seconds.append(timed())
        return min(seconds)

    size = SMALLEST
    while size < LARGEST and shortest(workloads.matmul(size), 0) < MINIMUM_SECONDS:
        size *= 2
    return {
        "matmul_flops_per_second": 2 * size**3 / shortest(workloads.matmul(size)),
        "matmul_size": size,
        "copy_bytes_per_second": 2 * COPIED_BYTES / shortest(workloads.copy(COPIED_BYTES)),
    }
