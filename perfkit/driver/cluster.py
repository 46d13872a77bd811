"""The driver's side of a measurement on several nodes.

The driver runs the workers of node 0 itself, exactly as on one node. On the other nodes, ssh or
srun starts a node program (node.py), once for the facts of all nodes and once for each repeat.
They exchange files in a shared folder, which node_files.py describes.

The driver holds the standard input of ssh or srun open. When the driver ends, even by kill -9,
or ssh or srun does, the supervisor on each node sees its own standard input close and ends
everything there. A node that a broken link has cut off ends after its time limit.
"""

import contextlib
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Self

from perfkit.config import Config, Protocol, portable
from perfkit.driver.failures import NodeError, failure, is_full, unwritten
from perfkit.driver.network import try_each_other
from perfkit.driver.node_files import (
    END,
    JOB,
    POLL_SECONDS,
    PREFIX,
    Answer,
    End,
    ExitStatus,
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
from perfkit.driver.workers import ENDING_SECONDS as WORKERS_ENDING_SECONDS
from perfkit.driver.workers import (
    STACKS_SECONDS,
    SUPERVISOR,
    ExitInfo,
    Launcher,
    LocalWorkers,
    WorkerGroup,
    shortened,
)
from perfkit.frameworks import FRAMEWORKS
from perfkit.frameworks.base import NodeRank
from perfkit.request.hosts import route_address
from perfkit.results.schema import Failure, NodeSeen
from perfkit.system.environment import LIBRARY_VARIABLES, names_a_gpu, package_source
from perfkit.system.scratch import Scratch

NODE = "perfkit.driver.node"
COMMON = ("data", "suite_source", "python", "dali", "numpy")
"""Facts that must be equal on all nodes, besides the framework's; others are stored."""
SRUN = "srun --ntasks-per-node 1 --overlap --cpu-bind none --export ALL"
"""Without CPU binding, since a node's single task starts all of its workers; with --overlap,
since perfkit may run in a step of the same allocation."""
ALLOCATED_GPUS = ("SLURM_JOB_GPUS", "SLURM_STEP_GPUS", "SLURM_GPUS_ON_NODE")
"""Variables that show that a Slurm allocation has GPUs, which a step gets only if it asks."""
SSH = (
    "ssh -T -o BatchMode=yes -o ConnectTimeout=30 -o ServerAliveInterval=5"
    " -o ServerAliveCountMax=3"
)
"""ssh without a terminal and without questions; it ends 15 to 20 s after the link is cut."""
EXPORTED = re.compile(
    rf"({'|'.join(LIBRARY_VARIABLES)})|(CUDA_VISIBLE_DEVICES|LD_LIBRARY_PATH|PYTHONPATH)$"
)
"""Names of the environment variables that ssh passes on; srun passes on all."""
STARTING_SECONDS = 60.0
"""Time limit of a node program besides `timeout`."""
APPEARING_SECONDS = 10.0
"""Time in which a file of a node that has exited must become visible here."""
ENDING_SECONDS = STACKS_SECONDS + WORKERS_ENDING_SECONDS + 5.0
"""Exceeds the time in which a node ends its workers and moves their raw files."""
CLOSING_SECONDS = 3.0
"""For ssh or srun, and for what they have started, to end after standard input has closed. If
they are killed then, the supervisors end the rest."""


class Program(NamedTuple):
    """A process of ssh or srun, the nodes on which it runs node programs, and its output."""

    nodes: list[int]
    process: subprocess.Popen[bytes]
    log: Path

    def close(self) -> None:
        """Let the node programs end, if they have not."""
        assert self.process.stdin
        self.process.stdin.close()

    def wait(self, seconds: float) -> None:
        """Wait for the process up to `seconds`, then kill it."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        self.process.kill()
        self.process.wait()


class NodePrograms:
    """The node programs of one start; none outlives the `with` block."""

    def __init__(self, config: Config, task: str, folder: Path, names: list[str]) -> None:
        """Start them. `names`: of the machines, by node; empty before they are known."""
        self.config = config
        self.folder = folder
        self.exited_at: dict[int, float] = {}
        self.programs: list[Program] = []
        with contextlib.ExitStack() as opened:
            scratch = opened.enter_context(Scratch()).folder
            opened.callback(self._close)
            for nodes, command in start_commands(config, task, folder, names):
                log = scratch / f"{nodes[0]}.log"
                self.programs.append(Program(nodes, _start(command, log), log))
            self.opened = opened.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.opened.close()

    def _close(self) -> None:
        for program in self.programs:
            program.close()
        deadline = time.monotonic() + CLOSING_SECONDS
        for program in self.programs:
            program.wait(max(0.0, deadline - time.monotonic()))

    def without(self, kind: str) -> tuple[list[int], list[int]]:
        """Return the nodes without a file of this kind: those from which it may still come, and
        those that have exited. Raises OSError."""
        now = time.monotonic()
        exited = {n for p in self.programs if p.process.poll() is not None for n in p.nodes}
        for node in exited:
            self.exited_at.setdefault(node, now)
        absent = {*range(1, self.config.nodes)} - nodes_with(kind, self.folder)
        lost = {node for node in absent & exited if self._is_overdue(node, now)}
        return sorted(absent - lost), sorted(lost)

    def _is_overdue(self, node: int, now: float) -> bool:
        """Whether the file of a node that has exited will not appear any more."""
        if self._program(node).process.returncode:
            return True
        return now - self.exited_at[node] > APPEARING_SECONDS

    def _program(self, node: int) -> Program:
        return next(program for program in self.programs if node in program.nodes)

    def failure(self, nodes: list[int], names: list[str], *, running: bool) -> Failure:
        """Why these nodes, called `names`, have not written their file. `running`: whether they
        had workers, whose raw lines are then lost."""
        program = self._program(nodes[0])
        status = program.process.poll()
        output = self.output(program)
        printed = {"output": output} if output else {}
        if status in (ExitStatus.DISK_FULL, ExitStatus.IO_ERROR):
            full = status == ExitStatus.DISK_FULL
            return failure("disk_full" if full else "io_error", detail=output)
        if status in (0, ExitStatus.NOT_SHARED):
            folder = str(self.folder.parent.parent)
            return failure("not_shared", nodes=names, folder=folder, **printed)
        how: dict[str, Any] = {"seconds": ENDING_SECONDS}
        if status is not None:
            how = {"launcher": str(self.config.launcher), "status": status}
        lost = {"lines_lost": True} if running else {}
        return failure("node_lost", nodes=names, **how, **lost, **printed)

    def output(self, program: Program) -> str:
        """Beginning and end of what a process and its node programs have printed."""
        text = " ".join(portable(shortened(program.log)).split())
        return text if len(text) < 600 else f"{text[:300]} […] {text[-300:]}"

    @property
    def log(self) -> str:
        """All that the processes have printed."""
        return "".join(portable(shortened(program.log)) for program in self.programs)


def _start(command: list[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            # Ctrl-C reaches only the driver, which ends the nodes in its own way.
            start_new_session=True,
        )


def start_commands(
    config: Config, task: str, folder: Path, names: list[str]
) -> list[tuple[list[int], list[str]]]:
    """The commands that run the node program on all nodes but the first, with their nodes."""
    others = [*range(1, config.nodes)]
    limit = config.timeout + STARTING_SECONDS
    supervisor = [sys.executable, "-m", SUPERVISOR, "-", "0", "--seconds", str(limit)]
    node = [*supervisor, sys.executable, "-m", NODE, task, str(folder)]
    if config.launcher == "srun":
        return [(others, [*_srun(config, names), *node])]
    commands = []
    for number in others:
        remote = shlex.join(["env", *exported_variables(), *node, str(number)])
        commands.append(([number], [*SSH.split(), config.host_list[number], "--", remote]))
    return commands


def exported_variables() -> list[str]:
    """`NAME=VALUE` of the variables that ssh passes on, without those that name a GPU of this
    machine."""
    exported = []
    for name, value in sorted(os.environ.items()):
        if EXPORTED.match(name) and not names_a_gpu(value):
            exported.append(f"{name}={value}")
    return exported


def _srun(config: Config, names: list[str]) -> list[str]:
    """srun on all nodes of the allocation that the measurement uses, without the first; on
    exactly these machines, once their names are known."""
    count = str(config.nodes - 1)
    where = ["--nodelist", ",".join(names[1:])] if names else ["--relative", "1"]
    command = [*SRUN.split(), "--nodes", count, "--ntasks", count, *where]
    if config.device == "gpu" and any(name in os.environ for name in ALLOCATED_GPUS):
        command += ["--gres", f"gpu:{config.gpus}"]
    return command


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
                raise NodeError(failure("node_timeout", nodes=names, seconds=limit))
            show_status(f"waiting for {', '.join(self.names(awaited))}")
            time.sleep(POLL_SECONDS)
        return [self._facts_of(node, folder) for node in range(1, self.config.nodes)]

    def _facts_of(self, node: int, folder: Path) -> NodeFacts:
        """Read the facts of a node. Raises NodeError if it could not read them itself."""
        answer = read(folder, f"facts-{node}.json", Answer)
        if answer.facts:
            return answer.facts
        assert answer.failure
        code, params = answer.failure.code, answer.failure.params
        name = {"refused_by" if "detail" in params else "node": self.node_name(node)}
        raise NodeError(failure(code, **params, **name))

    def _checked(self, node: int) -> NodeSeen:
        """Compare a node with node 0. Raises NodeError if a common fact differs."""
        seen, first, name = self.nodes[node], self.nodes[0], self.node_name(node)
        if node and seen.name == first.name and self.config.launcher == "srun":
            detail = "perfkit does not run on the first node of the allocation"
            raise NodeError(failure("nodes_differ", refused_by=name, detail=detail))
        differs = {k: v for k, v in seen.facts.items() if v != first.facts.get(k)}
        for fact in (*COMMON, *FRAMEWORKS[self.config.framework].facts):
            if fact in differs:
                params = {"here": first.facts.get(fact), "first_node": self.node_name(0)}
                params |= {"there": differs[fact], "node": name}
                raise NodeError(failure("nodes_differ", fact=fact, **params))
        if seen.gpus < self.config.gpus:
            params = {"here": self.config.gpus, "there": seen.gpus, "node": name}
            raise NodeError(failure("nodes_differ", parameter="gpus", **params))
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
            where = {"port": port, "address": address}
            reason = error.strerror or str(error)
            raise NodeError(failure("port_taken", **where, detail=reason)) from error

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


def remove_abandoned(folder: Path) -> None:
    """Remove the shared folders of killed drivers."""
    for abandoned in folder.glob(f"{PREFIX}*"):
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
        self.end()
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
            here = self.local.wait(min(left, POLL_SECONDS))
            awaited = self._awaited()
            failed = any(info.status for info in self.ended.values())
            if failed or self.lost or (here and not awaited):
                return True
            if here and self.local.process.returncode:
                return True
            if here:
                time.sleep(min(max(0.0, left), POLL_SECONDS))
        return False

    def end_warmup(self) -> None:
        self.local.end_warmup()

    def end(self, *, dump_stacks: bool = False) -> None:
        if self.deadline:
            return
        self.deadline = time.monotonic() + ENDING_SECONDS
        if self._awaited():
            write(self.folder, END, End(dump_stacks=dump_stacks))
        self.local.end(dump_stacks=dump_stacks)
        while self._awaited() and time.monotonic() < self.deadline:
            time.sleep(POLL_SECONDS)
        self.lost = sorted({*self.lost, *self._awaited()})

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
        """The failure of a node that is lost, or whose own disk is full."""
        if self.lost:
            names = self.launcher.names(self.lost)
            return self.programs.failure(self.lost, names, running=True)
        for node, ended in nodes.items():
            if is_full(ended.free_bytes):
                name = self.launcher.node_name(node)
                return failure("disk_full", refused_by=name, scratch_bytes=ended.free_bytes)
        return None
