"""Input by the framework's own DataLoader: processes or threads read and prepare samples."""

from collections.abc import Iterator
from copy import copy
from multiprocessing import SimpleQueue
from typing import Any

from perfkit.core.config import Config
from perfkit.core.frameworks.interface import backend
from perfkit.core.inputs import InputError, raise_if_short
from perfkit.core.inputs.data_set import DataSet, data_set


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


def batches(config: Config, rank: int) -> Iterator[tuple[Any, ...]]:
    """Yield batches of the framework's tensors; see perfkit.core.inputs. Raises InputError if a
    sample is unreadable, or the data set invalid or smaller than one step of all ranks."""
    data = data_set(config)
    raise_if_short(len(data), config, str(data.source))
    steps = len(data) // (config.ranks * config.batch_size)
    samples = Samples(data)
    # Endless indices: Paddle's DataLoader pauses for half a second between its epochs.
    indices = data.batches(rank, steps)
    load = backend(config.framework).data_loader
    try:
        yield from load(samples, indices, config.dataloader_workers)
    except Exception as error:
        if samples.errors.empty():
            raise
        raise InputError(samples.errors.get()) from error
