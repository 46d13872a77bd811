"""perfkit.StepTimer in a rank that only reads the input of its script."""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from perfkit.core.timing.batches import Loader, like_original
from perfkit.core.timing.devices import Clock
from perfkit.core.timing.frameworks import imported_framework
from perfkit.core.timing.session import Session

FEWEST_BATCHES, FEWEST_SECONDS = 12, 3.0
"""Batches and seconds that are read at least, also of a built-in model's input."""
PREFETCHED = 2
"""Batches that a loader prepares for each of its processes, unless it tells otherwise."""


class InputTimer:
    """Reads the loader that a script passes to `batches` at full speed, without handing a batch
    to the script, and ends the script."""

    def __init__(self, session: Session, clock: Clock = time.perf_counter) -> None:
        self.session = session
        self.clock = clock

    def batches(self, loader: Any) -> Any:
        """See StepTimer."""
        return like_original(ReadLoader(loader, self), loader)

    def read(self, loader: Any) -> None:
        """Write the event `input`, and raise SystemExit."""
        session = self.session
        if not session.has_ended:
            intervals = self._intervals(loader)
            session.raw.write({"event": "input", "intervals": intervals}, {"event": "end"})
            session.has_ended = True
        raise SystemExit(0)

    def _intervals(self, loader: Any) -> list[float]:
        """Return the seconds from one batch to the next. Raises RuntimeError for too few."""
        framework = imported_framework(self.session.job.framework)
        batches = endless(loader)
        for _prepared in range(prepared_batches(loader) + 2):
            next(batches, None)
        intervals: list[float] = []
        asked = self.clock()
        for _batch in batches:
            framework.wait()
            received = self.clock()
            intervals.append(received - asked)
            asked = received
            if len(intervals) >= FEWEST_BATCHES and sum(intervals) >= FEWEST_SECONDS:
                return intervals
        raise RuntimeError(
            "timer.batches got a generator or another iterator that ends too early to tell its "
            f"speed, after {len(intervals)} batches that count, and can't begin anew: pass an "
            "object that can be iterated over again, such as a DataLoader, or have it yield at "
            f"least {FEWEST_BATCHES} further batches, for {FEWEST_SECONDS:g} s"
        )

    def step(self, _loss: Any = None, *, result: Any = None) -> None:
        """Raise SystemExit after the task, otherwise RuntimeError."""
        if self.session.has_ended:
            raise SystemExit(0)
        raise RuntimeError(
            "the script does not read its batches through timer.batches(loader), so its input "
            "can't be read without the training"
        )

    def pause(self) -> AbstractContextManager[None]:
        """See StepTimer."""
        return nullcontext()


class ReadLoader(Loader):
    """A loader that is read by the timer when the script asks for the first batch."""

    def __init__(self, original: Any, timer: InputTimer) -> None:
        super().__init__(original)
        self._timer = timer

    def __iter__(self) -> Iterator[Any]:
        # A generator, so that the loader is not read before a batch is asked for.
        self._timer.read(self._original)
        yield


def endless(loader: Any) -> Iterator[Any]:
    """Yield the batches of a loader, one pass after the other. An iterator has only one."""
    while True:
        has_batch = False
        for batch in loader:
            has_batch = True
            yield batch
        if not has_batch or hasattr(loader, "__next__"):
            return


def prepared_batches(loader: Any) -> int:
    """Return how many batches a DataLoader of PyTorch or Paddle prepares in advance."""
    processes = getattr(loader, "num_workers", None) or 0
    each = getattr(loader, "prefetch_factor", None) or PREFETCHED
    return int(processes) * int(each)
