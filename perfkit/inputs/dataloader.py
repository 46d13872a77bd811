"""Input by Paddle's own DataLoader: samples are read and prepared in Python processes."""

from collections.abc import Iterator
from typing import Any

import paddle

from perfkit.config import Config
from perfkit.inputs import images_paddle, sequences_paddle
from perfkit.inputs.files import InputError
from perfkit.models import MODELS
from perfkit.supervisor import end_with_parent


def batches(config: Config, rank: int) -> Iterator[tuple[Any, ...]]:
    """Yield batches of Paddle tensors for ever; see perfkit.inputs for what they hold.

    Raises InputError for a sample that can't be read, and for a data set that is wrong or
    smaller than one step of all ranks.
    """
    image = MODELS[config.model].sample == "image"
    dataset, indices = (images_paddle if image else sequences_paddle).samples(config, rank)
    loader = paddle.io.DataLoader(
        dataset,
        # Endless: between two epochs of its own, the DataLoader stops and waits half a second.
        batch_sampler=indices,
        num_workers=config.dataloader_workers,
        # One that waits to hand a batch over outlives its trainer otherwise.
        worker_init_fn=lambda _worker: end_with_parent(),
    )
    try:
        for batch in loader:
            yield tuple(batch)
    except SystemError as error:
        if dataset.unreadable.empty():
            raise
        raise InputError(dataset.unreadable.get()) from error
