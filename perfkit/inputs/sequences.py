"""Sequences for BERT: HDF5 shards, what can be wrong with them, and rows for a DataLoader.

The layout is that of the public pre-training recipes: each file holds the datasets of FIELDS
with a row per sequence, masked_lm_positions and masked_lm_ids filled up with 0, and
next_sentence_labels 1 where the second segment is a random one.

Public shards are compressed, so that a single row costs as much as thousands: a process reads
a shard whole and keeps it until it is asked for a row of another. For that to be rare, the
rows of an epoch are thought of as one line, shard after shard in random order, each shard's
rows shuffled. Every process of every rank has its own stretch of that line, all of the same
length: with more shards than processes, each reads only a few; a single one they share.
"""

import hashlib
from collections.abc import Iterator
from errno import ENOENT
from itertools import count, cycle, islice
from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np

from perfkit.config import Config
from perfkit.inputs import InputError, raise_if_any
from perfkit.models.bert import VOCABULARY

SUFFIXES = (".hdf5", ".h5")
FIELDS = dict.fromkeys(("input_ids", "segment_ids", "input_mask"), "token")
FIELDS |= dict.fromkeys(("masked_lm_positions", "masked_lm_ids"), "prediction")
FIELDS["next_sentence_labels"] = "sequence"
"""What has a value each, in the order of a batch."""
LIMITS = {"input_ids": VOCABULARY, "masked_lm_ids": VOCABULARY}
"""Values are below it; below 2, of fields that are neither here nor positions."""

SHARDS_CHECKED = 100
ROWS_CHECKED = 256
HEAD_BYTES = 65_536

Arrays = dict[str, np.ndarray]
"""By field, integers as stored: rows x tokens, rows x predictions or rows."""


class Row(NamedTuple):
    """Where a sequence is: the shard's place in the list, and the row in it."""

    shard: int
    row: int


