"""The driver's side of a measurement on several nodes, which start once for all repeats."""

import contextlib
import os
import queue
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfkit.config import Config, Protocol, portable
from perfkit.driver import connection
from perfkit.driver.connection import InvalidMessageError, LostError, NodeMessage
from perfkit.driver.failures import NodeError, unwritten
from perfkit.driver.workers import ENDING_SECONDS as WORKERS_ENDING_SECONDS
from perfkit.driver.workers import (
    LOG,
    STACKS_SECONDS,
    ExitInfo,
    Launcher,
    WorkerGroup,
    close,
    shortened,
    start_supervised,
)
from perfkit.frameworks import FRAMEWORKS
from perfkit.frameworks.base import NodeRank
from perfkit.results.schema import NodeSeen
from perfkit.results.store import rank_file
from perfkit.system.environment import LIBRARY_VARIABLES, package_source
from perfkit.system.scratch import Scratch

COMMON = ("data", "suite_source", "python", "dali", "numpy")
"""Facts that must be equal on all nodes, besides the framework's; others are stored."""
SRUN = (
    "srun --nodes {nodes} --ntasks {nodes} --ntasks-per-node 1 --overlap --cpu-bind none"
    " --kill-on-bad-exit --export ALL"
)
"""Without CPU binding, since a node's single task starts all of its workers; with --overlap,
since perfkit may run in a step of the same allocation."""
MPIRUN = "mpirun --host {slots} -np {nodes} --map-by ppr:1:node --bind-to none"
EXPORTED = re.compile(f"{'|'.join(LIBRARY_VARIABLES)}|(CUDA_VISIBLE_DEVICES|LD_LIBRARY_PATH)$")
"""Names of the environment variables that mpirun exports to the nodes."""
POLL_SECONDS = 0.2
REPLY_SECONDS = 60.0
ENDING_SECONDS = STACKS_SECONDS + WORKERS_ENDING_SECONDS + 1.0
"""Exceeds the time in which a node ends its workers."""
GRACE_SECONDS = 2.0
"""For nodes to exit after Bye, and for the launcher to end the remaining nodes."""


@dataclass
class Node:
    """One node: its connection, its answers, and why the connection was lost."""

    number: int
    channel: connection.Channel
    ready: connection.Ready | None = None
    reached: connection.Reached | None = None
    lost: LostError | None = None


