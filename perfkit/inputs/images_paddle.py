"""Images for Paddle's DataLoader: files decoded and augmented one by one."""

import multiprocessing
from collections.abc import Iterator
from itertools import count
from typing import Any

import numpy as np
import paddle
from paddle.vision import transforms
from PIL import Image

from perfkit.config import Config
from perfkit.inputs import DEVIATION, MEAN
from perfkit.inputs.files import FileList, InputError, read_list


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


def samples(config: Config, rank: int) -> tuple[ImageFiles, Iterator[list[int]]]:
    """The data set, and for ever the indices of this rank's next batch, shuffled every epoch.

    Raises InputError for a wrong list, and if it is shorter than one step of all ranks.
    """
    listed = read_list(config.data_folder)
    dataset = ImageFiles(config, listed)
    sampler = paddle.io.DistributedBatchSampler(
        dataset,
        config.batch_size,
        num_replicas=config.ranks,
        rank=rank,
        shuffle=True,
        drop_last=True,
    )
    if not len(sampler):
        raise InputError(
            f"{listed.file}: {len(dataset)} images, and one step of {config.ranks} x "
            f"{config.batch_size} needs more"
        )
    return dataset, _endless(sampler, config.seed)


def _endless(sampler: Any, seed: int) -> Iterator[list[int]]:
    for epoch in count(seed):
        sampler.set_epoch(epoch)
        yield from sampler
