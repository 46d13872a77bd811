"""What a device can do at most, by the framework's own matrix product and copy.

Each worker measures it after its window: on the very device, in the process that has just
trained, with its threads and its precision. The best of several calls counts, since whatever
disturbs one makes it slower.
"""

import time
from collections.abc import Callable
from typing import Any

from perfkit.frameworks.base import Clock, Device, Workloads

SMALLEST, LARGEST = 512, 8192
"""Rows and columns of the square matrices."""
COPIED_BYTES = 2**28
"""More than the caches of most devices hold; some processors have more than twice as much."""
LONG_ENOUGH = 0.02
"""Seconds of a call that is not mostly overhead."""
MEASURING_SECONDS = 0.3
FEWEST = 3


def measure_peak(
    workloads: Workloads, device: Device, clock: Clock = time.perf_counter
) -> dict[str, float]:
    """`matmul_flops_per_second`, a multiply-add being two operations, for matrices of
    `matmul_size` rows and columns, and `copy_bytes_per_second`, read and written bytes added up
    as STREAM does (McCalpin, 1995)."""
    size = SMALLEST
    # The shortest of some calls: a first one loads kernels, or sets threads up.
    while size < LARGEST and _shortest(workloads.matmul(size), device, clock, 0) < LONG_ENOUGH:
        size *= 2
    multiplying = _shortest(workloads.matmul(size), device, clock)
    copying = _shortest(workloads.copy(COPIED_BYTES), device, clock)
    return {
        "matmul_flops_per_second": 2 * size**3 / multiplying,
        "matmul_size": size,
        "copy_bytes_per_second": 2 * COPIED_BYTES / copying,
    }


def _shortest(
    call: Callable[[], Any], device: Device, clock: Clock, lasting: float = MEASURING_SECONDS
) -> float:
    """The shortest of FEWEST calls, or of as many more as take `lasting` seconds."""
    seconds = [_seconds(call, device, clock)]
    ending = clock() + lasting
    while len(seconds) < FEWEST or clock() < ending:
        seconds.append(_seconds(call, device, clock))
    return min(seconds)


def _seconds(call: Callable[[], Any], device: Device, clock: Clock) -> float:
    device.synchronize()
    began = clock()
    call()
    device.synchronize()
    return clock() - began