class Sequences:
    """The shards in a folder, sorted by name; rows[n] sequences are in files[n].

    Their layout is checked, their values are not read. Raises InputError that names files and
    datasets, with what was expected and what found.
    """

    def __init__(self, config: Config) -> None:
        self.config, self.source = config, config.data_folder
        self.limits = LIMITS | {"masked_lm_positions": config.sample_size}
        self.columns = {"token": (config.sample_size,), "sequence": ()}
        self.current: tuple[int, Arrays] | None = None
        try:
            self.files = shard_files(self.source)
            self.sha256 = self.digest(self.source)
        except OSError as error:
            raise InputError(f"{error.filename or self.source}: {error.strerror}") from error
        self.rows = self._read_each(self.files, 0)

    @staticmethod
    def digest(folder: Path) -> str:
        """Sha256 over each shard's name, size and first HEAD_BYTES bytes. Raises OSError.

        Quick on the hundreds of gigabytes of a real data set, so not over every byte.
        """
        total = hashlib.sha256()
        for path in shard_files(folder):
            with path.open("rb") as file:
                head = hashlib.sha256(file.read(HEAD_BYTES)).hexdigest()
            total.update(f"{path.name} {path.stat().st_size} {head}\n".encode())
        return total.hexdigest()

    def check(self) -> None:
        """See that values are in range, in the first ROWS_CHECKED rows of the first
        SHARDS_CHECKED shards; the rest is checked as it is read. Raises InputError."""
        self._read_each(self.files[:SHARDS_CHECKED], ROWS_CHECKED)

    def _read_each(self, files: list[Path], rows: int) -> list[int]:
        """How many rows each shard has; the first `rows` of them are read."""
        counts, problems = [], []
        for path in files:
            try:
                counts.append(self.read(path, rows)[0])
            except InputError as error:
                problems += str(error).splitlines()
        raise_if_any(problems)
        return counts

    def read(self, path: Path, rows: int | None = None) -> tuple[int, Arrays]:
        """How many rows a shard has, and its arrays: whole, their first `rows`, none for 0.

        Raises InputError if it can't be read, if it has another layout than the first shard, or
        if these rows hold values that are out of range.
        """
        arrays: Arrays = {}
        try:
            with h5py.File(path, "r") as file:
                problems = [*self._layout_problems(file)]
                if not problems:
                    count = len(file["input_ids"])
                    names = [] if rows == 0 else FIELDS
                    arrays = {name: file[name][:rows] for name in names}
        except OSError as error:
            raise InputError(f"{path}: can't be read as HDF5: {error}") from error
        for name, array in arrays.items():
            last = self.limits.get(name, 2) - 1
            if not 0 <= array.min() <= array.max() <= last:
                found = f"{array.min()} to {array.max()}"
                problems.append(f"{name}: expected 0 to {last}, found {found}")
        raise_if_any([f"{path}: {problem}" for problem in problems])
        return count, arrays

    def _layout_problems(self, file: h5py.File) -> Iterator[str]:
        """Fields that are no integers of rows x tokens, rows x predictions or rows."""
        rows = 0
        for name, kind in FIELDS.items():
            dataset, hint = file.get(name), ""
            if not isinstance(dataset, h5py.Dataset):
                expected, found = "a dataset", "none"
            elif dataset.dtype.kind not in "iu":
                expected, found = "whole numbers", str(dataset.dtype)
            elif not dataset.shape or not dataset.size:
                expected, found = "at least one row", "none"
            else:
                rows = rows or len(dataset)
                # The first shard says how many predictions a sequence has.
                shape = rows, *self.columns.setdefault(kind, dataset.shape[-1:])
                expected, found = (" x ".join(map(str, s)) for s in (shape, dataset.shape))
                hint = f"; sequence_length is {shape[1]}" if kind == "token" else ""
            if expected != found:
                yield f"{name}: expected {expected}, found {found}{hint}"

    def batches(self, rank: int, steps: int) -> Iterator[list[Row]]:
        """The rows of this rank's next batch, for ever. There are enough for `steps`.

        A DataLoader deals batches to its processes in turn, as they are made here.
        """
        config = self.config
        processes = min(config.dataloader_workers, steps)
        parts = range(rank * processes, (rank + 1) * processes)
        every = config.ranks * processes
        for rows in cycle([stretch(self.rows, config.seed, part, every) for part in parts]):
            yield list(islice(rows, config.batch_size))

    def __len__(self) -> int:
        return sum(self.rows)

    def __getitem__(self, index: Row) -> tuple[np.ndarray, ...]:
        """A sequence: int64, three of tokens, two of predictions, one of 1.

        All of its shard stays in memory until a row of another one is asked for.
        """
        if self.current is None or self.current[0] != index.shard:
            self.current = None  # its memory is free before the next is read
            self.current = index.shard, self.read(self.files[index.shard])[1]
        fields = (array[index.row] for array in self.current[1].values())
        return tuple(np.atleast_1d(field).astype(np.int64) for field in fields)


def shard_files(folder: Path) -> list[Path]:
    """The shards in `folder`, sorted by name. Raises OSError, also if there are none."""
    files = sorted(file for file in folder.iterdir() if file.suffix in SUFFIXES)
    if not files:
        wanted = " or ".join(f"*{suffix}" for suffix in SUFFIXES)
        raise FileNotFoundError(ENOENT, f"expected shards ({wanted}), found none", str(folder))
    return files


def stretch(rows_of_shards: list[int], seed: int, part: int, parts: int) -> Iterator[Row]:
    """The rows of part `part` of `parts`, epoch after epoch for ever.

    Within an epoch parts are disjoint and of equal length; up to `parts` - 1 rows, others each
    time, are left out. A batch that an epoch ends in goes on with the next one's rows.
    """
    length = sum(rows_of_shards) // parts
    for epoch in count():
        order = np.random.default_rng((seed, epoch)).permutation(len(rows_of_shards))
        begin = part * length
        end = begin + length
        for shard in order.tolist():
            rows = rows_of_shards[shard]
            if begin < rows and end > 0:
                shuffled = np.random.default_rng((seed, epoch, shard)).permutation(rows)
                for row in shuffled[max(begin, 0) : end].tolist():
                    yield Row(shard, row)
            begin, end = begin - rows, end - rows
