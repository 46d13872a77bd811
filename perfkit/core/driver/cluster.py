"""The driver's side of a measurement on several nodes.

The driver runs the workers of node 0 itself, exactly as on one node. On the other nodes, ssh or
srun starts a node program (node.py), once for the facts of all nodes and once for each repeat.
They exchange files in a shared folder, which node_files.py describes; programs.py says how
the node programs start and end.
"""

import contextlib
import shutil
import socket
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from perfkit.core.config import Config, Protocol
from perfkit.core.driver.failures import NodeError, is_full, unwritten
from perfkit.core.driver.network import try_each_other
from perfkit.core.driver.node_files import (
    END,
    JOB,
    POLL_SECONDS,
    PREFIX,
    Answer,
    End,
    FactsJob,
    NodeFacts,
    Reached,
    RepeatJob,
    move_raw_files,
    nodes_with,
    read,
    read_facts,
    write,
)
from perfkit.core.driver.programs import ENDING_SECONDS, NodePrograms
from perfkit.core.driver.workers import ExitInfo, Launcher, LocalWorkers, WorkerGroup
from perfkit.core.frameworks import FRAMEWORKS
from perfkit.core.frameworks.facts import NodeRank
from perfkit.core.request.hosts import route_address
from perfkit.core.results.failures import (
    DiskFull,
    Failure,
    NodesDiffer,
    NodeTimeout,
    PortTaken,
    WorkerDied,
)
from perfkit.core.results.schema import NodeSeen
from perfkit.core.system.environment import package_source
from perfkit.core.system.scratch import Scratch

COMMON = ("data", "suite_source", "python", "dali", "numpy")
"""Facts that must be equal on all nodes, besides the framework's; others are stored."""


class ClusterLauncher(Launcher):
    """Starts the workers of each repeat on all nodes; `with` removes the shared folder.

    `folder`: where the shared folder is made, on a disk that all nodes share.
    """

    def __init__(self, config: Config, protocol: Protocol, folder: Path) -> None:
        super().__init__(config, protocol)
        self.nodes: list[NodeFacts] = []
        try:
            self.shared = Path(tempfile.mkdtemp(prefix=PREFIX, dir=folder))
        except OSError as error:
            raise NodeError(unwritten(error)) from error

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.shared, ignore_errors=True)

    def node_name(self, node: int) -> str:
        if self.config.host_list:
            return f"node {node} ({self.config.host_list[node]})"
        if self.nodes:
            return f"node {node} ({self.nodes[node].name})"
        return f"node {node}"

    def names(self, nodes: list[int]) -> list[str]:
        return [self.node_name(node) for node in nodes]

    def wait_for_nodes(
        self, show_status: Callable[[str], None], *, try_each: bool = False
    ) -> list[NodeSeen]:
        """Start the node programs and return the facts of each node. `try_each`: the nodes also
        try to reach each other; `unreachable` has the result. Raises NodeError."""
        folder = self.shared / "facts"
        try:
            self._collect_facts(folder, show_status, try_each=try_each)
        except OSError as error:
            raise NodeError(unwritten(error)) from error
        return [self._checked(node) for node in range(self.config.nodes)]

    def _collect_facts(
        self, folder: Path, show_status: Callable[[str], None], *, try_each: bool
    ) -> None:
        config = self.config
        by_slurm = config.launcher == "srun"
        first_address = "" if by_slurm else route_address(config.host_list[1])
        folder.mkdir()
        job = FactsJob(
            package=package_source(),
            config=config,
            first_address=first_address,
            try_each_other=try_each,
        )
        write(folder, JOB, job)
        deadline = time.monotonic() + config.timeout
        with NodePrograms(config, "facts", folder, []) as programs:
            others = self._await_facts(programs, folder, deadline, show_status)
            address = first_address or others[0].first_address
            own = read_facts(config, address, address)
            self.nodes = [own, *others]
            if try_each:
                try_each_other(folder, 0, own, config.nodes, deadline)

    def _await_facts(
        self,
        programs: NodePrograms,
        folder: Path,
        deadline: float,
        show_status: Callable[[str], None],
    ) -> list[NodeFacts]:
        """Wait until all nodes have written their facts. Raises NodeError."""
        while True:
            awaited, lost = programs.without("facts")
            if lost:
                raise NodeError(programs.failure(lost, self.names(lost), running=False))
            if not awaited:
                break
            if time.monotonic() > deadline:
                names = self.names(awaited)
                limit = self.config.timeout
                raise NodeError(NodeTimeout(nodes=names, seconds=limit))
            show_status(f"waiting for {', '.join(self.names(awaited))}")
            time.sleep(POLL_SECONDS)
        return [self._facts_of(node, folder) for node in range(1, self.config.nodes)]

    def _facts_of(self, node: int, folder: Path) -> NodeFacts:
        """Read the facts of a node. Raises NodeError if it could not read them itself."""
        answer = read(folder, f"facts-{node}.json", Answer)
        if answer.facts:
            return answer.facts
        name = self.node_name(node)
        if answer.other_package:
            raise NodeError(NodesDiffer(suite_source=answer.other_package, node=name))
        raise NodeError(NodesDiffer(refused_by=name, detail=answer.error))

    def _checked(self, node: int) -> NodeSeen:
        """Compare a node with node 0. Raises NodeError if a common fact differs."""
        seen, first, name = self.nodes[node], self.nodes[0], self.node_name(node)
        if node and seen.name == first.name and self.config.launcher == "srun":
            detail = "perfkit does not run on the first node of the allocation"
            raise NodeError(NodesDiffer(refused_by=name, detail=detail))
        differs = {k: v for k, v in seen.facts.items() if v != first.facts.get(k)}
        for fact in (*COMMON, *FRAMEWORKS[self.config.framework].facts):
            if fact in differs:
                different = NodesDiffer(
                    fact=fact,
                    here=first.facts.get(fact),
                    first_node=self.node_name(0),
                    there=differs[fact],
                    node=name,
                )
                raise NodeError(different)
        if seen.gpus < self.config.gpus:
            fewer = NodesDiffer(
                parameter="gpus", here=self.config.gpus, there=seen.gpus, node=name
            )
            raise NodeError(fewer)
        shown = {fact: str(value)[:200] for fact, value in differs.items()}
        return NodeSeen(node=node, name=name, interface=seen.interface, differs=shown)

    def unreachable(self) -> list[str]:
        """Return a sentence for each pair of nodes without a connection between the addresses
        that their workers will use, and for each node that has not answered."""
        folder = self.shared / "facts"
        answered = nodes_with("reached", folder)
        problems = []
        for node in range(self.config.nodes):
            if node not in answered:
                problems.append(f"{self.node_name(node)} has not tried to reach the others")
                continue
            errors = read(folder, f"reached-{node}.json", Reached).errors
            problems += [
                f"{self.node_name(node)} can't reach {self.node_name(other)}: {reason}"
                for other, reason in errors.items()
            ]
        return problems

    def rendezvous_port(self) -> int:
        """The configured port, or a free one, where the workers meet on this node. Raises
        NodeError if it is taken."""
        address, port = self.nodes[0].address, self.config.port or 0
        try:
            with socket.create_server((address, port)) as server:
                return int(server.getsockname()[1])
        except OSError as error:
            detail = error.strerror or str(error)
            raise NodeError(PortTaken(port=port, address=address, detail=detail)) from error

    def start(self, repeat: int, raw_folder: Path, job: str) -> WorkerGroup:
        count = self.config.nodes
        master = f"{self.nodes[0].address}:{self.rendezvous_port()}"
        places = [
            NodeRank(node, count, facts.address, facts.interface, master)
            for node, facts in enumerate(self.nodes)
        ]
        folder = self.shared / str(repeat)
        folder.mkdir()
        repeat_job = RepeatJob(
            config=self.config,
            protocol=self.protocol,
            job=job,
            names=[facts.name for facts in self.nodes],
            places=places,
        )
        write(folder, JOB, repeat_job)
        return ClusterWorkers(self, repeat_job, folder, raw_folder)


