"""The nodes of a measurement, seen from the driver: started once, told to run each repeat,
watched, and ended with the measurement."""

import contextlib
import os
import re
import secrets
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from perfkit.config import Config, Protocol, portable
from perfkit.driver.node_agent import MANUAL_PORT, MANUAL_SECRET
from perfkit.driver.reception import Reception
from perfkit.driver.start import SECRET, meeting_address, start_command
from perfkit.driver.wire import LostError, Message, Wire
from perfkit.driver.workers import Ending, close, shortened
from perfkit.frameworks import FRAMEWORKS
from perfkit.frameworks.base import NodeRank
from perfkit.results.files import rank_file
from perfkit.results.schema import Failure, FailureCode, NodeSeen
from perfkit.system.environment import suite_source

COMMON = ("data", "suite_source", "python", "dali", "numpy")
"""Facts that must be alike on all nodes, besides the framework's. Others may differ and are
kept (`nodes`)."""
ENDING_SECONDS = 8.0
GRACE_SECONDS = 2.0
"""For nodes that were told to end, and for the launcher to end those that don't."""
LOG = "launcher.log"


class NodeError(Exception):
    """The nodes can't do what was asked of them."""

    def __init__(self, code: FailureCode, message: str) -> None:
        super().__init__(message)
        self.failure = Failure(code, {"detail": portable(message)})


@dataclass
class Remote:
    """One node: its connection, what it said of itself, and the end of its workers."""

    node: int
    wire: Wire
    ready: Message | None = None
    ending: Ending | None = None
    logs: dict[str, str] = field(default_factory=dict)
    answer: Message | None = None


