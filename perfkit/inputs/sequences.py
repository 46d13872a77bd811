"""Data sets of text: files of sequences or tokens, what can be wrong with them, and rows for a
DataLoader.

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

import h5py
import numpy as np

from perfkit.config import Config
from perfkit.inputs import InputError, raise_if_any
from perfkit.models import bert, gpt

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


FIELDS = dict.fromkeys(("input_ids", "segment_ids", "input_mask"), "token")
FIELDS |= dict.fromkeys(("masked_lm_positions", "masked_lm_ids"), "prediction")
FIELDS["next_sentence_labels"] = "sequence"
"""What has a value each, in the order of a batch."""

Arrays = dict[str, np.ndarray]
"""By field, integers as stored: rows x tokens, rows x predictions or rows."""


class Sequences(Shards):
    """The HDF5 shards of BERT's pre-training in a folder.

    The layout is that of the public recipes: each file holds the datasets of FIELDS with a row
    per sequence, masked_lm_positions and masked_lm_ids filled up with 0, and
    next_sentence_labels 1 where the second segment is a random one.
    """

    expected = "a folder of pre-training shards"
    missing = "no .hdf5 file"
    kind = "shards"
    patterns = "*.hdf5", "*.h5"
    checked = 100

    def __init__(self, config: Config) -> None:
        length = config.sample_size
        self.limits = {"input_ids": bert.VOCABULARY, "masked_lm_ids": bert.VOCABULARY}
        self.limits["masked_lm_positions"] = length
        self.columns: dict[str, tuple[int, ...]] = {"token": (length,), "sequence": ()}
        self.current: tuple[int, Arrays] | None = None
        super().__init__(config)

    @staticmethod
    def sample_bytes(length: int) -> int:
        """Of a sequence as DataLoader hands it over."""
        return (3 * length + 2 * bert.predictions(length)) * 8

    def count_rows(self, shard: int) -> int:
        return self.read(shard, 0)[0]

    def check_rows(self, shard: int) -> None:
        self.read(shard, ROWS_CHECKED)

    def read(self, shard: int, rows: int | None = None) -> tuple[int, Arrays]:
        """How many rows a shard has, and its arrays: whole, their first `rows`, none for 0.

        Raises InputError if it can't be read, if it has another layout than the first shard, or
        if these rows hold values that are out of range.
        """
        path = self.files[shard]
        try:
            with h5py.File(path, "r") as file:
                problems = [*self._layout_problems(file)]
                count = 0 if problems else len(file["input_ids"])
                names = FIELDS if count and rows != 0 else ()
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

    def __getitem__(self, index: Row) -> tuple[np.ndarray, ...]:
        """A sequence: int64, three of tokens, two of predictions, one of 1.

        All of its shard stays in memory until a row of another one is asked for.
        """
        if self.current is None or self.current[0] != index.shard:
            self.current = None  # its memory is free before the next is read
            self.current = index.shard, self.read(index.shard)[1]
        fields = (array[index.row] for array in self.current[1].values())
        return tuple(np.atleast_1d(field).astype(np.int64) for field in fields)


PATTERN = "*train*.bin"
DTYPE = np.dtype("<u2")
MAGIC, HEADER = 20_240_520, 512
"""The first 32 bits of a file with a header, and the header's half-words."""


class Tokens(Shards):
    """The token files of language models in a folder, whose rows are blocks.

    The layout is that of the public GPT recipes: `train*.bin` and `*_train_*.bin`, one token id
    after another, 16 bits each, little-endian, documents joined. nanoGPT writes nothing else;
    files of llm.c begin with a header of 1,024 bytes, whose first half-word can't be a token.

    Files are memory-mapped: a block costs the pages that it lies on. Block n of a file begins
    with token n x length and has length + 1 tokens: a sequence, and the same one token later as
    its labels.
    """

    expected = f"a folder of token files ({PATTERN}, 16 bits a token)"
    missing = f"no {PATTERN} file"
    kind = "token files"
    patterns = (PATTERN,)

    @staticmethod
    def sample_bytes(length: int) -> int:
        """Of ids and labels as DataLoader hands them over."""
        return 2 * length * 8

    def __init__(self, config: Config) -> None:
        self.length = config.sample_size
        self.arrays: list[np.ndarray] = []
        super().__init__(config)

    def count_rows(self, shard: int) -> int:
        tokens = read_tokens(self.files[shard])
        if len(tokens) <= self.length:
            needed = f"a sequence of {self.length} and its labels need {self.length + 1} tokens"
            raise InputError(f"{self.files[shard]}: {needed}, found {len(tokens)}")
        self.arrays.append(tokens)
        return (len(tokens) - 1) // self.length

    def check_rows(self, shard: int) -> None:
        for row in range(min(self.rows[shard], ROWS_CHECKED)):
            self[Row(shard, row)]

    def __getitem__(self, index: Row) -> tuple[np.ndarray, np.ndarray]:
        """Ids and labels, int64 of `length` tokens each. Raises InputError for an id beyond the
        vocabulary."""
        begin = index.row * self.length
        block = self.arrays[index.shard][begin : begin + self.length + 1].astype(np.int64)
        if block.max() >= gpt.VOCABULARY:
            raise InputError(
                f"{self.files[index.shard]}: expected tokens 0 to {gpt.VOCABULARY - 1}, "
                f"found {block.max()} among tokens {begin} to {begin + self.length}"
            )
        return block[:-1], block[1:]


def read_tokens(path: Path) -> np.ndarray:
    """The tokens of a file, memory-mapped. Raises InputError for half a token, or another
    version of the header; OSError."""
    size = path.stat().st_size
    if not size or size % DTYPE.itemsize:
        raise InputError(f"{path}: expected 2 bytes a token, found {size} bytes")
    tokens = np.memmap(path, DTYPE, "r")
    head = tokens[:4].astype(np.int64)
    if len(tokens) < HEADER or head[0] + (head[1] << 16) != MAGIC:
        return tokens
    if (version := int(head[2])) != 1:
        raise InputError(f"{path}: expected version 1 of the header, found {version}")
    return tokens[HEADER:]