def remove_abandoned(folder: Path, seconds: float = 0.0) -> None:
    """Remove the shared folders of killed drivers, made more than `seconds` ago."""
    for abandoned in folder.glob(f"{PREFIX}*"):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - abandoned.lstat().st_mtime >= seconds:
                shutil.rmtree(abandoned, ignore_errors=True)


class ClusterWorkers(WorkerGroup):
    """The workers of one repeat on all nodes: LocalWorkers here, node programs elsewhere."""

    def __init__(
        self, launcher: ClusterLauncher, job: RepeatJob, folder: Path, raw_folder: Path
    ) -> None:
        self.launcher = launcher
        self.folder = folder
        self.target = raw_folder
        self.ended: dict[int, ExitInfo] = {}
        self.lost: list[int] = []
        self.deadline: float | None = None
        config = launcher.config
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
        """Note how nodes have ended, and return those that have not. Raises OSError."""
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

    def end_warmup(self) -> None:
        self.local.end_warmup()

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
        config = self.launcher.config
        own = self.local.exit_info()
        move_raw_files(self.raw_folder, self.local.ranks, self.target)
        for node in self.ended:
            place = NodeRank(node)
            move_raw_files(self.folder, place.ranks(config.devices), self.target)
        return self._combined([own, *self.ended.values()])

    def _combined(self, nodes: list[ExitInfo]) -> ExitInfo:
        """How the workers of all nodes exited, as one."""
        logs = {"nodes": self.programs.log} if self.programs.log else {}
        exited_first: list[int] = []
        idle_seconds: dict[int, float] = {}
        for node in nodes:
            logs |= node.logs
            exited_first += node.exited_first
            idle_seconds |= node.idle_seconds
        return ExitInfo(
            status=next((node.status for node in nodes if node.status), nodes[0].status),
            exited_first=exited_first,
            idle_seconds=idle_seconds,
            killed_for_memory=any(node.killed_for_memory for node in nodes),
            free_bytes=shutil.disk_usage(self.target).free,
            logs=logs,
            error=self._error({0: nodes[0], **self.ended}),
        )

    def _error(self, nodes: dict[int, ExitInfo]) -> Failure | None:
        """The failure of a node that is lost, whose own disk is full, or whose supervisor was
        killed."""
        if self.lost:
            names = self.launcher.names(self.lost)
            return self.programs.failure(self.lost, names, running=True)
        for node, ended in nodes.items():
            name = self.launcher.node_name(node)
            if is_full(ended.free_bytes):
                return DiskFull(refused_by=name, scratch_bytes=ended.free_bytes)
            if ended.status is not None and ended.status < 0:
                # A signal has ended the supervisor itself, which took its workers along.
                workers = self.launcher.config.ranks
                return WorkerDied(workers=workers, node=name, status=ended.status)
        return None