class Nodes:
    """All nodes of a configuration; of `nodes[n]`, node n. Ends them at the end of `with`."""

    def __init__(self, config: Config, protocol: Protocol) -> None:
        self.config = config
        self.protocol = protocol
        self.nodes: dict[int, Remote] = {}
        self.lost: dict[int, str] = {}
        self.gone: dict[int, float] = {}
        self.ending_by: float | None = None
        self.refusal: NodeError | None = None
        self.raw_folder: Path | None = None
        self.result: str | None = None
        manual = config.launcher == "manual"
        # By hand, people type the same command everywhere and pass no secret on.
        usual = MANUAL_SECRET if manual else secrets.token_hex(16)
        self.secret = os.environ.get(SECRET, usual)
        with contextlib.ExitStack() as opened:
            try:
                self.address = meeting_address(config)
                self._open(config.port or (MANUAL_PORT if manual else 0), opened)
            except OSError as error:
                raise NodeError(
                    "node_timeout", f"the nodes can't be started: {error}"
                ) from error
            self.opened = opened.pop_all()

    def _open(self, port: int, opened: contextlib.ExitStack) -> None:
        """Listen on `port`, 0 for any, and start the nodes; `opened` undoes it."""
        try:
            self.reception = Reception(self.address, port, self.config.nodes, self.secret)
        except OSError as error:
            reason = os.strerror(error.errno or 0)
            raise NodeError(
                "port_taken",
                f"port {port} of this machine can't be had: {reason}; "
                "another one, the same on all nodes: -p port NUMBER",
            ) from error
        opened.callback(self.reception.close)
        self.port = self.reception.port
        self.scratch = Path(tempfile.mkdtemp(prefix="perfkit-"))
        opened.callback(shutil.rmtree, self.scratch, ignore_errors=True)
        log = opened.enter_context((self.scratch / LOG).open("wb"))
        supervisor = [sys.executable, "-m", "perfkit.driver.supervisor", str(self.scratch)]
        self.process = subprocess.Popen(
            [*supervisor, str(GRACE_SECONDS), *self._command()],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=os.environ | {SECRET: self.secret},
            start_new_session=True,
        )
        opened.callback(close, self.process)

    def _command(self) -> list[str]:
        node = [sys.executable, "-m", "perfkit.driver.node_agent", str(self.config.launcher)]
        return start_command(self.config, [*node, self.address or "-", str(self.port)])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: object, _traceback: object) -> None:
        reason = str(error) if isinstance(error, NodeError) else None
        for node, remote in self.nodes.items():
            if node not in self.lost:
                with contextlib.suppress(LostError):
                    remote.wire.send("bye", result=self.result, reason=reason)
        if self._all(lambda _remote: True) and not self.lost:
            # Told bye, they end by themselves.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(GRACE_SECONDS)
        self.reception.close()
        for remote in self.nodes.values():
            remote.wire.close()
        self.opened.close()

    def name(self, node: int) -> str:
        """How people call it: "node 1 (host)"."""
        if self.config.host_list:
            return f"node {node} ({self.config.host_list[node]})"
        if node in self.nodes and (ready := self.nodes[node].ready):
            return f"node {node} ({ready['name']})"
        return f"node {node}"

    def gather(self, waiting: Callable[[str], None]) -> list[NodeSeen]:
        """Wait until all nodes are there and see that they fit together; `waiting` is told for
        whom. Raises NodeError."""
        deadline = time.monotonic() + self.config.timeout
        while not self._all(lambda remote: remote.ready):
            self.poll(0.2)
            absent = [n for n in range(self.config.nodes) if n not in self.nodes]
            waiting("waiting for " + (", ".join(map(self.name, absent)) or "the nodes' facts"))
            if self.trouble:
                raise self.trouble
            if self.process.poll() is not None:
                raise NodeError("node_timeout", f"{self.config.launcher} ended: {self._said()}")
            if time.monotonic() > deadline:
                names = ", ".join(map(self.name, absent)) or "a node"
                told = f"{names} did not come within {self.config.timeout} s"
                if self.reception.turned_away:
                    who = ", ".join(sorted(self.reception.turned_away))
                    told += f"; turned away for want of the right {SECRET}: {who}"
                raise NodeError("node_timeout", told)
        return self._compared()

    def _compared(self) -> list[NodeSeen]:
        """What was seen of each node. Raises NodeError where one does not fit."""
        seen = []
        first = self._ready(0)["facts"]
        for node in range(self.config.nodes):
            ready = self._ready(node)
            differs = {k: v for k, v in ready["facts"].items() if v != first.get(k)}
            for fact in (*COMMON, *FRAMEWORKS[self.config.framework].facts):
                if fact in differs:
                    raise NodeError(
                        "nodes_differ",
                        f"{fact}: {first.get(fact)!r} on {self.name(0)}, "
                        f"{differs[fact]!r} on {self.name(node)}; make them alike",
                    )
            has, wanted = ready["gpus"], self.config.gpus or 0
            if has < wanted:
                raise NodeError(
                    "nodes_differ", f"gpus: {wanted} asked for, {self.name(node)} shows {has}"
                )
            seen.append(
                NodeSeen(
                    node=node,
                    name=self.name(node),
                    interface=ready["interface"],
                    differs={k: str(v)[:200] for k, v in differs.items()},
                )
            )
        return seen

    def start(self, repeat: int, raw_folder: Path, job: str) -> "RemoteWorkers":
        """Start the workers of one repeat on all nodes."""
        self.raw_folder = raw_folder
        self.gone = {}
        self.ending_by = None
        first = self._ready(0)
        for node, remote in self.nodes.items():
            remote.ending, remote.logs = None, {}
            place = NodeRank(
                node=node,
                nodes=self.config.nodes,
                address=self._ready(node)["address"],
                interface=self._ready(node)["interface"],
                master=f"{first['address']}:{self._meeting_port}",
            )
            self.tell(node, "run", repeat=repeat, job=job, place=place._asdict())
        return RemoteWorkers(self)

    def unreachable(self) -> list[str]:
        """Which ports can't be had, and which node can't reach which, on the addresses that
        their workers will use. Raises NodeError."""
        for node in self.nodes:
            self.tell(node, "listen", port=self._meeting_port if node == 0 else 0)
        listening = self._answers()
        ports = {
            node: (self._ready(node)["address"], answer["port"])
            for node, answer in listening.items()
            if answer["error"] is None
        }
        told = [f"{self.name(n)}: {a['error']}" for n, a in listening.items() if a["error"]]
        for node in self.nodes:
            self.tell(node, "reach", ports=ports)
        return told + [
            f"{self.name(node)} can't reach {self.name(int(other))}: {reason}"
            for node, answer in self._answers().items()
            for other, reason in answer["errors"].items()
        ]

    @property
    def _meeting_port(self) -> int:
        """Where workers meet, on node 0."""
        return self.config.port + 1 if self.config.port else int(self._ready(0)["port"])

    def _answers(self) -> dict[int, Message]:
        while not self._all(lambda remote: remote.answer):
            self.poll(0.2)
            if self.trouble:
                raise self.trouble
        answers = {node: remote.answer or {} for node, remote in sorted(self.nodes.items())}
        for remote in self.nodes.values():
            remote.answer = None
        return answers

    @property
    def trouble(self) -> NodeError | None:
        """What keeps the nodes from going on: one refuses, or is lost."""
        if self.refusal:
            return self.refusal
        for node, reason in self.lost.items():
            said = self._said()
            told = f"{self.name(node)}: {reason}" + (f"; what was said: {said}" if said else "")
            return NodeError("node_lost", told)
        return None

    def poll(self, seconds: float) -> None:
        """Take in what comes within `seconds`, at most until the first thing comes."""
        alive: dict[Any, int] = {
            remote.wire: n for n, remote in self.nodes.items() if n not in self.lost
        }
        readable, _, _ = select.select([*self.reception.sources, *alive], [], [], seconds)
        for source in readable:
            if source in alive:
                self._hear(alive[source])
            elif known := self.reception.hear(source):
                self._welcome(*known)
        for wire, node in alive.items():
            if node not in self.lost:
                with self._losing(node):
                    wire.check()
        self.reception.hang_up_on_the_silent()

    def _welcome(self, wire: Wire, messages: list[Message]) -> None:
        """Take in one that knows the secret, unless it is no node that is waited for."""
        hello, *further = messages
        node = hello.get("node", -1)
        try:
            asked = (hello.get("config") or {}) | (hello.get("protocol") or {})
        except TypeError:
            asked = None
        if asked is None or node not in range(self.config.nodes) or node in self.nodes:
            wire.close()
            return
        self.nodes[node] = Remote(node, wire)
        unlike = self._unlike(node, asked, hello.get("source"))
        self.refusal = self.refusal or unlike
        work = {"config": self.config.model_dump(), "protocol": self.protocol.model_dump()}
        self.tell(node, "job", **work)
        self._take(node, further)

    def _unlike(self, node: int, asked: dict[str, Any], source: object) -> NodeError | None:
        """In what a node differs before it is asked anything: its perfkit and, where it was
        started by hand, what it was asked for."""
        if source != suite_source():
            told = f"this perfkit differs from the one on {self.name(node)}; make them alike"
            return NodeError("nodes_differ", told)
        own = self.config.model_dump() | self.protocol.model_dump()
        for name, value in asked.items():
            if name not in ("outputs_dir", "timeout") and own.get(name) != value:
                return NodeError(
                    "nodes_differ",
                    f"{name}: {own.get(name)!r} asked for here, {value!r} on {self.name(node)}",
                )
        return None

    def _hear(self, node: int) -> None:
        with self._losing(node):
            self._take(node, self.nodes[node].wire.receive())

    def _take(self, node: int, messages: list[Message]) -> None:
        remote = self.nodes[node]
        with self._losing(node):
            for message in messages:
                match message["say"]:
                    case "ready":
                        remote.ready = message
                    case "raw":
                        self._append(node, message)
                    case "gone":
                        for rank in message["ranks"]:
                            self.gone.setdefault(rank, time.monotonic())
                    case "ended":
                        remote.logs = _named_as_logs(message["logs"])
                        remote.ending = Ending(**message["ending"] | {"gone": {}})
                    case "refused":
                        told = f"{self.name(node)}: {message['message']}"
                        self.refusal = NodeError(message["code"], told)
                    case "listening" | "reached":
                        remote.answer = message

    def _append(self, node: int, message: Message) -> None:
        """Add raw events to the file of one of the node's ranks."""
        rank, devices = message["rank"], self.config.devices
        if not isinstance(rank, int) or rank // devices != node or not self.raw_folder:
            raise LostError(f"it sent events of rank {rank!r}, which is not its own")
        with rank_file(self.raw_folder, rank).open("a") as stream:
            stream.write(message["text"])

    @contextlib.contextmanager
    def _losing(self, node: int) -> Any:
        try:
            yield
        except LostError as error:
            self.lost[node] = str(error)
        except (KeyError, TypeError, ValueError) as error:
            self.lost[node] = f"it sent what can't be understood: {error!r}"

    def tell(self, node: int, say: str, **content: Any) -> None:
        """Send a message; a node that it does not reach is lost."""
        if node not in self.lost:
            with self._losing(node):
                self.nodes[node].wire.send(say, **content)

    def _ready(self, node: int) -> Message:
        ready = self.nodes[node].ready
        assert ready
        return ready

    def _all(self, has: Callable[[Remote], Any]) -> bool:
        return len(self.nodes) == self.config.nodes and all(map(has, self.nodes.values()))

    def _said(self) -> str:
        """Beginning and end of what the nodes, and what starts them, printed."""
        text = " ".join(portable(shortened(self.scratch / LOG)).split())
        return text if len(text) < 600 else f"{text[:300]} […] {text[-300:]}"


