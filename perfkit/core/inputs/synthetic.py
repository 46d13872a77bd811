"""Synthetic input: one random batch, repeated in every step."""

from collections.abc import Iterator
from itertools import repeat

import numpy as np

from perfkit.core.config import Config
from perfkit.core.models import bert, gpt, model_of
from perfkit.core.models.model import CLASSES


def batches(config: Config, rank: int) -> Iterator[tuple[np.ndarray, ...]]:
    """Yield one batch endlessly; see perfkit.core.inputs. Sequences have no padding, two
    segments of equal length and no unused predictions."""
    random = np.random.default_rng(config.seed + rank)
    batch, size = config.batch_size, config.sample_size

    def integers(first: int, end: int, width: int) -> np.ndarray:
        return random.integers(first, end, (batch, width), np.int64)

    data = model_of(config).data
    if data == "images":
        shape = (3, size, size) if config.layout == "NCHW" else (size, size, 3)
        images = random.standard_normal((batch, *shape), np.float32)
        return repeat((images, integers(0, CLASSES, 1)))
    if data == "tokens":
        tokens = integers(0, gpt.END_OF_TEXT, size + 1)
        return repeat((tokens[:, :-1].copy(), tokens[:, 1:].copy()))
    words = bert.FIRST_WORD, bert.VOCABULARY
    ids = integers(*words, size)
    positions = np.tile(np.arange(size, dtype=np.int64), (batch, 1))
    predictions = bert.predictions(size)
    masked = np.sort(random.permuted(positions, axis=1)[:, :predictions], axis=1)
    labels, next_sentence = integers(*words, predictions), integers(0, 2, 1)
    segments, mask = positions * 2 // size, np.ones_like(ids)
    return repeat((ids, segments, mask, masked, labels, next_sentence))
