"""The processes of the ranks on this machine, followed by their raw files."""

import contextlib
import json
import os
import signal
import time
from pathlib import Path

import psutil

from perfkit.timing.raw_file import rank_file

IDLE_SECONDS = 20.0
"""A rank that writes nothing for this time may have stalled; gloo waits for it for 30 s."""
SAME_SECONDS = 1.0
"""The order of exits seen within this time is unknown."""
AFTER_END_SECONDS = 20.0
"""Time in which ranks may exit after their event `end`. A script may catch SystemExit or hang
in `finally`: what was measured is complete without that."""
EDGE_BYTES = 4096
"""Bytes at the beginning of a raw file that have the event `told`, and at its end that have the
event `end`."""


class RankProcesses:
    """The processes of the ranks on this machine: which of them write events, which have ended
    their window, and which have exited by themselves."""

    def __init__(self, raw_folder: Path, ranks: range) -> None:
        self.raw_folder = raw_folder
        self.ranks = ranks
        self.pids: dict[int, int] = {}
        self.exited_at: dict[int, float] = {}
        self.ended_at: dict[int, float] = {}

    def look(self) -> None:
        """Note which ranks have started or exited since the last call."""
        for rank, raw in self._raw_files():
            if rank not in self.pids:
                first_line, line_end, _rest = raw.read_bytes().partition(b"\n")
                if line_end:
                    self.pids[rank] = json.loads(first_line)["pid"]
        for rank in self.running():
            if _has_exited(self.pids[rank]):
                self.exited_at[rank] = time.monotonic()

    def _raw_files(self) -> list[tuple[int, Path]]:
        """Return the ranks that have a raw file, and these files."""
        files = [(rank, rank_file(self.raw_folder, rank)) for rank in self.ranks]
        return [(rank, raw) for rank, raw in files if raw.exists()]

    def running(self) -> list[int]:
        """Return the ranks that have started and not exited."""
        return sorted(self.pids.keys() - self.exited_at.keys())

    def are_overdue(self) -> bool:
        """Return whether the ranks should have exited: AFTER_END_SECONDS ago, all of them had
        ended, or all but those that have not called the timer, on which the others may wait."""
        now = time.monotonic()
        for rank, raw in self._raw_files():
            has_called_timer, has_ended = _edges(raw)
            if has_ended:
                self.ended_at.setdefault(rank, now)
            elif has_called_timer:
                return False
        return bool(self.ended_at) and now - max(self.ended_at.values()) > AFTER_END_SECONDS

    def idle(self) -> list[int]:
        """Return the ranks that have written no event in the last IDLE_SECONDS."""
        earliest = time.time() - IDLE_SECONDS
        return [rank for rank, raw in self._raw_files() if raw.stat().st_mtime < earliest]

    def dump_stacks(self) -> None:
        """Have each running rank write its stacks to its log."""
        for rank in self.running():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pids[rank], signal.SIGUSR1)

    def exited_first(self) -> list[int]:
        """Return the ranks that exited first, as far as that can be told."""
        first_exit = min(self.exited_at.values(), default=0.0)
        ranks = []
        for rank, exited_at in self.exited_at.items():
            if exited_at - first_exit < SAME_SECONDS:
                ranks.append(rank)
        return ranks


def _edges(raw: Path) -> tuple[bool, bool]:
    """Return whether a rank has told the timer something, and whether it has ended."""
    with raw.open("rb") as stream:
        has_told = b'{"event":"told",' in stream.read(EDGE_BYTES)
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, size - EDGE_BYTES))
        return has_told, b'{"event":"end",' in stream.read()


def _has_exited(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
