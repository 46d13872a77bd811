"""Any number of rows in little memory."""

import tempfile
import weakref
from collections.abc import Iterator
from typing import ClassVar

import numpy as np


class Spool:
    """Rows of DTYPE in the order in which they came; beyond MEMORY_BYTES they lie on disk."""

    DTYPE: ClassVar[np.dtype]
    MEMORY_BYTES: ClassVar[int]
    BLOCK: ClassVar[int]
    """How many rows are read at once."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(self.MEMORY_BYTES)  # noqa: SIM115
        weakref.finalize(self, self._file.close)
        self.count = 0

    def append(self, rows: np.ndarray) -> None:
        self._file.write(rows.astype(self.DTYPE, copy=False).tobytes())
        self.count += len(rows)

    def __iter__(self) -> Iterator[np.ndarray]:
        """The rows again, in blocks of at most BLOCK."""
        size = self.DTYPE.itemsize
        for first in range(0, self.count, self.BLOCK):
            self._file.seek(first * size)
            yield np.frombuffer(self._file.read(self.BLOCK * size), self.DTYPE)
