"""Devices as the timer sees them: synchronization, events, peak memory."""

import resource
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

Clock = Callable[[], float]
"""Seconds since an arbitrary origin."""
POLL_SECONDS = 2e-4


class CpuDevice:
    """The timer's view of a device; here a CPU, where a step is complete when its call returns
    and an event is a reading of the clock.

    `is_asynchronous`: whether calls return before their work is complete. `step_clock`: whether
    the `device` or the `host` measures the time between events, or a `watcher`, a thread of the
    host.
    """

    is_asynchronous = False
    step_clock: Literal["host", "device", "watcher"] = "host"

    def __init__(self, clock: Clock = time.perf_counter) -> None:
        self.clock = clock

    def synchronize(self) -> None:
        """Wait until the device has completed all submitted work."""

    def record_event(self, _result: Any = None) -> Any:
        """Return an event that completes after all work submitted so far; does not wait.
        `_result` is what the last update returned, for devices without events of their own."""
        return self.clock()

    def is_complete(self, event: Any) -> bool:
        """Return whether the device has reached `event`; does not wait."""
        return True

    def wait_for(self, event: Any) -> None:
        """Wait until the device has reached `event`, but not for work submitted after it."""

    def seconds_between(self, earlier: Any, later: Any) -> float:
        """Return the device time between two complete events, seconds."""
        return later - earlier

    def reset_peak_memory(self) -> None:
        """Reset `peak_memory_bytes`; does not wait."""
        # Resets the peak resident set size of the process: proc(5), clear_refs.
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")

    def peak_memory_bytes(self) -> int | None:
        """Return the framework's peak allocated memory since `reset_peak_memory`; on a CPU, the
        peak resident set size of the process since then. None if it is unknown."""
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class GpuDevice:
    """The selected GPU; events are recorded in its current stream. `library` provides `Event`,
    `synchronize`, `reset_peak_memory_stats` and `max_memory_allocated` like torch.cuda."""

    is_asynchronous = True
    step_clock: Literal["host", "device"] = "device"

    def __init__(self, library: Any) -> None:
        self.library = library

    def synchronize(self) -> None:
        self.library.synchronize()

    def record_event(self, _result: Any = None) -> Any:
        event = self.library.Event(enable_timing=True)
        event.record()
        return event

    def is_complete(self, event: Any) -> bool:
        return bool(event.query())

    def wait_for(self, event: Any) -> None:
        event.synchronize()

    def seconds_between(self, earlier: Any, later: Any) -> float:
        return float(earlier.elapsed_time(later)) / 1e3

    def reset_peak_memory(self) -> None:
        self.library.reset_peak_memory_stats()

    def peak_memory_bytes(self) -> int:
        return int(self.library.max_memory_allocated())


class HostTimedDevice(GpuDevice):
    """An accelerator whose events do not measure time: a thread polls each event and reads the
    host's clock within POLL_SECONDS of its completion. The caller does not wait."""

    step_clock: Literal["host", "device"] = "host"

    def __init__(self, library: Any, clock: Clock = time.perf_counter) -> None:
        super().__init__(library)
        self.clock = clock
        self.watcher = ThreadPoolExecutor(1)

    def record_event(self, _result: Any = None) -> Future[float]:
        event = self.library.Event()
        event.record()
        return self.watcher.submit(self._completed_at, event)

    def _completed_at(self, event: Any) -> float:
        while not event.query():
            time.sleep(POLL_SECONDS)
        return self.clock()

    def synchronize(self) -> None:
        super().synchronize()
        self.watcher.submit(self.clock).result()

    def is_complete(self, event: Future[float]) -> bool:
        return event.done()

    def wait_for(self, event: Future[float]) -> None:
        event.result()

    def seconds_between(self, earlier: Future[float], later: Future[float]) -> float:
        return later.result() - earlier.result()


Device = CpuDevice | GpuDevice
