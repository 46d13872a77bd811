"""Text data sets: shards (files) of sequences or tokens, and rows of them for a DataLoader.

Compressed files make reading one row as expensive as reading thousands, so a process reads a
whole shard and keeps it until a row of another shard is requested. To make that rare, an epoch
is one line of rows, shard by shard in random order and shuffled within each shard, cut into
stretches of equal length, one for each process of each rank. With more shards than processes,
each process reads only a few shards; a single shard is shared.
"""

import hashlib
from collections.abc import Callable, Iterator
from errno import ENOENT
from itertools import count, cycle, islice
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from perfkit.inputs import InputError, OtherLengthError, raise_if_any
from perfkit.training.options import Options

ROWS_CHECKED = 256
HEAD_BYTES = 65_536


class ShardRow(NamedTuple):
    """Location of a sample: index of the shard, and row in the shard."""

    shard: int
    row: int


class Shards:
    """The files in a folder, sorted by name; files[n] has rows[n] samples. Checks the layout
    without reading values. Raises InputError."""

    expected: ClassVar[str]
    patterns: ClassVar[tuple[str, ...]]
    checked: ClassVar[int | None] = None
    """Number of files whose rows `check` reads; None: all."""

    def __init__(self, options: Options) -> None:
        self.options, self.source = options, options.data_folder
        try:
            self.files = self.find(self.source)
            self.sha256 = self.digest(self.source)
            self.rows = self._each(self.files, self.count_rows)
        except OSError as error:
            raise InputError(f"{error.filename or self.source}: {error.strerror}") from error

    @classmethod
    def find(cls, folder: Path) -> list[Path]:
        """Return the files, sorted by name. Raises OSError, also if there are none."""
        files = []
        for file in sorted(folder.iterdir()):
            if any(file.match(pattern) for pattern in cls.patterns):
                files.append(file)
        if not files:
            message = f"expected {cls.expected}, found none"
            raise FileNotFoundError(ENOENT, message, str(folder))
        return files

    @classmethod
    def digest(cls, folder: Path) -> str:
        """Return the sha256 of each file's name, size and first HEAD_BYTES bytes: quick for
        hundreds of gigabytes. Raises OSError."""
        total = hashlib.sha256()
        for path in cls.find(folder):
            with path.open("rb") as file:
                head = hashlib.sha256(file.read(HEAD_BYTES)).hexdigest()
            line = f"{path.name} {path.stat().st_size} {head}\n"
            total.update(line.encode(errors="surrogateescape"))
        return total.hexdigest()

    def check(self) -> None:
        """Check the values in the first ROWS_CHECKED rows of the first `checked` files; other
        rows are checked when they are read. Raises InputError."""
        self._each(self.files[: self.checked], self.check_rows)

    def _each(self, files: list[Path], read: Callable[[int], Any]) -> list[Any]:
        """Return `read(index)` of each file. Raises InputError for all invalid files, at the
        first with sequences of another length."""
        values, problems = [], []
        for shard in range(len(files)):
            try:
                values.append(read(shard))
            except OtherLengthError:
                raise
            except InputError as error:
                problems += str(error).splitlines()
        raise_if_any(problems)
        return values

    def count_rows(self, shard: int) -> int:
        """Count the rows of a file. Raises OSError; InputError if the layout is invalid."""
        raise NotImplementedError

    def check_rows(self, shard: int) -> None:
        """Check the first ROWS_CHECKED rows of a file. Raises InputError."""

    def batches(self, rank: int, steps: int) -> Iterator[list[ShardRow]]:
        """Yield the rows of this rank's batches, endlessly; an epoch has at least `steps`
        steps. Stretches alternate, as a DataLoader assigns batches to processes in turn."""
        options = self.options
        processes = min(options.dataloader_workers, steps)
        parts = range(rank * processes, (rank + 1) * processes)
        total = options.ranks * processes
        stretches = [stretch(self.rows, options.seed, part, total) for part in parts]
        for rows in cycle(stretches):
            yield list(islice(rows, options.batch_size))

    def __len__(self) -> int:
        return sum(self.rows)

    def __getitem__(self, index: ShardRow) -> tuple[Any, ...]:
        """Return the arrays of a sample. Raises InputError if its values are invalid."""
        raise NotImplementedError


def stretch(rows_of_shards: list[int], seed: int, part: int, parts: int) -> Iterator[ShardRow]:
    """Yield the rows of part `part` of `parts`, epoch after epoch, endlessly. Within an epoch,
    parts are disjoint and of equal length; up to `parts` - 1 rows are left out, different ones
    each time. A batch may span two epochs."""
    length = sum(rows_of_shards) // parts
    for epoch in count():
        order = np.random.default_rng((seed, epoch)).permutation(len(rows_of_shards))
        begin = part * length
        end = begin + length
        for shard in order.tolist():
            rows = rows_of_shards[shard]
            if begin < rows and end > 0:
                random = np.random.default_rng((seed, epoch, shard))
                shuffled = random.permutation(rows)
                # A copy, since a slice would keep the order of the whole shard in memory.
                shuffled = shuffled[max(begin, 0) : end].copy()
                for row in shuffled:
                    yield ShardRow(shard, int(row))
            begin, end = begin - rows, end - rows
