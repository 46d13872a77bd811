"""Input by the framework's own DataLoader: processes or threads read and prepare samples."""

from collections.abc import Callable, Iterator
from copy import copy
from multiprocessing import SimpleQueue
from typing import Any

from perfkit.inputs import InputError, raise_if_short
from perfkit.inputs.data_set import DataSet, data_set
from perfkit.training.options import Options


class Samples:
    """A data set that keeps its errors: a framework may only report that a process failed."""

    def __init__(self, data: DataSet) -> None:
        self.data = data
        self.errors: SimpleQueue[str] = SimpleQueue()

    def __copy__(self) -> "Samples":
        """Copy for another thread, with a separate cache of the data set."""
        samples = Samples(copy(self.data))
        samples.errors = self.errors
        return samples

    def __getitem__(self, index: Any) -> tuple[Any, ...]:
        try:
            return self.data[index]
        except InputError as error:
            self.errors.put(str(error))
            raise


Load = Callable[[Any, Iterator[Any], int], Iterator[tuple[Any, ...]]]
"""Yields batches from the framework's own DataLoader, given samples (`samples[index]` is a
tuple of arrays), the indices of each batch, and the number of processes."""


def batches(options: Options, rank: int, load: Load) -> Iterator[tuple[Any, ...]]:
    """Yield batches of the framework's tensors; see perfkit.inputs. Raises InputError if a
    sample is unreadable, or the data set invalid or smaller than one step of all ranks."""
    data = data_set(options)
    raise_if_short(len(data), options, str(data.source))
    steps = len(data) // (options.ranks * options.batch_size)
    samples = Samples(data)
    # Endless indices: Paddle's DataLoader pauses for half a second between its epochs.
    indices = data.batches(rank, steps)
    try:
        yield from load(samples, indices, options.dataloader_workers)
    except Exception as error:
        if samples.errors.empty():
            raise
        raise InputError(samples.errors.get()) from error
