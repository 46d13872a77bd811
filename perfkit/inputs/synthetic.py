"""Synthetic input: one random batch, made once and handed out again at every step."""

from collections.abc import Iterator
from itertools import repeat

import numpy as np

from perfkit.config import Config
from perfkit.models import MODELS, bert
from perfkit.models.model import CLASSES


def batches(config: Config, rank: int) -> Iterator[tuple[np.ndarray, ...]]:
    """Yield a batch for ever; see perfkit.inputs for its arrays."""
    make = _images if MODELS[config.model].sample == "image" else _sequences
    return repeat(make(config, np.random.default_rng(config.seed + rank)))


def _images(config: Config, random: np.random.Generator) -> tuple[np.ndarray, ...]:
    batch, size = config.batch_size, config.sample_size
    shape = (batch, 3, size, size) if config.layout == "NCHW" else (batch, size, size, 3)
    images = random.standard_normal(shape, np.float32)
    return images, random.integers(0, CLASSES, (batch, 1), np.int64)


def _sequences(config: Config, random: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Sequences without padding, of two segments of equal length, with all predictions used."""
    batch, length = config.batch_size, config.sample_size
    masked = bert.predictions(length)
    ids = random.integers(bert.FIRST_WORD, bert.VOCABULARY, (batch, length), np.int64)
    segments = np.tile(np.arange(length, dtype=np.int64) * 2 // length, (batch, 1))
    mask = np.ones((batch, length), np.int64)
    shuffled = random.permuted(np.tile(np.arange(length, dtype=np.int64), (batch, 1)), axis=1)
    positions = np.sort(shuffled[:, :masked], axis=1)
    labels = random.integers(bert.FIRST_WORD, bert.VOCABULARY, (batch, masked), np.int64)
    next_sentence = random.integers(0, 2, (batch, 1), np.int64)
    return ids, segments, mask, positions, labels, next_sentence