class RemoteWorkers:
    """The workers of one repeat on all nodes; the same to its user as launch.Workers."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def trouble(self) -> Failure | None:
        """What ended the repeat, if it was not the workers."""
        return self.nodes.trouble.failure if self.nodes.trouble else None

    def wait(self, seconds: float) -> int | None:
        """The exit status once all processes have ended, or something is amiss; else None."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self.nodes.poll(left)
            endings = [r.ending for r in self.nodes.nodes.values() if r.ending]
            failed = [e.status for e in endings if e.status != 0]
            if self.trouble or failed:
                return failed[0] if failed else -1
            if len(endings) == len(self.nodes.nodes):
                return 0
        return None

    def write_stacks(self) -> None:
        """Have every worker that still runs write to its log where it is, and end."""
        self._end(stacks=True)

    def end(self) -> None:
        """Kill what is left, on every node that can be reached."""
        self._end(stacks=False)

    def _end(self, stacks: bool) -> None:
        for node, remote in self.nodes.nodes.items():
            if not remote.ending:
                self.nodes.tell(node, "end", stacks=stacks)
        # One deadline, also where stacks are asked for first.
        self.nodes.ending_by = self.nodes.ending_by or time.monotonic() + ENDING_SECONDS
        while time.monotonic() < self.nodes.ending_by and not all(
            remote.ending or node in self.nodes.lost
            for node, remote in self.nodes.nodes.items()
        ):
            self.nodes.poll(0.2)

    def logs(self) -> dict[str, str]:
        """Log name -> text, of all nodes."""
        logs = {"nodes": shortened(self.nodes.scratch / LOG)}
        for remote in self.nodes.nodes.values():
            logs |= remote.logs
        return {name: portable(text) for name, text in logs.items() if text}

    def ending(self) -> Ending:
        """How it ended, over all nodes."""
        endings = [r.ending for r in self.nodes.nodes.values() if r.ending]
        assert self.nodes.raw_folder
        return Ending(
            status=next((e.status for e in endings if e.status), 0 if endings else None),
            gone=self.nodes.gone,
            killed_for_memory=any(e.killed_for_memory for e in endings),
            free_bytes=min(
                [
                    shutil.disk_usage(self.nodes.raw_folder).free,
                    *(e.free_bytes for e in endings),
                ]
            ),
            last_lines="\n".join(e.last_lines for e in endings),
        )


def _named_as_logs(logs: dict[str, str]) -> dict[str, str]:
    """A node's logs, whose names become those of files here. Raises LostError."""
    if wrong := [name for name in logs if not re.fullmatch(r"[a-z0-9-]+", name)]:
        raise LostError(f"it sent a log of the name {wrong[0]!r}")
    return logs
