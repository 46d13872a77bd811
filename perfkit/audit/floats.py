"""Any number of positive floats, and their median, in constant memory."""

import numpy as np

from perfkit.importers.spool import Spool


class Floats(Spool):
    """Positive floats."""

    DTYPE = np.dtype(float)
    MEMORY_BYTES = 4 * 1024 * 1024
    BLOCK = 500_000

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