class ClusterLauncher(Launcher):
    """Starts workers on all nodes of a configuration; `with` ends the nodes on exit."""

    def __init__(self, config: Config, protocol: Protocol) -> None:
        super().__init__(config, protocol)
        self.nodes: dict[int, Node] = {}
        self.inbox: connection.Inbox = queue.Queue(connection.INBOX_MESSAGES)
        self.refused: NodeError | None = None
        self.workers: ClusterWorkers | None = None
        if config.launcher == "manual":
            secret = connection.shared_secret(config.host_list, 0)
        else:
            secret = os.environ.get(connection.SECRET) or secrets.token_hex(16)
        with contextlib.ExitStack() as opened:
            try:
                self._open(opened, secret)
            except OSError as error:
                raise NodeError(unwritten(error).code, detail=str(error)) from error
            self.opened = opened.pop_all()

    def _open(self, opened: contextlib.ExitStack, secret: str) -> None:
        """Listen and start the nodes; closing `opened` reverts both."""
        config = self.config
        address, port = _rendezvous_address(config), config.port or 0
        try:
            self.listener = connection.Listener(address, port, config.nodes, secret, self.inbox)
        except OSError as error:
            reason = os.strerror(error.errno or 0)
            raise NodeError("port_taken", port=port, detail=reason) from error
        opened.callback(self.listener.close)
        self.scratch = opened.enter_context(Scratch()).folder
        node = [sys.executable, "-m", "perfkit.driver.node_agent", str(config.launcher)]
        node += [address or "-", str(self.listener.port)]
        environment = os.environ | {connection.SECRET: secret}
        command = _start_command(config, node)
        self.process = start_supervised(command, self.scratch, environment, GRACE_SECONDS)
        opened.callback(close, self.process)

    def __exit__(self, *exception: object) -> None:
        reason = next((str(error) for error in exception if isinstance(error, NodeError)), None)
        self.send(connection.Bye(result=self.result_json, reason=reason))
        if self._all(lambda node: not node.lost):
            # Nodes exit after Bye.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(GRACE_SECONDS)
        for node in self.nodes.values():
            node.channel.close()
        self.opened.close()

    def node_name(self, node: int) -> str:
        if self.config.host_list:
            return f"node {node} ({self.config.host_list[node]})"
        if node in self.nodes and (ready := self.nodes[node].ready):
            return f"node {node} ({ready.name})"
        return f"node {node}"

    def wait_for_nodes(self, show_status: Callable[[str], None]) -> list[NodeSeen]:
        """Wait for all nodes and return each node's NodeSeen. Raises NodeError."""
        deadline = time.monotonic() + self.config.timeout
        while not self._all(lambda node: node.ready):
            self.poll(POLL_SECONDS)
            absent = [
                self.node_name(number)
                for number in range(self.config.nodes)
                if number not in self.nodes or not self.nodes[number].ready
            ]
            show_status(f"waiting for {', '.join(absent) or 'no node'}")
            if self.error:
                raise self.error
            if self.process.poll() is not None:
                launcher = str(self.config.launcher)
                raise NodeError("node_timeout", launcher=launcher, detail=self._output())
            if time.monotonic() > deadline:
                rejected = sorted(self.listener.rejected)
                more = {"rejected": rejected} if rejected else {}
                limit = self.config.timeout
                raise NodeError("node_timeout", nodes=absent, seconds=limit, **more)
        return [self._checked(node) for node in range(self.config.nodes)]

    def _checked(self, node: int) -> NodeSeen:
        """Compare a node with node 0. Raises NodeError if a common fact differs."""
        seen, first, name = self._ready(node), self._ready(0).facts, self.node_name(node)
        differs = {k: v for k, v in seen.facts.items() if v != first.get(k)}
        for fact in (*COMMON, *FRAMEWORKS[self.config.framework].facts):
            if fact in differs:
                params = {"here": first.get(fact), "first_node": self.node_name(0)}
                params |= {"there": differs[fact], "node": name}
                raise NodeError("nodes_differ", fact=fact, **params)
        if seen.gpus < self.config.gpus:
            raise self._differs("gpus", self.config.gpus, seen.gpus, node)
        shown = {fact: str(value)[:200] for fact, value in differs.items()}
        return NodeSeen(node=node, name=name, interface=seen.interface, differs=shown)

    def start(self, repeat: int, raw_folder: Path, job: str) -> WorkerGroup:
        self.workers = ClusterWorkers(self, raw_folder)
        first = self._ready(0)
        self.send(
            connection.Run(repeat=repeat, job=job, address=first.address, port=first.port)
        )
        return self.workers

    def unreachable(self) -> list[str]:
        """Return a sentence for each pair of nodes without a connection between the addresses
        that their workers will use. Raises NodeError."""
        answers = {number: self._ready(number) for number in self.nodes}
        ports = {number: (ready.address, ready.port) for number, ready in answers.items()}
        self.send(connection.Reach(ports=ports))
        deadline = time.monotonic() + REPLY_SECONDS
        while not self._all(lambda node: node.reached):
            self.poll(POLL_SECONDS)
            for node in self.nodes.values():
                if time.monotonic() > deadline and not node.reached:
                    node.lost = LostError(f"no answer within {REPLY_SECONDS:g} s")
            if self.error:
                raise self.error
        return [
            f"{self.node_name(number)} can't reach {self.node_name(other)}: {reason}"
            for number, node in sorted(self.nodes.items())
            for other, reason in (node.reached.errors.items() if node.reached else ())
            if other in self.nodes
        ]

    @property
    def error(self) -> NodeError | None:
        """The error of a node that refused a message, or whose connection was lost."""
        if self.refused:
            return self.refused
        for number, node in self.nodes.items():
            name = self.node_name(number)
            if isinstance(lost := node.lost, InvalidMessageError):
                return NodeError("node_error", node=name, field=lost.field, detail=lost.reason)
            if lost:
                output = self._output()
                printed = {"output": output} if output else {}
                return NodeError("node_lost", node=name, detail=str(lost), **printed)
        return None

    def poll(self, seconds: float) -> None:
        """Wait up to `seconds` for a message, then process the messages in the inbox: at most
        INBOX_MESSAGES more, since a node may send without end."""
        with contextlib.suppress(queue.Empty):
            self._receive(*self.inbox.get(timeout=seconds))
            for _ in range(connection.INBOX_MESSAGES):
                self._receive(*self.inbox.get_nowait())

    def _receive(self, channel: connection.Channel, message: NodeMessage | LostError) -> None:
        node = next((n for n in self.nodes.values() if n.channel is channel), None)
        if not node:
            absent = {*range(self.config.nodes)} - self.nodes.keys()
            if isinstance(message, connection.Hello) and message.node in absent:
                node = self.nodes[message.node] = Node(message.node, channel)
                self.refused = self.refused or self._mismatch(message)
                if not self.refused:
                    job = connection.Job(config=self.config, protocol=self.protocol)
                    self.send(job, [node])
            else:
                channel.close()
        elif not node.lost:
            try:
                self._process(node, message)
            except LostError as error:
                channel.close()
                node.lost = error

    def _mismatch(self, hello: connection.Hello) -> NodeError | None:
        """Compare a node's perfkit and, with launcher=manual, parameters with the driver's."""
        if hello.source != package_source():
            name = self.node_name(hello.node)
            return NodeError("nodes_differ", node=name, suite_source=hello.source)
        own = self.config.identity | self.protocol.model_dump()
        for key, value in (hello.config | hello.protocol).items():
            if key in own and own[key] != value:
                return self._differs(key, own[key], value, hello.node)
        return None

    def _differs(self, parameter: str, here: object, there: object, node: int) -> NodeError:
        name = self.node_name(node)
        return NodeError("nodes_differ", parameter=parameter, here=here, there=there, node=name)

    def _process(self, node: Node, message: NodeMessage | LostError) -> None:
        """Raise LostError, or InvalidMessageError for an unexpected message."""
        match message:
            case LostError():
                raise message
            case connection.Ready():
                node.ready = message
            case connection.Reached():
                node.reached = message
            case connection.Refused():
                params = message.model_dump(exclude={"type", "code"}, exclude_defaults=True)
                name = self.node_name(node.number)
                error = NodeError(message.code, **params, refused_by=name)
                self.refused = self.refused or error
            case connection.Report() | connection.Ended() if self.workers:
                self.workers.receive(node.number, message)
            case _:
                raise InvalidMessageError(type(message).__name__.lower(), "not expected now")

    def send(self, message: NodeMessage, nodes: Iterable[Node] | None = None) -> None:
        """Send a message to `nodes`, or to all; mark nodes as lost where sending fails."""
        for node in self.nodes.values() if nodes is None else nodes:
            if not node.lost:
                try:
                    node.channel.send(message)
                except LostError as error:
                    node.lost = error

    def _ready(self, node: int) -> connection.Ready:
        ready = self.nodes[node].ready
        assert ready
        return ready

    def _all(self, condition: Callable[[Node], Any]) -> bool:
        """Whether all nodes have connected and `condition` holds for each."""
        return len(self.nodes) == self.config.nodes and all(map(condition, self.nodes.values()))

    def _output(self) -> str:
        """Beginning and end of the output of the nodes and their launcher."""
        text = " ".join(portable(shortened(self.scratch / LOG)).split())
        return text if len(text) < 600 else f"{text[:300]} […] {text[-300:]}"


