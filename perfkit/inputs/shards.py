"""Data sets of several files, each with rows: what sequences and tokens have in common.

Files may be compressed, so that a single row costs as much as thousands: a process reads a file
whole and keeps it until it is asked for a row of another. For that to be rare, the rows of an
epoch are thought of as one line, shard after shard in random order, each shard's rows shuffled.
Every process of every rank has its own stretch of that line, all of the same length: with more
shards than processes, each reads only a few; a single one they share.
"""

import hashlib
from collections.abc import Callable, Iterator
from errno import ENOENT
from itertools import count, cycle, islice
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from perfkit.config import Config
from perfkit.inputs import InputError, raise_if_any

ROWS_CHECKED = 256
HEAD_BYTES = 65_536


class Row(NamedTuple):
    """Where a sample is: the shard's place in the list, and the row in it."""

    shard: int
    row: int


class Shards:
    """The files in a folder, sorted by name; rows[n] samples are in files[n].

    Their layout is checked, their values are not read. Raises InputError that names files, with
    what was expected and what found.
    """

    kind: ClassVar[str]
    patterns: ClassVar[tuple[str, ...]]
    checked: ClassVar[int | None] = None
    """The files of which `check` reads rows; None: all."""

    def __init__(self, config: Config) -> None:
        self.config, self.source = config, config.data_folder
        try:
            self.files = self.find(self.source)
            self.sha256 = self.digest(self.source)
            self.rows = self._each(self.files, self.count_rows)
        except OSError as error:
            raise InputError(f"{error.filename or self.source}: {error.strerror}") from error

    @classmethod
    def find(cls, folder: Path) -> list[Path]:
        """The files, sorted by name. Raises OSError, also if there are none."""
        files = sorted(file for file in folder.iterdir() if any(map(file.match, cls.patterns)))
        if not files:
            wanted = f"expected {cls.kind} ({' or '.join(cls.patterns)}), found none"
            raise FileNotFoundError(ENOENT, wanted, str(folder))
        return files

    @classmethod
    def digest(cls, folder: Path) -> str:
        """Sha256 over each file's name, size and first HEAD_BYTES bytes. Raises OSError.

        Quick on the hundreds of gigabytes of a real data set, so not over every byte.
        """
        total = hashlib.sha256()
        for path in cls.find(folder):
            with path.open("rb") as file:
                head = hashlib.sha256(file.read(HEAD_BYTES)).hexdigest()
            total.update(f"{path.name} {path.stat().st_size} {head}\n".encode())
        return total.hexdigest()

    def check(self) -> None:
        """See that values are in range, in the first ROWS_CHECKED rows of a file; the rest is
        checked as it is read. Raises InputError."""
        self._each(self.files[: self.checked], self.check_rows)

    def _each(self, files: list[Path], read: Callable[[int], Any]) -> list[Any]:
        """What `read` gives for the number of each of these files."""
        found, problems = [], []
        for shard in range(len(files)):
            try:
                found.append(read(shard))
            except InputError as error:
                problems += str(error).splitlines()
        raise_if_any(problems)
        return found

    def count_rows(self, shard: int) -> int:
        """Of one file. Raises OSError; InputError where its layout is wrong."""
        raise NotImplementedError

    def check_rows(self, shard: int) -> None:
        """Read the first ROWS_CHECKED rows. Raises InputError."""
        raise NotImplementedError

    def batches(self, rank: int, steps: int) -> Iterator[list[Row]]:
        """The rows of this rank's next batch, for ever, where there are enough for `steps`.

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

    def __getitem__(self, index: Row) -> tuple[Any, ...]:
        """The arrays of a sample. Raises InputError for what is wrong in it."""
        raise NotImplementedError


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
