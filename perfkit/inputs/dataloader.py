"""Input by Paddle's own DataLoader: decoding and augmentation in Python worker processes."""

import multiprocessing
from collections.abc import Iterator
from typing import Any

import numpy as np
import paddle
from paddle.vision import transforms
from PIL import Image

from perfkit.config import Config
from perfkit.inputs import DEVIATION, MEAN
from perfkit.inputs.files import FileList, InputError
from perfkit.supervisor import end_with_parent


class ImageFiles(paddle.io.Dataset):
    """The listed files, decoded, randomly cropped, resized, mirrored and normalized."""

    def __init__(self, config: Config, listed: FileList) -> None:
        super().__init__()
        self.listed = listed
        # What a worker process could not read; Paddle itself only says that one failed.
        self.unreadable: Any = multiprocessing.SimpleQueue()
        self.augment = transforms.Compose(
            [
                transforms.RandomResizedCrop(config.image_size),
                transforms.RandomHorizontalFlip(),
            ]
        )
        self.mean = np.array(MEAN, np.float32)
        self.deviation = np.array(DEVIATION, np.float32)
        self.channels_first = config.layout == "NCHW"

    def __len__(self) -> int:
        return len(self.listed.paths)

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        path = self.listed.paths[index]
        try:
            with Image.open(self.listed.file.parent / path) as image:
                pixels = np.asarray(self.augment(image.convert("RGB")))
        except OSError as error:
            message = f"{self.listed.file}:{index + 1}: {path}: {error}"
            self.unreadable.put(message)
            raise InputError(message) from error
        scaled = (pixels.astype(np.float32) - self.mean) / self.deviation
        if self.channels_first:
            scaled = np.ascontiguousarray(scaled.transpose(2, 0, 1))
        return scaled, np.array([self.listed.labels[index]], np.int64)


def batches(config: Config, listed: FileList, rank: int) -> Iterator[tuple[Any, Any]]:
    """Yield (images, labels) as Paddle tensors for ever, reshuffled every epoch.

    Raises InputError for a file that can't be decoded, and for a data set that is smaller
    than one step of all ranks.
    """
    dataset = ImageFiles(config, listed)
    sampler = paddle.io.DistributedBatchSampler(
        dataset,
        config.batch_size,
        num_replicas=config.ranks,
        rank=rank,
        shuffle=True,
        drop_last=True,
    )
    loader = paddle.io.DataLoader(
        dataset,
        batch_sampler=sampler,
        num_workers=config.dataloader_workers,
        # One that waits to hand a batch over outlives its trainer otherwise.
        worker_init_fn=lambda _worker: end_with_parent(),
        persistent_workers=config.dataloader_workers > 0,
    )
    if not len(loader):
        raise InputError(
            f"{listed.file}: {len(dataset)} images, and one step of {config.ranks} x "
            f"{config.batch_size} needs more"
        )
    epoch = config.seed
    try:
        while True:
            sampler.set_epoch(epoch)
            yield from loader
            epoch += 1
    except SystemError as error:
        if dataset.unreadable.empty():
            raise
        raise InputError(dataset.unreadable.get()) from error
