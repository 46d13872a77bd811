"""HDF5 shards of sequences for BERT, and what can be wrong with them.

The layout is that of the public pre-training recipes: each file holds the datasets of FIELDS
with a row per sequence, masked_lm_positions and masked_lm_ids filled up with 0, and
next_sentence_labels 1 where the second segment is a random one.
"""

import hashlib
from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np

from perfkit.inputs.files import InputError, raise_if_any
from perfkit.models.data import VOCABULARY

SUFFIXES = (".hdf5", ".h5")
TOKENS = ("input_ids", "segment_ids", "input_mask")
GUESSES = ("masked_lm_positions", "masked_lm_ids")
FIELDS = (*TOKENS, *GUESSES, "next_sentence_labels")
"""In the order of a batch: a value per token, per masked token, per sequence."""

SHARDS_CHECKED = 100
ROWS_CHECKED = 256
HEAD_BYTES = 65_536

Arrays = dict[str, np.ndarray]
"""By field, integers as stored: rows x tokens, rows x predictions or rows."""


class Shards(NamedTuple):
    """The shards of one data set, sorted by name; rows[n] sequences are in files[n]."""

    files: list[Path]
    rows: list[int]
    sequence_length: int
    sha256: str


def shard_files(folder: Path) -> list[Path]:
    """The shards in `folder`, sorted by name. Raises OSError."""
    return sorted(file for file in folder.iterdir() if file.suffix in SUFFIXES)


def fingerprint(files: list[Path]) -> str:
    """Sha256 over each file's name, size and first HEAD_BYTES bytes. Raises OSError.

    Quick on the hundreds of gigabytes of a real data set, so not over every byte.
    """
    total = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            head = hashlib.sha256(file.read(HEAD_BYTES)).hexdigest()
        total.update(f"{path.name} {path.stat().st_size} {head}\n".encode())
    return total.hexdigest()


def read_shards(folder: Path, sequence_length: int) -> Shards:
    """List the shards in `folder` and check their layout; their values are not read.

    Raises InputError that names files and datasets, with what was expected and what found.
    """
    try:
        files = shard_files(folder)
        sha256 = fingerprint(files)
    except OSError as error:
        raise InputError(f"{error.filename or folder}: {error.strerror}") from error
    if not files:
        wanted = " or ".join(f"*{suffix}" for suffix in SUFFIXES)
        raise InputError(f"{folder}: expected shards ({wanted}), found none")
    rows, problems = [], []
    width: int | None = None
    for path in files:
        try:
            shapes = _shapes(path)
        except InputError as error:
            problems += str(error).splitlines()
            continue
        width = width or shapes["masked_lm_positions"][-1]
        rows.append(shapes["input_ids"][0])
        wrong = _wrong_shapes(shapes, sequence_length, width)
        problems += [f"{path}: {sentence}" for sentence in wrong]
    raise_if_any(problems)
    return Shards(files, rows, sequence_length, sha256)


def check_values(shards: Shards) -> None:
    """See that ids, positions and labels are in range, in the first ROWS_CHECKED rows of the
    first SHARDS_CHECKED shards; the rest is checked as it is read. Raises InputError."""
    problems = []
    for path in shards.files[:SHARDS_CHECKED]:
        try:
            read_shard(path, shards.sequence_length, ROWS_CHECKED)
        except InputError as error:
            problems += str(error).splitlines()
    raise_if_any(problems)


def read_shard(path: Path, sequence_length: int, rows: int | None = None) -> Arrays:
    """All arrays of a shard, or their first `rows` rows.

    Raises InputError if it can't be read or holds values that are out of range.
    """
    try:
        with h5py.File(path, "r") as file:
            arrays = {name: file[name][:rows] for name in FIELDS}
    except (OSError, KeyError) as error:
        raise InputError(f"{path}: can't be read: {error.args[-1]}") from error
    limits = dict.fromkeys(FIELDS, 2)
    limits |= {"input_ids": VOCABULARY, "masked_lm_ids": VOCABULARY}
    limits |= {"masked_lm_positions": sequence_length}
    ranges = {name: (int(array.min()), int(array.max())) for name, array in arrays.items()}
    raise_if_any(
        [
            f"{path}: {name}: expected 0 to {limits[name] - 1}, found {low} to {high}"
            for name, (low, high) in ranges.items()
            if low < 0 or high >= limits[name]
        ]
    )
    return arrays


def _shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The shape of every field. Raises InputError where there is none, and for no integers."""
    problems, shapes = [], {}
    try:
        with h5py.File(path, "r") as file:
            for name in FIELDS:
                dataset = file.get(name)
                wrong = ""
                if not isinstance(dataset, h5py.Dataset):
                    wrong = "a dataset, found none"
                elif dataset.dtype.kind not in "iu":
                    wrong = f"whole numbers, found {dataset.dtype}"
                elif not dataset.shape or not dataset.size:
                    wrong = "at least one row, found none"
                else:
                    shapes[name] = dataset.shape
                if wrong:
                    problems.append(f"{path}: {name}: expected {wrong}")
    except OSError as error:
        raise InputError(f"{path}: can't be read as HDF5: {error}") from error
    if problems:
        raise InputError("\n".join(problems))
    return shapes


def _wrong_shapes(
    shapes: dict[str, tuple[int, ...]], sequence_length: int, width: int
) -> list[str]:
    """What differs from rows x tokens, rows x predictions (`width`) and rows."""
    rows = shapes["input_ids"][0]
    expected: dict[str, tuple[int, ...]] = dict.fromkeys(TOKENS, (rows, sequence_length))
    expected |= dict.fromkeys(GUESSES, (rows, width))
    expected["next_sentence_labels"] = (rows,)
    return [
        f"{name}: expected {_text(shape)}, found {_text(shapes[name])}"
        + f"; sequence_length is {sequence_length}" * (name in TOKENS)
        for name, shape in expected.items()
        if shapes[name] != shape
    ]


def _text(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))
