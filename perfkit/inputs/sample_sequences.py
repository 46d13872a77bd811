"""The sample data of BERT: an HDF5 shard of English text, masked by the published rule.

The text is Python's own documentation of its language, `pydoc_data.topics`, so it belongs to
the Python release; lower-case, split into words and single punctuation marks, each with an id
of its own. A sequence is [CLS] A [SEP] B [SEP]: B follows A in the text, or half the time comes
from another topic. Of its words 15 % are to be guessed; of these 80 % are replaced by [MASK],
10 % by a random word and 10 % by nothing (Devlin et al., BERT: pre-training of deep
bidirectional transformers, 2018). As in the public recipes one sequence in ten is cut short,
and the text is gone through again, cut and masked elsewhere, until there is enough.
Only whole numbers from a raw bit stream are used, for the reasons that samples.py gives.
"""

import platform
import re
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from pydoc_data.topics import topics
from typing import NamedTuple

import h5py
import numpy as np

from perfkit.inputs.shards import FIELDS, GUESSES, TOKENS
from perfkit.models.data import FIRST_WORD, predictions

NAME = "sequences.hdf5"
SOURCE = f"the language reference of Python {platform.python_version()}"
CLS, SEP, MASK = 101, 102, 103
"""Their ids in BERT's English vocabularies, where padding is 0."""
TYPES = {"input_ids": np.int32, "masked_lm_positions": np.int32, "masked_lm_ids": np.int32}
"""As in public shards; the other fields are int8."""


class Pair(NamedTuple):
    """Two segments of text, ids of words, and whether the second is a random one."""

    first: np.ndarray
    second: np.ndarray
    is_random: bool


class Masked(NamedTuple):
    """A sequence with words hidden: its ids, the hidden words' positions (sorted) and ids."""

    ids: np.ndarray
    positions: np.ndarray
    words: np.ndarray


class Draw:
    """Whole numbers from a raw bit stream, alike on every machine."""

    def __init__(self, seed: int) -> None:
        self.bits = np.random.PCG64(seed)

    def below(self, limit: int) -> int:
        return int(self.bits.random_raw()) % limit

    def many_below(self, limit: int, size: int) -> np.ndarray:
        return (self.bits.random_raw(size) % np.uint64(limit)).astype(np.int64)

    def some_of(self, values: np.ndarray, size: int) -> np.ndarray:
        """`size` of the values, each at most once, in the order they have there."""
        keys = self.bits.random_raw(len(values))
        return values[np.sort(np.argsort(keys, kind="stable")[:size])]


def documents(texts: dict[str, str]) -> list[np.ndarray]:
    """Each text as the ids of its words, in the order of their names.

    Ids go by frequency, from FIRST_WORD up. Lines without a letter or digit are rulers.
    """
    split = []
    for name in sorted(texts):
        lines = [line for line in texts[name].lower().splitlines() if re.search(r"\w", line)]
        split.append(re.findall(r"\w+|[^\w\s]", "\n".join(lines)))
    counts = Counter(word for words in split for word in words)
    by_frequency = sorted(counts, key=lambda word: (-counts[word], word))
    ids = {word: number for number, word in enumerate(by_frequency, FIRST_WORD)}
    return [np.array([ids[word] for word in words], np.int64) for words in split]


def pairs(texts: list[np.ndarray], room: int, draw: Draw) -> Iterator[Pair]:
    """Pairs of up to `room` words for ever, going through the texts again and again.

    There have to be two texts or more, all of two words or more, and room for two words.
    """
    while True:
        for number, text in enumerate(texts):
            start = draw.below(1 + min(room, len(text)) // 4)
            while (left := len(text) - start) >= 2:
                length = 2 + draw.below(room - 1) if draw.below(10) == 0 else room
                first = text[start : start + 1 + draw.below(min(length, left) - 1)]
                start += len(first)
                wanted = length - len(first)
                is_random = draw.below(2) == 1
                if is_random:
                    other = texts[(number + 1 + draw.below(len(texts) - 1)) % len(texts)]
                    offset = draw.below(max(1, len(other) - wanted + 1))
                    second = other[offset : offset + wanted]
                else:
                    second = text[start : start + wanted]
                    start += len(second)
                yield Pair(first, second, is_random)


def mask(ids: np.ndarray, most: int, vocabulary: int, draw: Draw) -> Masked:
    """Hide 15 % of the words in `ids`, one at least and `most` at most.

    `vocabulary` is the number of words; special tokens are never hidden.
    """
    words = np.flatnonzero(ids >= FIRST_WORD)
    size = min(most, max(1, (15 * len(words) + 50) // 100))
    positions = draw.some_of(words, size)
    fate = draw.many_below(10, size)
    random_words = FIRST_WORD + draw.many_below(vocabulary, size)
    masked = ids.copy()
    masked[positions] = np.where(
        fate < 8, MASK, np.where(fate == 8, random_words, ids[positions])
    )
    return Masked(masked, positions, ids[positions])


def sequences(texts: dict[str, str], length: int) -> Iterator[dict[str, np.ndarray]]:
    """Sequences of `length` tokens made of `texts` for ever: FIELDS, each a row of a shard."""
    draw = Draw(0)
    ids_of_texts = documents(texts)
    vocabulary = int(max(ids.max() for ids in ids_of_texts)) + 1 - FIRST_WORD
    most = predictions(length)
    for first, second, is_random in pairs(ids_of_texts, length - 3, draw):
        ids = np.concatenate([[CLS], first, [SEP], second, [SEP]])
        masked = mask(ids, most, vocabulary, draw)
        row = {name: np.zeros(length, np.int64) for name in TOKENS}
        row |= {name: np.zeros(most, np.int64) for name in GUESSES}
        row["input_ids"][: len(ids)] = masked.ids
        row["segment_ids"][len(first) + 2 : len(ids)] = 1
        row["input_mask"][: len(ids)] = 1
        row["masked_lm_positions"][: len(masked.words)] = masked.positions
        row["masked_lm_ids"][: len(masked.words)] = masked.words
        row["next_sentence_labels"] = np.array(is_random, np.int64)
        yield row


def make_shard(folder: Path, count: int, length: int) -> Iterator[int]:
    """Write folder/NAME with `count` sequences of `length` tokens; yields 1 for each made.

    It comes into being whole, with its last sequence. Not compressed, unlike public shards:
    the bytes would depend on zlib.
    """
    rows: dict[str, list[np.ndarray]] = {name: [] for name in FIELDS}
    for row in islice(sequences(topics, length), count):
        for name in FIELDS:
            rows[name].append(row[name].astype(TYPES.get(name, np.int8)))
        yield 1
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f".{NAME}.partial"
    with h5py.File(partial, "w") as file:
        for name in FIELDS:
            file.create_dataset(name, data=np.stack(rows[name]))
    partial.replace(folder / NAME)
