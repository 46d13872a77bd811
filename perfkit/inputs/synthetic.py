"""Synthetic input: one random batch, repeated in every step."""

from collections.abc import Iterator
from itertools import repeat

import numpy as np

from perfkit.training import models
from perfkit.training.models import CLASSES, model_of
from perfkit.training.options import Options


def batches(options: Options, rank: int) -> Iterator[tuple[np.ndarray, ...]]:
    """Yield one batch endlessly; see perfkit.inputs. Sequences have no padding, two
    segments of equal length and no unused predictions."""
    random = np.random.default_rng(options.seed + rank)
    match model_of(options).data:
        case "images":
            batch = _images(options, random)
        case "tokens":
            batch = _tokens(options, random, models.END_OF_TEXT)
        case "tokens32":
            (vocabulary,) = model_of(options).choices
            batch = _tokens(options, random, vocabulary)
        case "shards":
            batch = _sequences(options, random)
    return repeat(batch)


def _integers(
    options: Options, random: np.random.Generator, first: int, end: int, width: int
) -> np.ndarray:
    """Return `width` random integers from `first` to below `end` for each sample."""
    return random.integers(first, end, (options.batch_size, width), np.int64)


def _images(options: Options, random: np.random.Generator) -> tuple[np.ndarray, ...]:
    size = options.sample_size
    shape = (size, size, 3)
    if options.layout == "NCHW":
        shape = (3, size, size)
    images = random.standard_normal((options.batch_size, *shape), np.float32)
    labels = _integers(options, random, 0, CLASSES, 1)
    return images, labels


def _tokens(options: Options, random: np.random.Generator, end: int) -> tuple[np.ndarray, ...]:
    tokens = _integers(options, random, 0, end, options.sample_size + 1)
    return tokens[:, :-1].copy(), tokens[:, 1:].copy()


def _sequences(options: Options, random: np.random.Generator) -> tuple[np.ndarray, ...]:
    length = options.sample_size
    size = models.BERT_SIZE
    predictions = models.predictions(length)
    ids = _integers(options, random, size.first_word, size.vocabulary, length)
    positions = np.tile(np.arange(length, dtype=np.int64), (options.batch_size, 1))
    shuffled = random.permuted(positions, axis=1)
    masked = np.sort(shuffled[:, :predictions], axis=1)
    labels = _integers(options, random, size.first_word, size.vocabulary, predictions)
    next_sentence = _integers(options, random, 0, 2, 1)
    segments = positions * 2 // length
    mask = np.ones_like(ids)
    return ids, segments, mask, masked, labels, next_sentence
