"""The nodes of a measurement, seen from the driver: started once, told to run each repeat,
watched, and ended with the measurement."""

import contextlib
import os
import queue
import re
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, TypeAdapter

from perfkit.config import Config, Protocol, portable
from perfkit.driver.connection import (
    INBOX_MESSAGES,
    SECRET,
    Channel,
    Inbox,
    Listener,
    LostError,
    NodeMessage,
    shared_secret,
)
from perfkit.driver.failures import NodeError
from perfkit.driver.workers import ExitInfo, Launcher, WorkerGroup, close, shortened
from perfkit.frameworks import FRAMEWORKS
from perfkit.frameworks.base import NodeRank
from perfkit.results.schema import NodeSeen
from perfkit.results.store import rank_file
from perfkit.system.environment import LIBRARY_VARIABLES, package_source

COMMON = ("data", "suite_source", "python", "dali", "numpy")
"""Facts that must be alike on all nodes, besides the framework's. Others may differ and are
kept (`nodes`)."""
POLL_SECONDS = 0.2
ENDING_SECONDS = 8.0
GRACE_SECONDS = 2.0
"""For nodes that were told to end, and for the launcher to end those that don't."""
LOG = "launcher.log"
EXIT_INFO = TypeAdapter(ExitInfo)


class NodeFacts(BaseModel):
    """What a node says of itself: where it can be reached, and what the nodes must have in
    common."""

    type: Literal["ready"]
    address: str
    interface: str
    port: int
    name: str
    gpus: int
    facts: dict[str, Any]


@dataclass
class Node:
    """One node: its connection, its answers, and why it was lost."""

    number: int
    channel: Channel
    facts: NodeFacts | None = None
    reply: NodeMessage | None = None
    lost: str | None = None


