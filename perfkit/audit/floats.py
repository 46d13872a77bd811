"""Any number of positive floats, and their median, in constant memory."""

import tempfile
import weakref
from collections.abc import Iterator

import numpy as np

SPOOL_BYTES = 4 * 1024 * 1024
BLOCK = 500_000


class Floats:
    """Positive floats; many of them lie on disk."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(SPOOL_BYTES)  # noqa: SIM115
        weakref.finalize(self, self._file.close)
        self.count = 0

    def append(self, values: np.ndarray) -> None:
        self._file.write(values.astype(float).tobytes())
        self.count += len(values)

    def __iter__(self) -> Iterator[np.ndarray]:
        """All of them again, in blocks of at most BLOCK."""
        for first in range(0, self.count, BLOCK):
            self._file.seek(first * 8)
            yield np.frombuffer(self._file.read(BLOCK * 8), float)

    def median(self) -> float:
        """The median, exactly; of one or more."""
        middle = {(self.count - 1) // 2, self.count // 2}
        return sum(self.at(place) for place in middle) / len(middle)

    def at(self, place: int) -> float:
        """The value at `place` (from 0) in ascending order.

        The bits of positive floats, read as integers, are in the floats' order: those of the
        value are found 16 at a time, by counting.
        """
        prefix = 0
        for shift in (48, 32, 16, 0):
            counts = np.zeros(1 << 16, np.int64)
            for block in self:
                bits = block.view(np.uint64)
                if shift < 48:
                    bits = bits[bits >> np.uint64(shift + 16) == prefix]
                part = (bits >> np.uint64(shift)) & np.uint64(0xFFFF)
                counts += np.bincount(part.astype(np.int64), minlength=1 << 16)
            upto = np.cumsum(counts)
            digit = int(np.searchsorted(upto, place, "right"))
            place -= int(upto[digit] - counts[digit])
            prefix = prefix << 16 | digit
        return float(np.array([prefix], np.uint64).view(float)[0])