class ClusterWorkers(WorkerGroup):
    """The workers of one repeat on all nodes."""

    def __init__(self, launcher: ClusterLauncher, raw_folder: Path) -> None:
        self.launcher = launcher
        self.raw_folder = raw_folder
        self.exited_at: dict[int, float] = {}
        self.exits: dict[int, connection.Ended] = {}
        self.deadline: float | None = None

    def receive(self, node: int, message: connection.Report | connection.Ended) -> None:
        """Store a node's report. Raises InvalidMessageError for other nodes' ranks or logs."""
        place = NodeRank(node, self.launcher.config.nodes)
        own = place.ranks(self.launcher.config.devices)
        match message:
            case connection.Report(raw=raw, exited=exited):
                _check_own("report.raw", raw, own)
                for rank, text in raw.items():
                    with rank_file(self.raw_folder, rank).open("a") as stream:
                        stream.write(text)
                _check_own("report.exited", exited, own)
                for rank in exited:
                    self.exited_at.setdefault(rank, time.monotonic())
            case connection.Ended(logs=logs):
                # The names of logs become file names.
                _check_own("ended.logs", logs, [place.log_name, *map("rank{}".format, own)])
                self.exits[node] = message

    def _unended(self) -> list[Node]:
        """Nodes with a connection that have not reported the end of their workers."""
        nodes = self.launcher.nodes.values()
        return [node for node in nodes if node.number not in self.exits and not node.lost]

    def wait(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self.launcher.poll(left)
            failed = any(info.status for info in self.exits.values())
            if self.launcher.error or failed or not self._unended():
                return True
        return False

    def end_warmup(self) -> None:
        self.launcher.send(connection.Steady(), [self.launcher.nodes[0]])

    def end(self, *, dump_stacks: bool = False) -> None:
        self.launcher.send(connection.End(dump_stacks=dump_stacks), self._unended())
        # The same deadline for every call.
        self.deadline = self.deadline or time.monotonic() + ENDING_SECONDS
        while time.monotonic() < self.deadline and self._unended():
            self.launcher.poll(POLL_SECONDS)

    def exit_info(self) -> ExitInfo:
        exits, error = self.exits.values(), self.launcher.error
        free = [shutil.disk_usage(self.raw_folder).free, *(info.free_bytes for info in exits)]
        logs = {"nodes": shortened(self.launcher.scratch / LOG)}
        for info in exits:
            logs |= info.logs
        return ExitInfo(
            status=next((info.status for info in exits if info.status), 0 if exits else None),
            exited_at=self.exited_at,
            killed_for_memory=any(info.killed_for_memory for info in exits),
            free_bytes=min(free),
            logs={name: portable(text) for name, text in logs.items() if text},
            error=error.failure if error else None,
        )


def _check_own(field: str, named: Collection[Any], own: Collection[Any]) -> None:
    """Raise InvalidMessageError if `named` contains more than the node's `own` names."""
    for other in (name for name in named if name not in own):
        raise InvalidMessageError(field, f"{str(other)[:80]!r} belongs to another node")


def _start_command(config: Config, node: list[str]) -> list[str]:
    """The command that runs `node` on every node; with launcher=manual, on this one only."""
    launch: list[str] = []
    if config.launcher == "srun":
        launch = SRUN.format(nodes=config.nodes).split()
    elif config.launcher == "mpirun":
        slots = ",".join(f"{host}:1" for host in config.host_list)
        launch = MPIRUN.format(nodes=config.nodes, slots=slots).split()
        launch += ["--allow-run-as-root"] if os.geteuid() == 0 else []
        for name in [connection.SECRET, *filter(EXPORTED.match, os.environ)]:
            launch += ["-x", name]
    return [*launch, *node]


def _rendezvous_address(config: Config) -> str:
    """This machine's address for the nodes; empty (all) with Slurm, which tells each task."""
    if config.launcher == "srun":
        return ""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # Connecting a datagram socket sends nothing, but selects the route.
        probe.connect((config.host_list[1], 9))
        return str(probe.getsockname()[0])
