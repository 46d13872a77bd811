"""The processes of the ranks on this machine, followed by their raw files."""

import contextlib
import json
import os
import signal
import time
from pathlib import Path

import psutil

from perfkit.measuring.driver.exit_info import IDLE_SECONDS, SAME_SECONDS
from perfkit.timing.raw_file import rank_file


class RankProcesses:
    """The processes of the ranks on this machine: which of them write events, and which have
    exited by themselves."""

    def __init__(self, raw_folder: Path, ranks: range) -> None:
        self.raw_folder = raw_folder
        self.ranks = ranks
        self.pids: dict[int, int] = {}
        self.exited_at: dict[int, float] = {}

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


def _has_exited(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
