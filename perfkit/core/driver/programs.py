"""Starts node programs (node.py) on the other nodes of a measurement, by ssh or srun.

The driver holds the standard input of ssh or srun open. When the driver ends, even by kill -9,
or ssh or srun does, the supervisor on each node sees its own standard input close and ends
everything there. A node that a broken link has cut off ends after its time limit.
"""

import contextlib
import os
import re
import shlex
import subprocess
import time
from pathlib import Path
from typing import NamedTuple, Self

from perfkit.core.config import RunConfig
from perfkit.core.driver.logs import last_lines, shortened
from perfkit.core.driver.node_files import ExitStatus, nodes_with
from perfkit.core.driver.supervised import ENDING_SECONDS as WORKERS_ENDING_SECONDS
from perfkit.core.driver.supervised import PYTHON, SUPERVISOR
from perfkit.core.driver.workers import STACKS_SECONDS
from perfkit.core.results.failures import Failure
from perfkit.core.system.environment import LIBRARY_VARIABLES, is_setting
from perfkit.core.system.scratch import Scratch
from perfkit.timing.failure import portable

NODE = "perfkit.core.driver.node"
SRUN = "srun --ntasks-per-node 1 --overlap --cpu-bind none --export ALL"
"""Without CPU binding, since a node's single task starts all of its workers; with --overlap,
since perfkit may run in a step of the same allocation."""
ALLOCATED_GPUS = ("SLURM_JOB_GPUS", "SLURM_STEP_GPUS", "SLURM_GPUS_ON_NODE")
"""Variables that show that a Slurm allocation has GPUs, which a step gets only if it asks."""
OF_ALLOCATION = (
    *("SLURM_GPUS", "SLURM_GPUS_PER_NODE", "SLURM_GPUS_PER_SOCKET", "SLURM_GPUS_PER_TASK"),
    *("SLURM_CPUS_PER_TASK", "SRUN_CPUS_PER_TASK", "SLURM_TRES_PER_TASK", "SLURM_EXACT"),
)
"""Variables with options of the allocation, which srun would also apply to the step: it would
ask for other GPUs than `--gres`, or get the cores of one rank instead of all."""
SSH = (
    "ssh -T -o BatchMode=yes -o ConnectTimeout=30 -o ControlPath=none"
    " -o ServerAliveInterval=5 -o ServerAliveCountMax=3"
)
"""ssh without a terminal, without questions, and on a connection of its own; it ends 15 to 20 s
after the link is cut."""
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


class StartCommand(NamedTuple):
    """A command that starts node programs, and the nodes on which it does."""

    nodes: list[int]
    command: list[str]


class NodePrograms:
    """The node programs of one start; none outlives the `with` block."""

    def __init__(self, config: RunConfig, task: str, folder: Path, names: list[str]) -> None:
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
                self.programs.append(Program(nodes, start_program(command, log), log))
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
        exited: set[int] = set()
        for program in self.programs:
            if program.process.poll() is not None:
                exited |= {*program.nodes}
        for node in exited:
            self.exited_at.setdefault(node, now)
        absent = {*range(1, self.config.nodes)} - nodes_with(kind, self.folder)
        lost = {node for node in absent & exited if self._is_overdue(node, now)}
        return sorted(absent - lost), sorted(lost)

    def _is_overdue(self, node: int, now: float) -> bool:
        """Return whether the file of a node that has exited will not appear any more."""
        if self._program(node).process.returncode:
            return True
        return now - self.exited_at[node] > APPEARING_SECONDS

    def _program(self, node: int) -> Program:
        return next(program for program in self.programs if node in program.nodes)

    def failure(self, nodes: list[int], names: list[str], *, running: bool) -> Failure:
        """Return why these nodes, called `names`, have not written their file. `running`:
        whether they had workers, whose raw lines are then lost."""
        program = self._program(nodes[0])
        status = program.process.poll()
        log = last_lines(portable(shortened(program.log)))
        last_line = log.rpartition("\n")[2]
        node = ", ".join(names)
        if status in (0, ExitStatus.NOT_SHARED):
            folder = portable(str(self.folder.parent.parent))
            reason = (
                f"{node} did not find {folder}: outputs_dir must be a folder that all nodes "
                "share"
            )
            return Failure(code="not_shared", reason=reason, node=node, log=log)
        if status == ExitStatus.IO_ERROR:
            return Failure(code="io_error", reason=f"{node}: {last_line}", node=node, log=log)
        reason = f"{node}: {self.config.launcher} ended with status {status}"
        if status is None:
            reason = f"{node}: no answer within {ENDING_SECONDS:.0f} s"
        if running:
            reason += "; the raw steps there are lost"
        if last_line:
            reason += f"; it said: {last_line}"
        return Failure(code="node_lost", reason=reason, node=node, log=log)

    @property
    def log(self) -> str:
        """Return all that the processes have printed."""
        return "".join(portable(shortened(program.log)) for program in self.programs)


def start_program(command: list[str], log: Path) -> subprocess.Popen[bytes]:
    """Start ssh or srun, whose standard input this process holds open."""
    environment = dict(os.environ)
    for name in OF_ALLOCATION:
        environment.pop(name, None)
    with log.open("wb") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            # Ctrl-C reaches only the driver, which ends the nodes in its own way.
            start_new_session=True,
        )


def start_commands(
    config: RunConfig, task: str, folder: Path, names: list[str]
) -> list[StartCommand]:
    """Return the commands that run the node program on all nodes but the first."""
    others = [*range(1, config.nodes)]
    limit = config.timeout + STARTING_SECONDS
    supervisor = [*PYTHON, "-m", SUPERVISOR, "-", str(limit)]
    node = [*supervisor, *PYTHON, "-m", NODE, task, str(folder)]
    if config.launcher == "srun":
        return [StartCommand(others, [*_srun(config, names), *node])]
    commands = []
    for number in others:
        ssh = ssh_command(config.host_list[number], [*node, str(number)])
        commands.append(StartCommand([number], ssh))
    return commands


def ssh_command(host: str, command: list[str]) -> list[str]:
    """Return the command that runs `command` on a host, with this process's settings."""
    remote = shlex.join(["env", *exported_variables(), *command])
    return [*SSH.split(), host, "--", remote]


def exported_variables() -> list[str]:
    """Return `NAME=VALUE` of the variables that ssh passes on: neither secrets, which both
    machines' process lists would show, nor names of this machine's GPUs."""
    exported = []
    for name, value in sorted(os.environ.items()):
        if EXPORTED.match(name) and is_setting(name, value):
            exported.append(f"{name}={value}")
    return exported


def _srun(config: RunConfig, names: list[str]) -> list[str]:
    """Return the command of srun on all nodes of the measurement but the first; on exactly
    these machines, once their names are known."""
    count = str(config.nodes - 1)
    where = ["--nodelist", ",".join(names[1:])] if names else ["--relative", "1"]
    command = [*SRUN.split(), "--nodes", count, "--ntasks", count, *where]
    if config.device == "gpu" and any(name in os.environ for name in ALLOCATED_GPUS):
        command += ["--gres", f"gpu:{config.gpus}"]
    return command
