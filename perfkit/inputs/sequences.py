"""Sequences for BERT's pre-training: HDF5 shards, and the checks of their layout and values."""

from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np

from perfkit.inputs import InputError, OtherLengthError, raise_if_any
from perfkit.inputs.shards import ROWS_CHECKED, ShardRow, Shards
from perfkit.training import models
from perfkit.training.options import Options

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

    def __init__(self, options: Options) -> None:
        self.length = length = options.sample_size
        self.limits = {
            "input_ids": models.BERT_SIZE.vocabulary,
            "masked_lm_ids": models.BERT_SIZE.vocabulary,
        }
        self.limits["masked_lm_positions"] = length
        self.columns: dict[str, tuple[int, ...]] = {"token": (length,), "sequence": ()}
        self.current: tuple[int, Arrays] | None = None
        super().__init__(options)

    @staticmethod
    def sample_bytes(length: int) -> int:
        return (3 * length + 2 * models.predictions(length)) * 8

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
                self._require_length(path, file)
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

    def _require_length(self, path: Path, file: h5py.File) -> None:
        """Raise OtherLengthError if a shard has sequences of another length."""
        ids = file.get("input_ids")
        if isinstance(ids, h5py.Dataset) and ids.ndim == 2 and ids.shape[1] != self.length:
            raise OtherLengthError(path, ids.shape[1], self.length)

    def _layout_problems(self, file: h5py.File) -> Iterator[str]:
        """Yield the fields that are missing, empty, no integers, or of a wrong shape."""
        rows = 0
        for name, kind in FIELDS.items():
            dataset = file.get(name)
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
            if expected != found:
                yield f"{name}: expected {expected}, found {found}"

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
