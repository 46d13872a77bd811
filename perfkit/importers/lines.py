"""The lines of a foreign log, read once from beginning to end in bounded memory.

Nothing in such a file is trusted: it may hold NUL bytes, a line without end, or end in the
middle of one.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import BinaryIO

import numpy as np

CHUNK_BYTES = 1024 * 1024
"""How much is read at once: little enough for a processor's cache. A line may be as long; the
rest of a longer one is left out."""
NEWLINE = ord("\n")


@dataclass(frozen=True)
class Chunk:
    """Lines of a file, without NUL bytes; `line` is the number of the first."""

    text: bytes
    line: int
    nuls: int = 0
    cut: bool = False
    """Whether the last line is longer than CHUNK_BYTES: its rest is not here."""
    ended: bool = True
    """Whether the last line has an end; if not, the file may have been cut off in it."""

    @cached_property
    def _ends(self) -> np.ndarray:
        return np.flatnonzero(np.frombuffer(self.text, np.uint8) == NEWLINE)

    def lines_at(self, offsets: np.ndarray) -> np.ndarray:
        """The numbers of the lines in which these bytes of `text` stand."""
        return self.line + np.searchsorted(self._ends, offsets)

    def line_at(self, offset: int) -> int:
        """The number of the line in which this byte of `text` stands."""
        return self.line + int(np.searchsorted(self._ends, offset))


def chunks(file: BinaryIO, seen: Callable[[bytes], object]) -> Iterator[Chunk]:
    """A file in chunks of whole lines; every byte of it is also given to `seen`."""
    line, begun, in_cut_line, nuls = 1, b"", False, 0
    while read := file.read(CHUNK_BYTES):
        seen(read)
        text = read.replace(b"\0", b"")
        nuls += len(read) - len(text)
        if in_cut_line:
            _, newline, text = text.partition(b"\n")
            in_cut_line = not newline
        text = begun + text
        end = text.rfind(b"\n") + 1
        begun = text[end:]
        if cut := len(begun) > CHUNK_BYTES:
            # The line counts as ended; what follows up to its real end is dropped.
            text, begun, in_cut_line = text[: end + CHUNK_BYTES] + b"\n", b"", True
            end = len(text)
        if end:
            yield Chunk(text[:end], line, nuls, cut)
            line += text.count(b"\n", 0, end)
            nuls = 0
    if begun or nuls:
        yield Chunk(begun, line, nuls, ended=not begun)