class ClusterLauncher(Launcher):
    """Starts workers on all nodes of a configuration; ends the nodes at the end of `with`."""

    def __init__(self, config: Config, protocol: Protocol) -> None:
        super().__init__(config, protocol)
        self.nodes: dict[int, Node] = {}
        self.inbox: Inbox = queue.Queue(INBOX_MESSAGES)
        self.refused: NodeError | None = None
        self.workers: ClusterWorkers | None = None
        if config.launcher == "manual":
            self.secret = shared_secret(config.host_list, 0)
        else:
            self.secret = os.environ.get(SECRET) or secrets.token_hex(16)
        with contextlib.ExitStack() as opened:
            try:
                self._open(opened)
            except OSError as error:
                launcher = str(config.launcher)
                raise NodeError("node_timeout", launcher=launcher, detail=str(error)) from error
            self.opened = opened.pop_all()

    def _open(self, opened: contextlib.ExitStack) -> None:
        """Listen, and start the nodes; `opened` undoes it."""
        config = self.config
        address = _rendezvous_address(config)
        port = config.listen_port
        try:
            self.listener = Listener(address, port, config.nodes, self.secret, self.inbox)
        except OSError as error:
            reason = os.strerror(error.errno or 0)
            raise NodeError("port_taken", port=port, detail=reason) from error
        opened.callback(self.listener.close)
        self.scratch = Path(tempfile.mkdtemp(prefix="perfkit-"))
        opened.callback(shutil.rmtree, self.scratch, ignore_errors=True)
        log = opened.enter_context((self.scratch / LOG).open("wb"))
        supervisor = [sys.executable, "-m", "perfkit.driver.supervisor", str(self.scratch)]
        node = [sys.executable, "-m", "perfkit.driver.node_agent", str(config.launcher)]
        node += [address or "-", str(self.listener.port)]
        self.process = subprocess.Popen(
            [*supervisor, str(GRACE_SECONDS), *_start_command(config, node)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=os.environ | {SECRET: self.secret},
            start_new_session=True,
        )
        opened.callback(close, self.process)

    def __exit__(self, *exception: object) -> None:
        reason = next((str(error) for error in exception if isinstance(error, NodeError)), None)
        for node in self.nodes.values():
            self.send(node, "bye", result=self.result_json, reason=reason)
        if self._all(lambda node: not node.lost):
            # After bye, they end by themselves.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(GRACE_SECONDS)
        for node in self.nodes.values():
            node.channel.close()
        self.opened.close()

    def node_name(self, node: int) -> str:
        if self.config.host_list:
            return f"node {node} ({self.config.host_list[node]})"
        if node in self.nodes and (facts := self.nodes[node].facts):
            return f"node {node} ({facts.name})"
        return f"node {node}"

    def wait_for_nodes(self, show_status: Callable[[str], None]) -> list[NodeSeen]:
        deadline = time.monotonic() + self.config.timeout
        while not self._all(lambda node: node.facts):
            self.poll(POLL_SECONDS)
            absent = [
                self.node_name(number)
                for number in range(self.config.nodes)
                if number not in self.nodes or not self.nodes[number].facts
            ]
            show_status(f"waiting for {', '.join(absent) or 'nobody'}")
            if self.error:
                raise self.error
            if self.process.poll() is not None:
                launcher = str(self.config.launcher)
                raise NodeError("node_timeout", launcher=launcher, detail=self._output())
            if time.monotonic() > deadline:
                rejected = sorted(self.listener.rejected)
                raise NodeError(
                    "node_timeout",
                    nodes=absent,
                    seconds=self.config.timeout,
                    **({"rejected": rejected} if rejected else {}),
                )
        return [self._checked(node) for node in range(self.config.nodes)]

    def _checked(self, node: int) -> NodeSeen:
        """What was seen of a node. Raises NodeError if it does not fit the first."""
        seen, first = self._facts(node), self._facts(0).facts
        differs = {k: v for k, v in seen.facts.items() if v != first.get(k)}
        for fact in (*COMMON, *FRAMEWORKS[self.config.framework].facts):
            if fact in differs:
                raise NodeError(
                    "nodes_differ",
                    fact=fact,
                    here=first.get(fact),
                    first_node=self.node_name(0),
                    there=differs[fact],
                    node=self.node_name(node),
                )
        if seen.gpus < self.config.gpus:
            raise self._not_as_here("gpus", self.config.gpus, seen.gpus, node)
        return NodeSeen(
            node=node,
            name=self.node_name(node),
            interface=seen.interface,
            differs={k: str(v)[:200] for k, v in differs.items()},
        )

    def start(self, repeat: int, raw_folder: Path, job: str) -> WorkerGroup:
        self.workers = ClusterWorkers(self, raw_folder)
        master = f"{self._facts(0).address}:{self._rendezvous_port}"
        for number, node in self.nodes.items():
            facts = self._facts(number)
            place = NodeRank(number, self.config.nodes, facts.address, facts.interface, master)
            self.send(node, "run", repeat=repeat, job=job, place=place._asdict())
        return self.workers

    def unreachable(self) -> list[str]:
        """Which ports can't be had, and which node can't reach which, on the addresses that
        their workers will use. Raises NodeError."""
        for number, node in self.nodes.items():
            self.send(node, "listen", port=0 if number else self._rendezvous_port)
        listening = self._replies()
        ports = {
            number: (self._facts(number).address, reply["port"])
            for number, reply in listening.items()
            if not reply["error"]
        }
        for node in self.nodes.values():
            self.send(node, "reach", ports=ports)
        problems = [
            f"{self.node_name(number)}: port {reply['port']} can't be used: {reply['error']}"
            for number, reply in listening.items()
            if reply["error"]
        ]
        return problems + [
            f"{self.node_name(number)} can't reach {self.node_name(int(other))}: {reason}"
            for number, reply in self._replies().items()
            for other, reason in reply["errors"].items()
        ]

    @property
    def _rendezvous_port(self) -> int:
        """Where workers meet, on node 0."""
        return self.config.port + 1 if self.config.port else self._facts(0).port

    def _replies(self) -> dict[int, NodeMessage]:
        while not self._all(lambda node: node.reply):
            self.poll(POLL_SECONDS)
            if self.error:
                raise self.error
        replies = {number: node.reply or {} for number, node in sorted(self.nodes.items())}
        for node in self.nodes.values():
            node.reply = None
        return replies

    @property
    def error(self) -> NodeError | None:
        """What keeps the nodes from going on: one refuses, or is lost."""
        if self.refused:
            return self.refused
        for number, node in self.nodes.items():
            if node.lost:
                name, output = self.node_name(number), self._output()
                printed = {"output": output} if output else {}
                return NodeError("node_lost", node=name, detail=node.lost, **printed)
        return None

    def poll(self, seconds: float) -> None:
        """Take in what comes within `seconds`, at most until the first messages have come."""
        with contextlib.suppress(queue.Empty):
            self._receive(*self.inbox.get(timeout=seconds))
            while True:
                self._receive(*self.inbox.get_nowait())

    def _receive(self, channel: Channel, message: NodeMessage | LostError) -> None:
        node = next((n for n in self.nodes.values() if n.channel is channel), None)
        try:
            if node and node.lost:
                return
            if isinstance(message, LostError):
                raise message
            if node:
                self._take(node, message)
            else:
                self._welcome(channel, message)
        except LostError as error:
            self._lose(channel, node, str(error))
        except (KeyError, TypeError, ValueError) as error:
            self._lose(channel, node, f"it sent an invalid message: {error!r}")

    def _lose(self, channel: Channel, node: Node | None, reason: str) -> None:
        channel.close()
        if node:
            node.lost = reason

    def _welcome(self, channel: Channel, hello: NodeMessage) -> None:
        """Take in a node. Raises LostError for what is no node that is waited for."""
        number = hello.get("node")
        asked = (hello.get("config") or {}) | (hello.get("protocol") or {})
        absent = {*range(self.config.nodes)} - {*self.nodes}
        if hello["type"] != "hello" or type(number) is not int or number not in absent:
            raise LostError("it is no node that is waited for")
        node = self.nodes[number] = Node(number, channel)
        self.refused = self.refused or self._mismatch(number, asked, hello.get("source"))
        work = {"config": self.config.model_dump(), "protocol": self.protocol.model_dump()}
        self.send(node, "job", **work)

    def _mismatch(self, node: int, asked: dict[str, Any], source: object) -> NodeError | None:
        """In what a node differs before it is asked anything: its perfkit and, where it was
        started by hand, what it was asked for."""
        if source != package_source():
            name = self.node_name(node)
            return NodeError("nodes_differ", node=name, suite_source=str(source))
        own = self.config.identity | self.protocol.model_dump()
        for key, value in asked.items():
            if key in own and own[key] != value:
                return self._not_as_here(key, own[key], value, node)
        return None

    def _not_as_here(self, parameter: str, here: object, there: object, node: int) -> NodeError:
        name = self.node_name(node)
        return NodeError("nodes_differ", parameter=parameter, here=here, there=there, node=name)

    def _take(self, node: Node, message: NodeMessage) -> None:
        match message["type"]:
            case "ready":
                node.facts = NodeFacts.model_validate(message)
            case "refused":
                name = self.node_name(node.number)
                error = NodeError(message["code"], **message["params"], refused_by=name)
                self.refused = self.refused or error
            case "listening" | "reached":
                node.reply = message
            case "raw" | "exited" | "ended" if self.workers:
                self.workers.receive(node.number, message)
            case unknown:
                raise LostError(f"it sent {unknown!r}, which this perfkit does not know")

    def send(self, node: Node, type: str, **content: Any) -> None:
        """Send a message; a node that it does not reach is lost."""
        if not node.lost:
            try:
                node.channel.send(type, **content)
            except LostError as error:
                node.lost = str(error)

    def _facts(self, node: int) -> NodeFacts:
        facts = self.nodes[node].facts
        assert facts
        return facts

    def _all(self, has: Callable[[Node], Any]) -> bool:
        return len(self.nodes) == self.config.nodes and all(map(has, self.nodes.values()))

    def _output(self) -> str:
        """Beginning and end of what the nodes, and what starts them, printed."""
        text = " ".join(portable(shortened(self.scratch / LOG)).split())
        return text if len(text) < 600 else f"{text[:300]} […] {text[-300:]}"


class ClusterWorkers(WorkerGroup):
    """The workers of one repeat on all nodes."""

    def __init__(self, launcher: ClusterLauncher, raw_folder: Path) -> None:
        self.launcher = launcher
        self.raw_folder = raw_folder
        self.exited_at: dict[int, float] = {}
        self.exits: dict[int, ExitInfo] = {}
        self.deadline: float | None = None

    def receive(self, node: int, message: NodeMessage) -> None:
        """Take in a message of a node. Raises LostError for what it may not send."""
        match message["type"]:
            case "raw":
                rank = self._own_rank(node, message["rank"])
                with rank_file(self.raw_folder, rank).open("a") as stream:
                    stream.write(message["text"])
            case "exited":
                for rank in message["ranks"]:
                    self.exited_at.setdefault(self._own_rank(node, rank), time.monotonic())
            case "ended":
                # The names become those of files.
                for name in message["exit"]["logs"]:
                    if not re.fullmatch(r"[a-z0-9-]+", name):
                        raise LostError(f"it sent a log of the name {name!r}")
                self.exits[node] = EXIT_INFO.validate_python(message["exit"])

    def _own_rank(self, node: int, rank: object) -> int:
        if type(rank) is not int or rank // self.launcher.config.devices != node:
            raise LostError(f"it sent events of rank {rank!r}, which is not its own")
        return rank

    def wait(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self.launcher.poll(left)
            if self.launcher.error or any(info.status for info in self.exits.values()):
                return True
            if len(self.exits) == len(self.launcher.nodes):
                return True
        return False

    def end(self, *, dump_stacks: bool = False) -> None:
        nodes = self.launcher.nodes
        for number, node in nodes.items():
            if number not in self.exits:
                self.launcher.send(node, "end", dump_stacks=dump_stacks)
        # One deadline, however often this is called.
        self.deadline = self.deadline or time.monotonic() + ENDING_SECONDS
        while time.monotonic() < self.deadline and not all(
            number in self.exits or node.lost for number, node in nodes.items()
        ):
            self.launcher.poll(POLL_SECONDS)

    def exit_info(self) -> ExitInfo:
        exits = self.exits.values()
        logs = {"nodes": shortened(self.launcher.scratch / LOG)}
        for info in exits:
            logs |= info.logs
        error = self.launcher.error
        return ExitInfo(
            status=next((info.status for info in exits if info.status), 0 if exits else None),
            exited_at=self.exited_at,
            killed_for_memory=any(info.killed_for_memory for info in exits),
            free_bytes=min(
                [
                    shutil.disk_usage(self.raw_folder).free,
                    *(info.free_bytes for info in exits),
                ]
            ),
            logs={name: portable(text) for name, text in logs.items() if text},
            error=error.failure if error else None,
        )


def _start_command(config: Config, node: list[str]) -> list[str]:
    """What starts `node`, the command of one node, on each of them."""
    if config.launcher == "srun":
        count = str(config.nodes)
        # Not bound to cores: a node's one task is all of its workers. Overlapping, since
        # perfkit may run in a step of the same allocation.
        launch = ["srun", "--nodes", count, "--ntasks", count, "--ntasks-per-node", "1"]
        launch += ["--overlap", "--cpu-bind", "none", "--kill-on-bad-exit", "--export", "ALL"]
        return [*launch, *node]
    if config.launcher == "mpirun":
        slots = ",".join(f"{host}:1" for host in config.host_list)
        launch = ["mpirun", "--host", slots, "-np", str(config.nodes)]
        launch += ["--map-by", "ppr:1:node", "--bind-to", "none"]
        launch += ["--allow-run-as-root"] if os.geteuid() == 0 else []
        names = [SECRET, *(name for name in os.environ if name.startswith(LIBRARY_VARIABLES))]
        names += [n for n in ("CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH") if n in os.environ]
        return [*launch, *(word for name in names for word in ("-x", name)), *node]
    return node


def _rendezvous_address(config: Config) -> str:
    """This machine's address as the other nodes see it; empty, for all of them, with Slurm,
    which tells each task the address that it was launched from."""
    if config.launcher == "srun":
        return ""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # Connecting a datagram socket sends nothing; it chooses the route.
        probe.connect((config.host_list[1], 9))
        return str(probe.getsockname()[0])
