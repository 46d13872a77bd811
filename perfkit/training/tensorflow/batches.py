"""Batches as TensorFlow's tensors; see perfkit.inputs."""

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from itertools import chain
from threading import Lock
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import Tensor

from perfkit.inputs import Batches, dataloader, synthetic
from perfkit.training.options import Options


def new_batches(options: Options) -> Batches:
    """Return the input that the options name."""
    match options.input:
        case "dali":
            from perfkit.inputs import dali

            # The plugin is for GPUs.
            batches = dali.batches(options, options.rank, plugin="")
            return Batches(batches, as_tensor, 1, options.dali_prefetch)
        case "dataloader":
            batches = dataloader.batches(options, options.rank, loaded)
            return Batches(batches, as_tensor, options.dataloader_workers)
    return Batches(synthetic.batches(options, options.rank), as_tensor)


def as_tensor(array: Any) -> Tensor:
    """Return a copy of an array that is no tensor: DALI overwrites its own."""
    return array if tf.is_tensor(array) else tf.constant(np.from_dlpack(array))


def loaded(
    samples: Any, indices: Iterator[Sequence[Any]], threads: int
) -> Iterator[tuple[Tensor, ...]]:
    """Yield batches from tf.data with this many threads, each with its own copy of the data
    set's cache."""
    first = next(indices)
    dtypes = [array.dtype for array in samples[first[0]]]
    reader = Reader(samples, chain([first], indices), threads)
    numbers = tf.data.Dataset.from_generator(
        reader.numbers, output_signature=tf.TensorSpec((), tf.int64)
    )
    batches = numbers.map(
        lambda number: tf.numpy_function(reader.batch, [number], dtypes),
        num_parallel_calls=threads,
        deterministic=True,
    )
    return iter(batches.prefetch(2))


class Reader:
    """Reads the batches of these `indices` by number, in any of several threads."""

    def __init__(self, samples: Any, indices: Iterable[Sequence[Any]], threads: int) -> None:
        self.indices = indices
        self.requested: dict[int, Sequence[Any]] = {}
        self.copies = [(copy(samples), Lock()) for _ in range(threads)]

    def numbers(self) -> Iterator[int]:
        """Yield the number of each batch, from 0."""
        for number, rows in enumerate(self.indices):
            self.requested[number] = rows
            yield number

    def batch(self, number: np.ndarray) -> list[np.ndarray]:
        """Return the arrays of a batch whose number was yielded before."""
        rows = self.requested.pop(int(number))
        samples, lock = self.copies[int(number) % len(self.copies)]
        with lock:
            read = [samples[row] for row in rows]
        return [np.stack(arrays) for arrays in zip(*read, strict=True)]
