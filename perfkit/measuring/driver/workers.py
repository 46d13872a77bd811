"""The interface to the workers of a repeat on any number of nodes, and the workers of one."""

import contextlib
import subprocess
import time
from abc import ABC, abstractmethod
from math import inf
from pathlib import Path
from typing import Self

from perfkit.measuring.config import Config
from perfkit.measuring.driver.exit_info import ExitInfo, killed_for_memory
from perfkit.measuring.driver.logs import shortened
from perfkit.measuring.driver.rank_job import rank_command, write_job
from perfkit.measuring.driver.rank_processes import RankProcesses
from perfkit.measuring.driver.settings import rank_environment
from perfkit.measuring.driver.supervised import LOG, close, start_supervised
from perfkit.measuring.protocol import Protocol
from perfkit.measuring.results.schema import NodeSeen
from perfkit.measuring.system import nccl
from perfkit.measuring.system.devices import visible_devices
from perfkit.measuring.system.scratch import Scratch
from perfkit.timing.failure import portable
from perfkit.timing.raw_file import steady_file
from perfkit.timing.warmup import WindowStart
from perfkit.training.frameworks import FRAMEWORKS, NodeRank, Ranks

STACKS_SECONDS = 1.0
WATCH_SECONDS = 0.1
"""Interval of checks, long enough not to disturb, short enough to see which exited first."""


class WorkerGroup(ABC):
    """The workers of one repeat, on one node or several; none outlives the `with` block."""

    raw_folder: Path
    """Folder in which the ranks of this machine write their raw events."""
    process: subprocess.Popen[bytes]
    """The supervisor of the ranks of this machine."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @abstractmethod
    def wait(self, seconds: float) -> bool:
        """Wait up to `seconds`. Return whether all workers have exited or can't continue."""

    @abstractmethod
    def start_window(self, start: WindowStart) -> None:
        """Tell the ranks where the window starts; a single one, that the steps are steady."""

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
        self.nodes: list[NodeSeen] = []
        """The nodes of the last repeat; none for a single node."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

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
    rank. A single rank starts without a launcher, as by `python train.py`."""
    launch = FRAMEWORKS[config.framework].launch
    if config.ranks == 1 or launch is None:
        return worker
    ranks = Ranks(
        command=worker,
        interpreter=config.interpreter,
        devices=config.devices,
        labels=visible_devices(config.framework, config.device, config.interpreter),
        place=place,
        log_folder=log_dir,
        job=job,
    )
    return launch(ranks)


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
        seconds: float = inf,
    ) -> None:
        """`seconds`: the time limit of the workers."""
        self.place = place or NodeRank()
        self.log_pattern = FRAMEWORKS[config.framework].log_pattern
        self.ranks = self.place.ranks(config.ranks // config.nodes or 1)
        self.raw_folder = raw_folder
        self.processes = RankProcesses(raw_folder, self.ranks)
        self.killed_before = killed_for_memory()
        self.killed_after_end = False
        self.idle: list[int] = []
        with contextlib.ExitStack() as opened:
            self.scratch = opened.enter_context(Scratch()).folder
            job_file = self.scratch / "job.json"
            write_job(job_file, config, protocol, task, raw_folder)
            worker = rank_command(config, task, job_file)
            command = launcher_command(config, self.place, self.scratch, job, worker)
            environment = rank_environment(config, self.place, self.scratch)
            environment |= nccl.log_settings(config, self.scratch)
            self.process = start_supervised(command, self.scratch, environment, seconds=seconds)
            self.opened = opened.pop_all()

    def __exit__(self, *_: object) -> None:
        self.end()
        # If the warm-up had just reached a limit, no rank has removed the file.
        steady_file(self.raw_folder).unlink(missing_ok=True)
        self.opened.close()

    def wait(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        if self.processes.are_overdue():
            self.killed_after_end = self.process.poll() is None
            return True
        while True:
            self.processes.look()
            left = deadline - time.monotonic()
            try:
                self.process.wait(max(0.0, min(left, WATCH_SECONDS)))
                return True
            except subprocess.TimeoutExpired:
                if left <= 0:
                    return False

    def start_window(self, start: WindowStart) -> None:
        steady = steady_file(self.raw_folder)
        # Written elsewhere first, so that no rank reads a part.
        written = steady.with_suffix(".written")
        written.write_text(str(start))
        written.replace(steady)

    def end(self, *, dump_stacks: bool = False) -> None:
        assert self.process.stdin
        if not self.process.stdin.closed:
            self.processes.look()
            self.idle = self.processes.idle()
        if dump_stacks and self.processes.running():
            self.processes.dump_stacks()
            time.sleep(STACKS_SECONDS)
        close(self.process)

    def exit_info(self) -> ExitInfo:
        return ExitInfo(
            status=self.process.returncode,
            exited_first=self.processes.exited_first(),
            idle=self.idle,
            killed_for_memory=killed_for_memory() > self.killed_before,
            logs=self._logs(),
            killed_after_end=self.killed_after_end,
            nccl_network=nccl.network(self.scratch),
        )

    def _logs(self) -> dict[str, str]:
        """Return the text of the launcher's log and of each rank's."""
        logs = {self.place.log_name: portable(shortened(self.scratch / LOG))}
        for index, rank in enumerate(self.ranks):
            files = self._rank_logs(index)
            text = "".join(shortened(file) for file in files)
            if files:
                logs[f"rank{rank}"] = portable(text)
        return logs

    def _rank_logs(self, index: int) -> list[Path]:
        """Return the logs of one of this node's ranks."""
        if not self.log_pattern:
            return []
        # Of PyTorch's two, stderr.log comes last: it ends with the exception.
        logs = self.scratch.glob(self.log_pattern.format(index=index))
        return sorted(logs, reverse=True)
