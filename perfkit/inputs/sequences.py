"""Sequences for a DataLoader, from HDF5 shards.

Public shards are compressed, so that a single row costs as much as thousands: a process reads
a shard whole and keeps it until it is asked for a row of another. For that to be rare, the
rows of an epoch are thought of as one line, shard after shard in random order, each shard's
rows shuffled. Every process of every rank has its own stretch of that line, all of the same
length: with more shards than processes, each reads only a few; a single one they share.
"""

import multiprocessing
from collections.abc import Iterator
from itertools import count, cycle, islice
from typing import Any, NamedTuple

import numpy as np

from perfkit.config import Config
from perfkit.inputs.files import InputError, whole_steps
from perfkit.inputs.shards import FIELDS, Arrays, Shards, read_shard, read_shards


class Row(NamedTuple):
    """Where a sequence is: the shard's place in the list, and the row in it."""

    shard: int
    row: int


class Sequences:
    """The sequences of the shards: int64, three of tokens, two of predictions, one of 1."""

    def __init__(self, shards: Shards) -> None:
        self.shards = shards
        # What a process could not read; a framework may only say that one failed.
        self.unreadable: Any = multiprocessing.SimpleQueue()
        self.current: tuple[int, Arrays] | None = None

    def __len__(self) -> int:
        return sum(self.shards.rows)

    def __getitem__(self, index: Row) -> tuple[np.ndarray, ...]:
        arrays = self._arrays(index.shard)
        fields = (arrays[name][index.row] for name in FIELDS)
        return tuple(np.atleast_1d(field).astype(np.int64) for field in fields)

    def _arrays(self, shard: int) -> Arrays:
        """All of this shard, in memory until another one is asked for."""
        if self.current is None or self.current[0] != shard:
            self.current = None  # its memory is free before the next is read
            try:
                arrays = read_shard(self.shards.files[shard], self.shards.sequence_length)
            except InputError as error:
                self.unreadable.put(str(error))
                raise
            self.current = shard, arrays
        return self.current[1]


def samples(config: Config, rank: int) -> tuple[Sequences, Iterator[list[Row]]]:
    """The data set, and for ever the rows of this rank's next batch.

    Raises InputError for wrong shards, and if they hold less than one step of all ranks.
    """
    assert config.sequence_length is not None
    shards = read_shards(config.data_folder, config.sequence_length)
    steps = whole_steps(config, sum(shards.rows), config.data_folder)
    return Sequences(shards), _batches(
        shards, config, rank, min(config.dataloader_workers, steps)
    )


def _batches(shards: Shards, config: Config, rank: int, processes: int) -> Iterator[list[Row]]:
    """Batches of this rank; a DataLoader deals them to its processes in turn, as here."""
    stretches = [
        stretch(shards, config.seed, rank * processes + process, config.ranks * processes)
        for process in range(processes)
    ]
    for rows in cycle(stretches):
        yield list(islice(rows, config.batch_size))


def stretch(shards: Shards, seed: int, part: int, parts: int) -> Iterator[Row]:
    """The rows of part `part` of `parts`, epoch after epoch for ever.

    Within an epoch parts are disjoint and of equal length; up to `parts` - 1 rows, others each
    time, are left out. A batch that an epoch ends in goes on with the next one's rows.
    """
    length = sum(shards.rows) // parts
    for epoch in count():
        order = np.random.default_rng((seed, epoch)).permutation(len(shards.files))
        begin = part * length
        end = begin + length
        for shard in order.tolist():
            rows = shards.rows[shard]
            if begin < rows and end > 0:
                shuffled = np.random.default_rng((seed, epoch, shard)).permutation(rows)
                for row in shuffled[max(begin, 0) : end].tolist():
                    yield Row(shard, row)
            begin, end = begin - rows, end - rows
