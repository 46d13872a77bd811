"""Sample data, identical bytes on every machine: images, sequences for BERT, tokens.

Only integers from a raw bit stream are used, because floating point and NumPy's distributions
may differ between machines and releases.

A picture is a "dead leaves" image: overlapping opaque discs with power-law radii, which have
the edges and scale invariance of photographs (Lee, Mumford and Huang, Occlusion models for
natural images, IJCV 41, 2001), plus noise of several octaves (1/f).

A sequence is [CLS] A [SEP] B [SEP] of random words, masked as in Devlin et al., BERT:
pre-training of deep bidirectional transformers, 2018; as in the public recipes, one in ten is
shorter.

Tokens are the bytes of Python's language reference, `pydoc_data.topics`, with an end-of-text
token after each topic, and so depend on the Python release: a byte-level vocabulary needs no
merges file. In files of 32-bit tokens, the end-of-text token is the first id after the bytes,
which the vocabulary of every size of a model has.
"""

import io
import os
import platform
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from math import isqrt
from pathlib import Path
from pydoc_data.topics import topics
from typing import BinaryIO, NamedTuple

import h5py
import numpy as np
from PIL import Image, ImageDraw

from perfkit.inputs.images import LIST
from perfkit.inputs.sequences import FIELDS
from perfkit.inputs.tokens import GPT2, LLAMA3, TokenLayout
from perfkit.training.models import BERT_SIZE, END_OF_TEXT, predictions

SIZES = [(500, 375)] * 3 + [(375, 500), (500, 333), (500, 400), (480, 360), (640, 480)]
LEAVES = 700
OCTAVES = ((4, 44), (8, 30), (16, 22), (32, 16), (64, 12), (128, 9), (256, 7))
GRAIN = 32
"""Noise: (cells per side, amplitude) of each octave, and the amplitude of single pixels."""
QUALITY = 95
"""Gives about 140 kB at 500 x 375 pixels, as real photographs have there."""

SHARD = "sequences.hdf5"
TOKENS = "train.bin"
SOURCE = f"the language reference of Python {platform.python_version()}"
CLS, SEP, MASK = 101, 102, 103
"""Ids of special tokens in BERT's English vocabularies."""
BYTE_IDS = 256
"""Number of ids of bytes."""


def picture(number: int) -> bytes:
    """Return the JPEG bytes of sample `number`."""
    bits = np.random.PCG64(number)
    size = SIZES[bits.random_raw() % len(SIZES)]
    pixels = _leaves(bits, size)
    # 1/f noise: each octave is a small random image, enlarged; the grain has full size.
    for cells, amplitude in OCTAVES:
        pixels = pixels + _noise(bits, (cells, cells), size, amplitude)
    pixels = pixels + _noise(bits, size, size, GRAIN)
    image = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=QUALITY)
    return buffer.getvalue()


