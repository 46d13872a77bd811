"""Input by the framework's own DataLoader: Python processes read and prepare samples."""

from collections.abc import Iterator
from typing import Any

from perfkit.backends import backend
from perfkit.config import Config
from perfkit.inputs import images, sequences
from perfkit.inputs.files import InputError
from perfkit.models import MODELS


def batches(config: Config, rank: int) -> Iterator[tuple[Any, ...]]:
    """Yield batches of the framework's tensors for ever; see perfkit.inputs for what they hold.

    Raises InputError for a sample that can't be read, and for a data set that is wrong or
    smaller than one step of all ranks.
    """
    image = MODELS[config.model].sample == "image"
    # Endless indices: between two epochs of its own, Paddle's DataLoader stops and waits half a
    # second.
    dataset, indices = (images if image else sequences).samples(config, rank)
    load = backend(config.framework).data_loader
    try:
        yield from load(dataset, indices, config.dataloader_workers)
    except Exception as error:
        if dataset.unreadable.empty():
            raise
        raise InputError(dataset.unreadable.get()) from error
