"""Sequences for BERT: HDF5 shards, what can be wrong with them, and rows for a DataLoader.

The layout is that of the public pre-training recipes: each file holds the datasets of FIELDS
with a row per sequence, masked_lm_positions and masked_lm_ids filled up with 0, and
next_sentence_labels 1 where the second segment is a random one.
"""

from collections.abc import Iterator

import h5py
import numpy as np

from perfkit.config import Config
from perfkit.inputs import InputError, raise_if_any
from perfkit.inputs.shards import ROWS_CHECKED, Row, Shards
from perfkit.models.bert import VOCABULARY, predictions

FIELDS = dict.fromkeys(("input_ids", "segment_ids", "input_mask"), "token")
FIELDS |= dict.fromkeys(("masked_lm_positions", "masked_lm_ids"), "prediction")
FIELDS["next_sentence_labels"] = "sequence"
"""What has a value each, in the order of a batch."""

Arrays = dict[str, np.ndarray]
"""By field, integers as stored: rows x tokens, rows x predictions or rows."""


class Sequences(Shards):
    """The shards in a folder."""

    expected = "a folder of pre-training shards"
    missing = "no .hdf5 file"
    kind = "shards"
    patterns = "*.hdf5", "*.h5"
    checked = 100

    def __init__(self, config: Config) -> None:
        length = config.sample_size
        self.limits = {"input_ids": VOCABULARY, "masked_lm_ids": VOCABULARY}
        self.limits["masked_lm_positions"] = length
        self.columns: dict[str, tuple[int, ...]] = {"token": (length,), "sequence": ()}
        self.current: tuple[int, Arrays] | None = None
        super().__init__(config)

    @staticmethod
    def sample_bytes(length: int) -> int:
        """Of a sequence as DataLoader hands it over."""
        return (3 * length + 2 * predictions(length)) * 8

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
