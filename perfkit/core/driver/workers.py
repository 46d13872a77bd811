"""The interface to the workers of a repeat on any number of nodes, and the workers of one."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Self

import psutil

from perfkit.core.config import Config, Protocol
from perfkit.core.driver.exit_info import (
    SAME_SECONDS,
    ExitInfo,
    killed_for_memory,
    shortened,
)
from perfkit.core.driver.settings import with_dali_settings, worker_environment
from perfkit.core.driver.supervised import LOG, WORKER, close, start_supervised
from perfkit.core.frameworks import FRAMEWORKS
from perfkit.core.frameworks.facts import NodeRank
from perfkit.core.paths import portable
from perfkit.core.results.schema import NodeSeen
from perfkit.core.system import nccl
from perfkit.core.system.environment import usable_cores
from perfkit.core.system.scratch import Scratch
from perfkit.core.timing.raw_file import rank_file, steady_file

STACKS_SECONDS = 1.0
WATCH_SECONDS = 0.1
"""Interval of checks, long enough not to disturb, short enough to see which exited first."""


class WorkerGroup(ABC):
    """The workers of one repeat, on one node or several; none outlives the `with` block."""

    raw_folder: Path
    """Folder in which the ranks of this machine write their raw events."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @abstractmethod
    def wait(self, seconds: float) -> bool:
        """Wait up to `seconds`. Return whether all workers have exited or can't continue."""

    @abstractmethod
    def end_warmup(self) -> None:
        """Tell the workers that their steps are steady."""

    @abstractmethod
    def end(self, *, dump_stacks: bool = False) -> None:
        """Kill the remaining workers; with `dump_stacks`, they first log their stacks."""

    @abstractmethod
    def exit_info(self) -> ExitInfo:
        """Return how the workers exited; only valid after `end`."""


class Launcher:
    """Starts the workers of each repeat on this machine; a context manager."""

    def __init__(self, config: Config, protocol: Protocol) -> None:
        self.config = config
        self.protocol = protocol

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def wait_for_nodes(self, _show_status: Callable[[str], None]) -> list[NodeSeen]:
        """Wait for all nodes and return them; none for a single node. Raises NodeError."""
        return []

    def node_name(self, _node: int) -> str | None:
        """Return a node's display name, such as "node 1 (host)"; None for a single node."""
        return None

    def start(self, _repeat: int, raw_folder: Path, job: str) -> WorkerGroup:
        """Start the workers of a repeat, whose raw events are in `raw_folder` once `exit_info`
        has returned. Raises OSError and NodeError."""
        return LocalWorkers(self.config, self.protocol, raw_folder, job)


def launcher_command(
    config: Config, place: NodeRank, log_dir: Path, job: str, worker: list[str]
) -> list[str]:
    """Return the command that starts the workers of one node; `worker` is the command of each
    rank."""
    return FRAMEWORKS[config.framework].launch_command(config, place, log_dir, job, worker)


class LocalWorkers(WorkerGroup):
    """The workers of one node; none outlives the `with` block, or the driver.

    Ranks write their raw events to `raw_folder`. The launcher's log folder is a scratch folder;
    `exit_info` returns only the workers' logs.
    """

    def __init__(
        self,
        config: Config,
        protocol: Protocol,
        raw_folder: Path,
        job: str,
        place: NodeRank | None = None,
        task: str = "measure",
    ) -> None:
        self.place = place or NodeRank()
        self.log_pattern = FRAMEWORKS[config.framework].log_pattern
        self.devices = config.devices
        self.ranks = self.place.ranks(config.devices)
        self.raw_folder = raw_folder
        self.processes = RankProcesses(raw_folder, self.ranks)
        self.killed_before = killed_for_memory()
        work = {
            "task": task,
            "config": with_dali_settings(config, usable_cores()).model_dump(),
            "protocol": protocol.model_dump(),
            "raw_folder": str(raw_folder.resolve()),
        }
        environment = worker_environment(config, self.place)
        with contextlib.ExitStack() as opened:
            self.scratch = opened.enter_context(Scratch()).folder
            job_file = self.scratch / "job.json"
            job_file.write_text(json.dumps(work))
            worker = [config.interpreter, "-m", WORKER, str(job_file)]
            command = launcher_command(config, self.place, self.scratch, job, worker)
            environment |= nccl.log_settings(config, self.scratch)
            self.process = start_supervised(command, self.scratch, environment)
            self.opened = opened.pop_all()

    def __exit__(self, *_: object) -> None:
        self.end()
        # If the warm-up had just reached a limit, no rank has removed the file.
        steady_file(self.raw_folder).unlink(missing_ok=True)
        self.opened.close()

    def wait(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while True:
            self._look()
            left = deadline - time.monotonic()
            try:
                self.process.wait(max(0.0, min(left, WATCH_SECONDS)))
                return True
            except subprocess.TimeoutExpired:
                if left <= 0:
                    return False

    def _look(self) -> None:
        """Look at the ranks, unless the driver has ended them."""
        assert self.process.stdin
        if not self.process.stdin.closed:
            self.processes.look()

    def end_warmup(self) -> None:
        steady_file(self.raw_folder).touch()

    def end(self, *, dump_stacks: bool = False) -> None:
        self._look()
        self.processes.stop_clock()
        if dump_stacks:
            self.processes.dump_stacks()
            time.sleep(STACKS_SECONDS)
        close(self.process)

    def exit_info(self) -> ExitInfo:
        return ExitInfo(
            status=self.process.returncode,
            exited_first=self.processes.exited_first(),
            idle_seconds=self.processes.idle_seconds,
            killed_for_memory=killed_for_memory() > self.killed_before,
            free_bytes=shutil.disk_usage(self.raw_folder).free,
            logs=self._logs(),
            nccl=nccl.read_logs(self.scratch, self.devices),
        )

    def _logs(self) -> dict[str, str]:
        """Return the text of the launcher's log and of each rank's."""
        logs = {self.place.log_name: portable(shortened(self.scratch / LOG))}
        if self.log_pattern:
            for index, rank in enumerate(self.ranks):
                files = sorted(self.scratch.glob(self.log_pattern.format(index=index)))
                text = "".join(shortened(file) for file in files)
                if files:
                    logs[f"rank{rank}"] = portable(text)
        return logs


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
