"""Text data sets: shards (files) of sequences or tokens, their checks, rows for a DataLoader.

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

import h5py
import numpy as np

from perfkit.core.config import Config
from perfkit.core.inputs import InputError, raise_if_any
from perfkit.core.models import bert, gpt

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
        """Return `read(index)` of each file. Raises InputError for all invalid files."""
        values, problems = [], []
        for shard in range(len(files)):
            try:
                values.append(read(shard))
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
        config = self.config
        processes = min(config.dataloader_workers, steps)
        parts = range(rank * processes, (rank + 1) * processes)
        total = config.ranks * processes
        stretches = [stretch(self.rows, config.seed, part, total) for part in parts]
        for rows in cycle(stretches):
            yield list(islice(rows, config.batch_size))

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


FIELDS = dict.fromkeys(("input_ids", "segment_ids", "input_mask"), "token")
FIELDS |= dict.fromkeys(("masked_lm_positions", "masked_lm_ids"), "prediction")
FIELDS["next_sentence_labels"] = "sequence"
"""Field -> unit with one value each, in the order of a batch."""

Arrays = dict[str, np.ndarray]
"""Field -> stored integers: rows x tokens, rows x predictions or rows."""


class Sequences(Shards):
    """A folder of HDF5 shards for BERT's pre-training, in the layout of the public recipes: a
    file holds the datasets of FIELDS with a row per sequence; masked_lm_positions and
    masked_lm_ids are padded with 0, next_sentence_labels is 1 for a random second segment."""

    expected = "pre-training shards (*.hdf5 or *.h5)"
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
        return (3 * length + 2 * bert.predictions(length)) * 8

    def count_rows(self, shard: int) -> int:
        return self.read(shard, 0)[0]

    def check_rows(self, shard: int) -> None:
        self.read(shard, ROWS_CHECKED)

    def read(self, shard: int, rows: int | None = None) -> tuple[int, Arrays]:
        """Return a shard's number of rows and its arrays: all rows, or the first `rows`; none
        for 0. Raises InputError if the shard is unreadable, its layout invalid or different
        from the first shard's, or a value out of range."""
        path = self.files[shard]
        count, arrays = 0, {}
        try:
            with h5py.File(path, "r") as file:
                problems = [*self._layout_problems(file)]
                if not problems:
                    count = len(file["input_ids"])
                if count and rows != 0:
                    arrays = {name: file[name][:rows] for name in FIELDS}
        except OSError as error:
            raise InputError(f"{path}: can't be read as HDF5: {error}") from error
        for name, array in arrays.items():
            lowest, highest = array.min(), array.max()
            last = self.limits.get(name, 2) - 1
            if lowest < 0 or highest > last:
                problems.append(f"{name}: expected 0 to {last}, found {lowest} to {highest}")
        raise_if_any([f"{path}: {problem}" for problem in problems])
        return count, arrays

    def _layout_problems(self, file: h5py.File) -> Iterator[str]:
        """Yield the fields that are missing, empty, no integers, or of a wrong shape."""
        rows = 0
        for name, kind in FIELDS.items():
            dataset = file.get(name)
            hint = ""
            if not isinstance(dataset, h5py.Dataset):
                expected, found = "a dataset", "none"
            elif dataset.dtype.kind not in "iu":
                expected, found = "whole numbers", str(dataset.dtype)
            elif not dataset.shape or not dataset.size:
                expected, found = "at least one row", "none"
            else:
                rows = rows or len(dataset)
                # The first shard determines the number of predictions.
                columns = self.columns.setdefault(kind, dataset.shape[-1:])
                expected = " x ".join(map(str, (rows, *columns)))
                found = " x ".join(map(str, dataset.shape))
                if kind == "token":
                    hint = f"; sequence_length is {columns[0]}"
            if expected != found:
                yield f"{name}: expected {expected}, found {found}{hint}"

    def __getitem__(self, index: ShardRow) -> tuple[np.ndarray, ...]:
        """Return a sequence, int64: three arrays of tokens, two of predictions, one of 1. Keeps
        its shard in memory until a row of another shard is requested."""
        if self.current is None or self.current[0] != index.shard:
            self.current = None  # frees memory before the next shard is read
            _count, arrays = self.read(index.shard)
            self.current = index.shard, arrays
        fields = []
        for array in self.current[1].values():
            field = np.atleast_1d(array[index.row])
            fields.append(field.astype(np.int64))
        return tuple(fields)


PATTERN = "*train*.bin"
DTYPE = np.dtype("<u2")
MAGIC, HEADER = 20_240_520, 512
"""First 32 bits of a file with a header, and the header's length in 16-bit words."""


class Tokens(Shards):
    """A folder of token files for language models, in the layout of the public GPT recipes:
    `train*.bin` and `*_train_*.bin` hold concatenated documents as 16-bit little-endian token
    ids, without a header (nanoGPT) or after a header of 1,024 bytes whose first 16-bit word
    cannot be a token (llm.c).

    Files are memory-mapped, so a row reads only its pages. Row n starts at token n x length and
    has length + 1 tokens: a sequence, and its labels shifted by one token.
    """

    expected = f"token files ({PATTERN}, 16 bits a token)"
    patterns = (PATTERN,)

    @staticmethod
    def sample_bytes(length: int) -> int:
        return 2 * length * 8

    def __init__(self, config: Config) -> None:
        self.length = config.sample_size
        self.current: tuple[int, np.ndarray] | None = None
        super().__init__(config)

    def count_rows(self, shard: int) -> int:
        tokens = read_tokens(self.files[shard])
        if len(tokens) <= self.length:
            expected = f"expected at least {self.length + 1} tokens (sequence_length + 1)"
            raise InputError(f"{self.files[shard]}: {expected}, found {len(tokens)}")
        return (len(tokens) - 1) // self.length

    def check_rows(self, shard: int) -> None:
        for row in range(min(self.rows[shard], ROWS_CHECKED)):
            self[ShardRow(shard, row)]

    def __getitem__(self, index: ShardRow) -> tuple[np.ndarray, np.ndarray]:
        """Return ids and labels, int64 of `length` tokens each. Raises InputError if an id is
        outside the vocabulary."""
        # One file at a time: a map keeps its file open, and a data set may have thousands.
        if self.current is None or self.current[0] != index.shard:
            self.current = index.shard, read_tokens(self.files[index.shard])
        _shard, tokens = self.current
        begin = index.row * self.length
        last = begin + self.length
        block = tokens[begin : last + 1].astype(np.int64)
        if block.max() >= gpt.VOCABULARY:
            raise InputError(
                f"{self.files[index.shard]}: expected tokens 0 to {gpt.VOCABULARY - 1}, "
                f"found {block.max()} among tokens {begin} to {last}"
            )
        return block[:-1], block[1:]


def read_tokens(path: Path) -> np.ndarray:
    """Memory-map the tokens of a file. Raises OSError, or InputError for an odd or zero size or
    an unknown header version."""
    size = path.stat().st_size
    if not size or size % DTYPE.itemsize:
        raise InputError(f"{path}: expected 2 bytes a token, found {size} bytes")
    tokens = np.memmap(path, DTYPE, "r")
    head = tokens[:4].astype(np.int64)
    if len(tokens) < HEADER or head[0] + (head[1] << 16) != MAGIC:
        return tokens
    version = int(head[2])
    if version != 1:
        raise InputError(f"{path}: expected header version 1, found {version}")
    return tokens[HEADER:]
