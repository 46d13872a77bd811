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
from collections.abc import Callable, Iterable
from pathlib import Path

from perfkit.core.config import Protocol
from perfkit.core.driver.cluster_workers import ClusterWorkers
from perfkit.core.driver.failures import NodeError, unwritten
from perfkit.core.driver.network import try_each_other
from perfkit.core.driver.node_files import (
    JOB,
    LAST_STEP,
    POLL_SECONDS,
    PREFIX,
    Answer,
    FactsJob,
    NodeFacts,
    Reached,
    RepeatJob,
    nodes_with,
    read,
    read_facts,
    write,
)
from perfkit.core.driver.programs import NodePrograms
from perfkit.core.driver.workers import Launcher, WorkerGroup
from perfkit.core.request.hosts import route_address
from perfkit.core.results.failures import Failure
from perfkit.core.results.schema import NodeSeen
from perfkit.core.script_config import AnyConfig, ScriptConfig
from perfkit.core.system.environment import package_source
from perfkit.training.frameworks import FRAMEWORKS, NodeRank

FACT_LENGTH = 200
"""Longest text of a fact that differs."""
COMMON = ("data", "script", "suite_source", "python", "dali", "numpy")
"""Facts that must be equal on all nodes, besides the framework's; others are stored."""


class ClusterLauncher(Launcher):
    """Starts the workers of each repeat on all nodes. It makes a shared folder in `folder`,
    which lies on a disk that all nodes share; the `with` block removes it."""

    def __init__(self, config: AnyConfig, protocol: Protocol, folder: Path) -> None:
        super().__init__(config, protocol)
        self.nodes: list[NodeFacts] = []
        self.working_directory: str | None = None
        if isinstance(config, ScriptConfig):
            self.working_directory = str(Path.cwd())
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
            working_directory=self.working_directory,
        )
        write(folder, JOB, job)
        deadline = time.monotonic() + config.timeout
        with NodePrograms(config, "facts", folder, []) as programs:
            others = self._await_facts(programs, folder, deadline, show_status)
            address = first_address or others[0].first_address
            first = read_facts(config, address, address)
            self.nodes = [first, *others]
            if try_each:
                try_each_other(folder, 0, first, config.nodes, deadline)

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
                names = ", ".join(self.names(awaited))
                reason = f"{names} did not start within {self.config.timeout} s"
                failure = Failure(code="node_timeout", reason=reason, node=names)
                raise NodeError(failure)
            show_status(f"waiting for {', '.join(self.names(awaited))}")
            time.sleep(POLL_SECONDS)
        return [self._facts_of(node, folder) for node in range(1, self.config.nodes)]

    def _facts_of(self, node: int, folder: Path) -> NodeFacts:
        """Read the facts of a node. Raises NodeError if it could not read them itself."""
        answer = read(folder, f"facts-{node}.json", Answer)
        if answer.facts:
            return answer.facts
        name = self.node_name(node)
        if answer.script_problem:
            reason = (
                f"{name} can't run the script: {answer.script_problem}; it must lie in a "
                "folder that all nodes share"
            )
            raise NodeError(Failure(code="script_unreadable", reason=reason, node=name))
        if answer.other_package:
            reason = f"perfkit differs from perfkit on {name}; make them alike"
            raise self._differs(node, reason)
        raise self._differs(node, f"{name}: {answer.error}")

    def _differs(self, node: int, reason: str) -> NodeError:
        name = self.node_name(node)
        return NodeError(Failure(code="nodes_differ", reason=reason, node=name))

    def _checked(self, node: int) -> NodeSeen:
        """Compare a node with node 0. Raises NodeError if a common fact differs."""
        facts, name = self.nodes[node], self.node_name(node)
        first = self.nodes[0]
        if node and facts.name == first.name and self.config.launcher == "srun":
            reason = f"{name}: perfkit does not run on the first node of the allocation"
            raise self._differs(node, reason)
        differs = {}
        for fact, value in facts.facts.items():
            if value != first.facts.get(fact):
                differs[fact] = str(value)[:FACT_LENGTH]
        self._refuse_different_facts(node, differs)
        if facts.gpus < self.config.gpus:
            wanted, visible = self.config.gpus, facts.gpus
            reason = f"gpus: {wanted} requested here, {visible} on {name}"
            raise self._differs(node, reason)
        return NodeSeen(node=node, name=name, interface=facts.interface, differs=differs)

    def _refuse_different_facts(self, node: int, differs: Iterable[str]) -> None:
        for fact in (*COMMON, *FRAMEWORKS[self.config.framework].facts):
            if fact in differs:
                here, there = self.nodes[0].facts.get(fact), self.nodes[node].facts[fact]
                reason = (
                    f"{fact}: {here!r} on {self.node_name(0)}, {there!r} on "
                    f"{self.node_name(node)}; make them alike"
                )
                raise self._differs(node, reason)

    def unreachable(self) -> list[str]:
        """Return a sentence for each pair of nodes without a connection between the addresses
        that their workers will use, and for each node that has not answered."""
        folder = self.shared / "facts"
        answered = nodes_with("reached", folder)
        problems = []
        for node in range(self.config.nodes):
            name = self.node_name(node)
            if node not in answered:
                problems.append(f"{name} has not tried to reach the others")
                continue
            reached = read(folder, f"reached-{node}.json", Reached)
            for other, reason in reached.errors.items():
                problems.append(f"{name} can't reach {self.node_name(other)}: {reason}")
        return problems

    def rendezvous_port(self) -> int:
        """Return the port where the workers meet on this node: the configured one or, without
        one, a free one. Raises NodeError if it is taken."""
        address = self.nodes[0].address
        port = self.config.port or 0
        try:
            with socket.create_server((address, port)) as server:
                return int(server.getsockname()[1])
        except OSError as error:
            reason = (
                f"port {port} of {address} can't be used: {error.strerror or error}; use "
                "another port: -p port NUMBER"
            )
            raise NodeError(Failure(code="port_taken", reason=reason)) from error

    def start(self, repeat: int, raw_folder: Path, job: str) -> WorkerGroup:
        master = f"{self.nodes[0].address}:{self.rendezvous_port()}"
        places = []
        for node, facts in enumerate(self.nodes):
            place = NodeRank(node, self.config.nodes, facts.address, facts.interface, master)
            places.append(place)
        folder = self.shared / str(repeat)
        folder.mkdir()
        repeat_job = RepeatJob(
            config=self.config,
            protocol=self.protocol,
            job=job,
            names=[facts.name for facts in self.nodes],
            places=places,
            working_directory=self.working_directory,
        )
        if isinstance(self.config, ScriptConfig):
            (folder / LAST_STEP).touch()
        write(folder, JOB, repeat_job)
        return ClusterWorkers(self.config, repeat_job, folder, raw_folder, self.node_name)


def remove_abandoned(folder: Path, seconds: float = 0.0) -> None:
    """Remove the shared folders of killed drivers, made more than `seconds` ago."""
    for abandoned in folder.glob(f"{PREFIX}*"):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - abandoned.lstat().st_mtime >= seconds:
                shutil.rmtree(abandoned, ignore_errors=True)
