"""Synthetic input: one random batch, made once and handed out again at every step."""

from collections.abc import Iterator
from itertools import repeat

import numpy as np

from perfkit.config import Config
from perfkit.inputs import CLASSES


def batches(config: Config, rank: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield (images, labels) for ever: float32 of batch x layout, int64 of batch x 1."""
    random = np.random.default_rng(config.seed + rank)
    size = config.image_size
    shape = (3, size, size) if config.layout == "NCHW" else (size, size, 3)
    images = random.standard_normal((config.samples, *shape), np.float32)
    labels = random.integers(0, CLASSES, (config.samples, 1), np.int64)
    return repeat((images, labels))