def _leaves(bits: np.random.PCG64, size: tuple[int, int]) -> np.ndarray:
    """Return the pixels of overlapping opaque discs."""
    width, height = size
    image = Image.new("RGB", size, (112, 116, 104))
    draw = ImageDraw.Draw(image)
    reach = 3 * max(width, height) // 4
    numbers = bits.random_raw(6 * LEAVES) >> 33
    for x, y, chance, red, green, blue in numbers.reshape(LEAVES, 6).tolist():
        # An integer power law: radii of density r^-3 between 6 and `reach` pixels.
        radius = reach * 6 // max(6, isqrt(chance % 10**6 * reach**2 // 10**6))
        tint = 2 * (red % 160 + 30)
        colour = tuple((tint + part % 220 + 10) // 3 for part in (red >> 8, green, blue))
        draw.circle((x % width, y % height), radius, fill=colour)
    return np.asarray(image, np.int32)


def _noise(
    bits: np.random.PCG64, cells: tuple[int, int], size: tuple[int, int], amplitude: int
) -> np.ndarray:
    """Return noise of this amplitude for each pixel: a random image of so many columns and
    rows of cells, enlarged to `size`."""
    columns, rows = cells
    count = rows * columns
    eight_bytes_each = bits.random_raw(-(-count // 8)).astype("<u8")
    values = eight_bytes_each.view(np.uint8)[:count]
    small = Image.fromarray(values.reshape(rows, columns))
    large = small.resize(size, Image.Resampling.BICUBIC)
    deviation = np.asarray(large, np.int32) - 128
    noise = deviation * amplitude // 128
    return noise[..., None]


def path_of(number: int) -> str:
    """Return the path of picture `number` below the data folder, in ImageNet's layout."""
    return f"train/s{number % 64:02}/s{number % 64:02}_{number}.jpeg"


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Yield a temporary path that replaces `path` when the block ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _write(folder: Path, number: int) -> int:
    path = folder / path_of(number)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.write_bytes(picture(number))


def make_images(folder: Path, count: int, _size: int = 0) -> Iterator[int]:
    """Write `count` pictures, then train_list.txt, below `folder`, overwriting existing files;
    yields the bytes of each picture."""
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        yield from pool.map(_write, [folder] * count, range(count), chunksize=8)
    lines = [f"{path_of(number)} {number % 64}\n" for number in range(count)]
    with whole(folder / LIST) as file:
        file.write_text("".join(lines))


def sequence(number: int, length: int) -> dict[str, np.ndarray]:
    """Return sample sequence `number` of up to `length` tokens: a row of a shard, by field,
    with the types of public shards. 15 % of the words are masked; of ten masked words eight
    become [MASK], one a random word, and one stays."""
    bits = np.random.PCG64(number)
    first_word, most = BERT_SIZE.first_word, predictions(length)

    def below(limit: int) -> int:
        return int(bits.random_raw() % limit)

    def words(count: int) -> np.ndarray:
        numbers = bits.random_raw(count) % (BERT_SIZE.vocabulary - first_word)
        return first_word + numbers.astype(np.int64)

    is_short = below(10) == 0
    tokens = 5 + below(length - 4) if is_short else length
    end_of_first = 2 + below(tokens - 4)
    ids = words(tokens)
    ids[[0, end_of_first, tokens - 1]] = CLS, SEP, SEP
    places = np.flatnonzero(ids >= first_word)
    count = min(most, max(1, 15 * len(places) // 100))
    keys = bits.random_raw(len(places))
    masked = np.sort(places[np.argsort(keys, kind="stable")[:count]])
    originals = ids[masked]
    draw = bits.random_raw(count) % 10
    ids[masked] = np.select([draw < 8, draw == 8], [MASK, words(count)], originals)
    return {
        "input_ids": _padded(ids, length, np.int32),
        "segment_ids": _padded(np.arange(tokens) > end_of_first, length, np.int8),
        "input_mask": _padded(np.ones(tokens), length, np.int8),
        "masked_lm_positions": _padded(masked, most, np.int32),
        "masked_lm_ids": _padded(originals, most, np.int32),
        "next_sentence_labels": np.array(below(2), np.int8),
    }


def _padded(values: np.ndarray, width: int, dtype: type[np.integer]) -> np.ndarray:
    """Return the values with zeros behind them."""
    row = np.zeros(width, dtype)
    row[: len(values)] = values
    return row


def make_sequences(folder: Path, count: int, length: int) -> Iterator[int]:
    """Write folder/SHARD with `count` sequences of `length` tokens; yields the bytes of each.
    Unlike public shards it is not compressed, since the bytes would depend on zlib."""
    rows = []
    for number in range(count):
        rows.append(sequence(number, length))
        yield sum(field.nbytes for field in rows[-1].values())
    with whole(folder / SHARD) as path, h5py.File(path, "w") as file:
        for name in FIELDS:
            file.create_dataset(name, data=np.stack([row[name] for row in rows]))


def make_tokens(folder: Path, count: int, length: int) -> Iterator[int]:
    """Write GPT-2's folder/TOKENS, without a header; see _write_tokens."""
    with whole(folder / TOKENS) as path, path.open("wb") as file:
        yield from _write_tokens(file, GPT2, END_OF_TEXT, count, length)


def make_wide_tokens(folder: Path, count: int, length: int) -> Iterator[int]:
    """Write folder/TOKENS with 32 bits a token after llm.c's header; see _write_tokens."""
    with whole(folder / TOKENS) as path, path.open("wb") as file:
        file.write(LLAMA3.header(count * length + 1))
        yield from _write_tokens(file, LLAMA3, BYTE_IDS, count, length)


def _write_tokens(
    file: BinaryIO, layout: TokenLayout, end_of_text: int, count: int, length: int
) -> Iterator[int]:
    """Write `count` sequences of `length` tokens and one more token for the last label; yields
    the bytes of each sequence."""
    parts = []
    for name in sorted(topics):
        text_bytes = np.frombuffer(topics[name].encode(), np.uint8)
        parts += [text_bytes.astype(layout.dtype), np.array([end_of_text], layout.dtype)]
    text = np.concatenate(parts)
    for begin in range(0, count * length, length):
        block = text.take(range(begin, begin + length), mode="wrap")
        yield file.write(block.tobytes())
    file.write(text.take([count * length], mode="wrap").tobytes())


class SampleData(NamedTuple):
    """Default sample data: `make(folder, count, size)` writes `count` samples of that size and
    yields the bytes of each; `file` is written last."""

    file: str
    default_count: int
    make: Callable[[Path, int, int], Iterator[int]]
    source: str = ""


SAMPLE_DATA = {
    "images": SampleData(LIST, 512, make_images),
    "shards": SampleData(SHARD, 2048, make_sequences),
    "tokens": SampleData(TOKENS, 2048, make_tokens, SOURCE),
    "tokens32": SampleData(TOKENS, 2048, make_wide_tokens, SOURCE),
}
"""Sample data by data format of a model."""
