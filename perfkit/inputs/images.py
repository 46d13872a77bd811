"""Images for a DataLoader: files decoded and augmented one by one."""

import math
import multiprocessing
import random
from collections.abc import Iterator
from itertools import count
from typing import Any

import numpy as np
from PIL import Image

from perfkit.config import Config
from perfkit.inputs import DEVIATION, MEAN
from perfkit.inputs.files import FileList, InputError, read_list, whole_steps

CROP_AREA = (0.08, 1.0)
CROP_ASPECT = (3 / 4, 4 / 3)
CROP_ATTEMPTS = 10
"""A random part of the image, of such a share of it and of such width / height (Szegedy et al.,
Going deeper with convolutions, 2014); after so many tries that do not fit, its centre."""

Box = tuple[int, int, int, int]


class ImageFiles:
    """The listed files, decoded, randomly cropped, resized, mirrored and normalized."""

    def __init__(self, config: Config, listed: FileList) -> None:
        self.listed = listed
        # What a process could not read; a framework may only say that one failed.
        self.unreadable: Any = multiprocessing.SimpleQueue()
        assert config.image_size is not None
        self.size = config.image_size, config.image_size
        self.mean = np.array(MEAN, np.float32)
        self.deviation = np.array(DEVIATION, np.float32)
        self.channels_first = config.layout == "NCHW"

    def __len__(self) -> int:
        return len(self.listed.paths)

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        path = self.listed.paths[index]
        try:
            with Image.open(self.listed.file.parent / path) as image:
                pixels = np.asarray(self._augmented(image.convert("RGB")))
        except OSError as error:
            message = f"{self.listed.file}:{index + 1}: {path}: {error}"
            self.unreadable.put(message)
            raise InputError(message) from error
        scaled = (pixels.astype(np.float32) - self.mean) / self.deviation
        if self.channels_first:
            scaled = np.ascontiguousarray(scaled.transpose(2, 0, 1))
        return scaled, np.array([self.listed.labels[index]], np.int64)

    def _augmented(self, image: Image.Image) -> Image.Image:
        part = image.resize(self.size, Image.Resampling.BILINEAR, random_box(*image.size))
        if random.random() < 0.5:
            part = part.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return part


def random_box(width: int, height: int) -> Box:
    """Left, upper, right and lower edge of a random part of an image of this size."""
    for _ in range(CROP_ATTEMPTS):
        area = width * height * random.uniform(*CROP_AREA)
        aspect = math.exp(random.uniform(*map(math.log, CROP_ASPECT)))
        across, down = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < across <= width and 0 < down <= height:
            left, upper = random.randint(0, width - across), random.randint(0, height - down)
            return left, upper, left + across, upper + down
    across = min(width, round(height * CROP_ASPECT[1]))
    down = min(height, round(width / CROP_ASPECT[0]))
    left, upper = (width - across) // 2, (height - down) // 2
    return left, upper, left + across, upper + down


def samples(config: Config, rank: int) -> tuple[ImageFiles, Iterator[list[int]]]:
    """The data set, and for ever the indices of this rank's next batch, shuffled every epoch.

    Raises InputError for a wrong list, and if it is shorter than one step of all ranks.
    """
    listed = read_list(config.data_folder)
    steps = whole_steps(config, len(listed.paths), listed.file)
    return ImageFiles(config, listed), _batches(config, rank, len(listed.paths), steps)


def _batches(config: Config, rank: int, images: int, steps: int) -> Iterator[list[int]]:
    """In an epoch ranks have disjoint images; those beyond the last whole step are left out."""
    for epoch in count():
        order = np.random.default_rng((config.seed, epoch)).permutation(images)
        for step in order[: steps * config.ranks * (config.batch_size or 0)].reshape(
            steps, config.ranks, -1
        ):
            yield step[rank].tolist()
