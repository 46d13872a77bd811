"""JAX's devices as the timer sees them. JAX itself is an argument.

JAX returns before a computation is complete, also on a CPU, and has no events. All results of
a program become ready together, so the watcher of a device waits for a scalar that each update
returns and reads the host's clock when it is ready. The thread that submits steps never waits
for it. Arrays that the next step gets as donated memory can't be watched, and a loss is ready
before the update of its step.
"""

import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from perfkit.timing.devices import Clock, CpuDevice


class WatchedDevice(CpuDevice):
    """This process's device; here the CPU."""

    is_asynchronous = True
    step_clock = "watcher"

    def __init__(self, jax: Any, clock: Clock = time.perf_counter) -> None:
        super().__init__(clock)
        self.jax = jax
        self.watcher = ThreadPoolExecutor(1, "watcher")

    def synchronize(self) -> None:
        self.jax.block_until_ready(self.jax.live_arrays())
        # The watcher has then read the clock for all earlier events.
        self.watcher.submit(self.clock).result()

    def record_event(self, result: Any = None) -> Future[float]:
        """Return an event that completes when `result` is ready; without one, which is allowed
        for a synchronized device, at once."""
        if result is None:
            event: Future[float] = Future()
            event.set_result(self.clock())
            return event
        return self.watcher.submit(self._ready_at, result)

    def _ready_at(self, result: Any) -> float:
        result.block_until_ready()
        return self.clock()

    def is_complete(self, event: Future[float]) -> bool:
        return event.done()

    def wait_for(self, event: Future[float]) -> None:
        event.result()

    def seconds_between(self, earlier: Future[float], later: Future[float]) -> float:
        return later.result() - earlier.result()


class WatchedGpu(WatchedDevice):
    """This process's GPU. JAX counts the peak of allocated memory since the process's start,
    and can't reset it."""

    def reset_peak_memory(self) -> None:
        """Do nothing; see above."""

    def peak_memory_bytes(self) -> int:
        statistics: dict[str, Any] = self.jax.local_devices()[0].memory_stats()
        return int(statistics["peak_bytes_in_use"])
