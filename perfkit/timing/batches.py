"""Batches of a script's loader, with the time spent waiting for each."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from perfkit.timing.devices import Clock

DEEPEST = 4
"""Levels of lists and dicts in a batch that are searched for an array."""

PREFETCHED = 2
"""Batches that a loader prepares for each of its processes, unless it tells otherwise."""
Received = Callable[[Any, float], None]
"""Is called with each batch and the seconds of waiting for it."""


class Loader(ABC):
    """A loader whose batches pass through the timer. Everything else is the original's: its
    length, its sampler, whether it can be read again."""

    def __init__(self, original: Any) -> None:
        self._original = original

    @abstractmethod
    def __iter__(self) -> Iterator[Any]: ...

    def __len__(self) -> int:
        return len(self._original)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)


class TimedLoader(Loader):
    """A loader that tells the timer how long each batch took to arrive, and ends when
    `is_over()`."""

    def __init__(
        self, original: Any, received: Received, is_over: Callable[[], bool], clock: Clock
    ) -> None:
        super().__init__(original)
        self._received = received
        self._is_over = is_over
        self._clock = clock

    def __iter__(self) -> Iterator[Any]:
        clock, received, is_over = self._clock, self._received, self._is_over
        # Includes the start of the loader's processes.
        asked = clock()
        for batch in self._original:
            received(batch, clock() - asked)
            yield batch
            if is_over():
                return
            asked = clock()


class ReadLoader(Loader):
    """A loader that is read by `read` alone, when the script asks for its first batch."""

    def __init__(self, original: Any, read: Callable[[Any], None]) -> None:
        super().__init__(original)
        self._read = read

    def __iter__(self) -> Iterator[Any]:
        # A generator, so that the loader is not read before a batch is asked for.
        self._read(self._original)
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


StepInput = tuple[int, float, int]
"""What a script has read through `timer.batches` for a step: the number of batches, the seconds
of waiting, and the rows of all batches, 0 if it has read none or they are unknown. No
NamedTuple, which would take 0.3 µs more in every step."""


class InputCount:
    """Counts what a script reads through `timer.batches` between two steps."""

    def __init__(self) -> None:
        self.has_read = False
        self.batches = 0
        self.wait_seconds = 0.0
        self.rows = 0

    def add(self, batch: Any, wait_seconds: float) -> None:
        self.has_read = True
        self.batches += 1
        self.wait_seconds += wait_seconds
        self.rows += rows_of(batch) or 0

    def take(self) -> StepInput:
        """Return what was read since the last call."""
        step_input = self.batches, self.wait_seconds, self.rows
        self.batches = self.rows = 0
        self.wait_seconds = 0.0
        return step_input


def like_original(loader: Loader, original: Any) -> Any:
    """Return the loader, or its iterator if the original is an iterator itself."""
    is_iterator = hasattr(original, "__next__")
    return iter(loader) if is_iterator else loader


def rows_of(batch: Any) -> int | None:
    """Return the size of the first axis of the first array in a batch, which most often is the
    number of its samples; None if there is no array."""
    for _level in range(DEEPEST):
        # Lists and tuples first, as most batches are; a union of types takes longer.
        if isinstance(batch, (list, tuple)):
            batch = batch[0] if batch else None
        elif isinstance(batch, Mapping):
            batch = next(iter(batch.values()), None)
        else:
            shape = getattr(batch, "shape", None)
            return int(shape[0]) if shape else None
    return None
