"""Synthetic input: one random batch, repeated in every step."""

from collections.abc import Iterator
from itertools import repeat

import numpy as np

from perfkit.core.config import Config
from perfkit.training import models
from perfkit.training.models import CLASSES, model_of


def batches(config: Config, rank: int) -> Iterator[tuple[np.ndarray, ...]]:
    """Yield one batch endlessly; see perfkit.core.inputs. Sequences have no padding, two
    segments of equal length and no unused predictions."""
    random = np.random.default_rng(config.seed + rank)
    match model_of(config).data:
        case "images":
            batch = _images(config, random)
        case "tokens":
            batch = _tokens(config, random, models.END_OF_TEXT)
        case "tokens32":
            (vocabulary,) = model_of(config).choices
            batch = _tokens(config, random, vocabulary)
        case "shards":
            batch = _sequences(config, random)
    return repeat(batch)


def _integers(
    config: Config, random: np.random.Generator, first: int, end: int, width: int
) -> np.ndarray:
    """Return `width` random integers from `first` to below `end` for each sample."""
    return random.integers(first, end, (config.batch_size, width), np.int64)


def _images(config: Config, random: np.random.Generator) -> tuple[np.ndarray, ...]:
    size = config.sample_size
    shape = (size, size, 3)
    if config.layout == "NCHW":
        shape = (3, size, size)
    images = random.standard_normal((config.batch_size, *shape), np.float32)
    labels = _integers(config, random, 0, CLASSES, 1)
    return images, labels


def _tokens(config: Config, random: np.random.Generator, end: int) -> tuple[np.ndarray, ...]:
    tokens = _integers(config, random, 0, end, config.sample_size + 1)
    return tokens[:, :-1].copy(), tokens[:, 1:].copy()


def _sequences(config: Config, random: np.random.Generator) -> tuple[np.ndarray, ...]:
    length = config.sample_size
    size = models.BERT_SIZE
    predictions = models.predictions(length)
    ids = _integers(config, random, size.first_word, size.vocabulary, length)
    positions = np.tile(np.arange(length, dtype=np.int64), (config.batch_size, 1))
    shuffled = random.permuted(positions, axis=1)
    masked = np.sort(shuffled[:, :predictions], axis=1)
    labels = _integers(config, random, size.first_word, size.vocabulary, predictions)
    next_sentence = _integers(config, random, 0, 2, 1)
    segments = positions * 2 // length
    mask = np.ones_like(ids)
    return ids, segments, mask, masked, labels, next_sentence
