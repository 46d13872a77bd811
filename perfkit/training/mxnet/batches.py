"""Batches as MXNet's arrays; see perfkit.inputs."""

from collections.abc import Iterator, Sequence
from typing import Any

import mxnet as mx
import numpy as np
from mxnet.gluon.data import DataLoader
from mxnet.ndarray import NDArray

from perfkit.inputs import Batches, dataloader, synthetic
from perfkit.training.options import Options


def new_batches(options: Options) -> Batches:
    """Return the input that the options name."""
    if options.input == "dataloader":
        batches = dataloader.batches(options, options.rank, loaded)
        return Batches(batches, as_array, options.dataloader_workers)
    return Batches(synthetic.batches(options, options.rank), as_array)


def as_array(array: Any) -> NDArray:
    """Return a copy of an array in MXNet's memory."""
    if isinstance(array, NDArray):
        # DataLoader's arrays lie in memory that is shared with its processes.
        return array.as_in_context(mx.cpu())
    copied = mx.nd.array(np.asarray(array), dtype=array.dtype)
    copied.wait_to_read()
    return copied


def loaded(
    samples: Any, indices: Iterator[Sequence[Any]], processes: int
) -> Iterator[tuple[NDArray, ...]]:
    """Yield batches from Gluon's DataLoader with this many processes."""
    loader = DataLoader(samples, batch_sampler=indices, num_workers=processes)
    return map(tuple, loader)
