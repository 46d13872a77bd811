"""When the ranks of a script do not exit by themselves after the end of their window.

A script may catch SystemExit, hang in `finally`, or call the timer on some ranks only, of which
the others then wait in vain. What was measured is complete without them.
"""

import time
from contextlib import suppress
from pathlib import Path

from pydantic_core import from_json

from perfkit.timing.raw_file import rank_file

AFTER_END_SECONDS = 20.0
"""Time in which ranks may exit after the end of their window."""
LOOKING_SECONDS = 0.5
"""Shortest interval between two looks at the raw files."""
EDGE_BYTES = 4096
"""Bytes at the beginning of a raw file that have the event `told`, and at its end that have the
event `end`."""


class AfterEnd:
    """Looks at the raw files of a script's ranks on this machine."""

    def __init__(self, raw_folder: Path, ranks: range) -> None:
        self.raw_files = {rank: rank_file(raw_folder, rank) for rank in ranks}
        self.sizes: dict[int, int] = {}
        self.timed: set[int] = set()
        self.ended_at: dict[int, float] = {}
        self.next_look = 0.0

    def is_overdue(self) -> bool:
        """Return whether the ranks should have exited: AFTER_END_SECONDS ago, all of them had
        ended, or all but those that have not called the timer yet."""
        now = time.monotonic()
        if now >= self.next_look:
            self._look()
            self.next_look = now + LOOKING_SECONDS
        if not self.ended_at or self.timed - self.ended_at.keys():
            return False
        return now - max(self.ended_at.values()) > AFTER_END_SECONDS

    def _look(self) -> None:
        """Note which ranks have called the timer, and which have ended."""
        for rank, raw in self.raw_files.items():
            with suppress(FileNotFoundError):
                size = raw.stat().st_size
                if size != self.sizes.get(rank):
                    self.sizes[rank] = size
                    self._look_at(rank, raw)

    def _look_at(self, rank: int, raw: Path) -> None:
        with raw.open("rb") as stream:
            if rank not in self.timed and "told" in _kinds(stream.read(EDGE_BYTES)):
                self.timed.add(rank)
            stream.seek(max(0, self.sizes[rank] - EDGE_BYTES))
            if "end" in _kinds(stream.read(EDGE_BYTES)):
                self.ended_at[rank] = time.monotonic()


def _kinds(lines: bytes) -> set[str]:
    """Return the kinds of the events in complete lines; others are left out."""
    kinds = set()
    for line in lines.split(b"\n"):
        with suppress(ValueError, LookupError, TypeError):
            kinds.add(str(from_json(line)["event"]))
    return kinds
