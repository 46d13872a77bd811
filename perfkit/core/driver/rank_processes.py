"""The processes of the ranks on this machine, followed by their raw files."""

import contextlib
import json
import os
import signal
import time
from pathlib import Path

import psutil

from perfkit.core.driver.exit_info import SAME_SECONDS
from perfkit.timing.raw_file import rank_file


class RankProcesses:
    """The processes of the ranks on this machine: which of them write events, and which have
    exited by themselves."""

    def __init__(self, raw_folder: Path, ranks: range) -> None:
        self.raw_folder = raw_folder
        self.ranks = ranks
        self.pids: dict[int, int] = {}
        self.raw_bytes: dict[int, int] = {}
        self.wrote_at = dict.fromkeys(ranks, time.monotonic())
        self.exited_at: dict[int, float] = {}
        self.idle_seconds: dict[int, float] = {}
        """By rank, the seconds between its last event and the end."""

    def look(self) -> None:
        """Note what has changed since the last call."""
        for rank in self.ranks:
            raw = rank_file(self.raw_folder, rank)
            if raw.exists():
                self._look_at(rank, raw)
        for rank in self.running():
            if _has_exited(self.pids[rank]):
                self.exited_at[rank] = time.monotonic()

    def _look_at(self, rank: int, raw: Path) -> None:
        size = raw.stat().st_size
        if size != self.raw_bytes.get(rank):
            self.raw_bytes[rank] = size
            self.wrote_at[rank] = time.monotonic()
        if rank not in self.pids:
            first_line, line_end, _rest = raw.read_bytes().partition(b"\n")
            if line_end:
                self.pids[rank] = json.loads(first_line)["pid"]

    def running(self) -> list[int]:
        """Return the ranks that have started and not exited."""
        return sorted(self.pids.keys() - self.exited_at.keys())

    def stop_clock(self) -> None:
        """Note how long each rank has been idle, at the first call."""
        if not self.idle_seconds:
            now = time.monotonic()
            self.idle_seconds = {rank: now - at for rank, at in self.wrote_at.items()}

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
