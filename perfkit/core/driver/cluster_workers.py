"""The workers of one repeat on all nodes of a measurement."""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

from perfkit.core.driver.exit_info import ExitInfo
from perfkit.core.driver.node_files import (
    END,
    POLL_SECONDS,
    End,
    RepeatJob,
    move_raw_files,
    nodes_with,
    read,
    tell_last_step,
    write,
)
from perfkit.core.driver.programs import ENDING_SECONDS, NodePrograms
from perfkit.core.driver.workers import LocalWorkers, WorkerGroup
from perfkit.core.results.failures import Failure
from perfkit.core.script_config import AnyConfig
from perfkit.core.system.scratch import Scratch
from perfkit.training.frameworks import NodeRank


class ClusterWorkers(WorkerGroup):
    """The workers of one repeat on all nodes: LocalWorkers here, node programs elsewhere."""

    def __init__(
        self,
        config: AnyConfig,
        job: RepeatJob,
        folder: Path,
        raw_folder: Path,
        node_name: Callable[[int], str],
    ) -> None:
        """`folder`: the shared folder of the repeat. `raw_folder`: where the raw files of all
        nodes are moved at the end. `node_name`: returns a node's display name."""
        self.config = config
        self.node_name = node_name
        self.folder = folder
        self.target = raw_folder
        self.ended: dict[int, ExitInfo] = {}
        self.lost: list[int] = []
        self.deadline: float | None = None
        with contextlib.ExitStack() as opened:
            # The raw files of this node's ranks are on its own disk, too.
            self.raw_folder = opened.enter_context(Scratch()).folder
            programs = NodePrograms(config, "repeat", folder, job.names)
            self.programs = opened.enter_context(programs)
            self.local = opened.enter_context(
                LocalWorkers(config, job.protocol, self.raw_folder, job.job, job.places[0])
            )
            self.opened = opened.pop_all()

    def __exit__(self, *_: object) -> None:
        try:
            self.end()
        finally:
            # Even if the shared folder can no longer be read or written.
            self.opened.close()

    def _awaited(self) -> list[int]:
        """Note how nodes have ended, and return those still awaited. Raises OSError."""
        awaited, self.lost = self.programs.without("ended")
        for node in nodes_with("ended", self.folder) - self.ended.keys():
            self.ended[node] = read(self.folder, f"ended-{node}.json", ExitInfo)
        return awaited

    def wait(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            interval = min(left, POLL_SECONDS)
            ended_here = self.local.wait(interval)
            awaited = self._awaited()
            failed_here = ended_here and self.local.process.returncode
            failed_there = any(info.status for info in self.ended.values())
            if failed_here or failed_there or self.lost:
                return True
            if ended_here and not awaited:
                return True
            if ended_here:
                time.sleep(interval)
        return False

    def end_warmup(self, last_step: int) -> None:
        self.local.end_warmup(last_step)
        tell_last_step(self.folder, last_step)

    def end(self, *, dump_stacks: bool = False) -> None:
        if self.deadline:
            return
        self.deadline = time.monotonic() + ENDING_SECONDS
        awaited = self._awaited()
        if awaited:
            write(self.folder, END, End(dump_stacks=dump_stacks))
        self.local.end(dump_stacks=dump_stacks)
        while awaited and time.monotonic() < self.deadline:
            time.sleep(POLL_SECONDS)
            awaited = self._awaited()
        self.lost = sorted([*self.lost, *awaited])

    def exit_info(self) -> ExitInfo:
        here = self.local.exit_info()
        move_raw_files(self.raw_folder, self.local.ranks, self.target)
        for node in self.ended:
            place = NodeRank(node)
            move_raw_files(self.folder, place.ranks(self.config.devices), self.target)
        return self._combined({0: here, **self.ended})

    def _combined(self, nodes: dict[int, ExitInfo]) -> ExitInfo:
        """Return how the workers of all nodes exited, as one."""
        status = nodes[0].status
        logs = {"nodes": self.programs.log} if self.programs.log else {}
        exited_first: list[int] = []
        idle: list[int] = []
        network: str | None = None
        for ended in nodes.values():
            if ended.status and not status:
                status = ended.status
            logs |= ended.logs
            exited_first += ended.exited_first
            idle += ended.idle
            network = network or ended.nccl_network
        return ExitInfo(
            status=status,
            exited_first=exited_first,
            idle=idle,
            killed_for_memory=any(ended.killed_for_memory for ended in nodes.values()),
            logs=logs,
            killed_after_end=any(ended.killed_after_end for ended in nodes.values()),
            nccl_network=network,
            error=self._error(nodes),
        )

    def _error(self, nodes: dict[int, ExitInfo]) -> Failure | None:
        """Return the failure of a node that is lost, or whose supervisor was killed."""
        if self.lost:
            names = [self.node_name(node) for node in self.lost]
            return self.programs.failure(self.lost, names, running=True)
        for node, ended in nodes.items():
            if ended.status is not None and ended.status < 0:
                # A signal has ended the supervisor itself, which took its workers along.
                name = self.node_name(node)
                reason = f"signal {-ended.status} ended the workers' supervisor on {name}"
                return Failure(code="worker_died", reason=reason, node=name)
        return None
