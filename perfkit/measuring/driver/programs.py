"""A node program (node.py), which the driver starts by ssh or srun for each repeat.

The driver holds the standard input of ssh or srun open, writes the start of the window
into it, and closes it to end the node's workers. When the driver ends, even by kill -9, or ssh
or srun does, it closes as well. A node that a broken link has cut off ends its workers after
their time limit.
"""

import contextlib
import os
import re
import shlex
import subprocess
import time
from pathlib import Path

from perfkit.measuring.config import Config
from perfkit.measuring.driver.exit_info import ExitInfo
from perfkit.measuring.driver.logs import last_lines, shortened
from perfkit.measuring.driver.supervised import ENDING_SECONDS as WORKERS_ENDING_SECONDS
from perfkit.measuring.driver.supervised import PYTHON
from perfkit.measuring.driver.workers import STACKS_SECONDS
from perfkit.measuring.results.failures import Failure
from perfkit.measuring.results.schema import NodeSeen
from perfkit.measuring.system.environment import LIBRARY_VARIABLES, is_setting
from perfkit.timing.failure import portable
from perfkit.timing.warmup import WindowStart

NODE = "perfkit.measuring.driver.node"
SRUN = "srun --nodes 1 --ntasks 1 --ntasks-per-node 1 --overlap --cpu-bind none --export ALL"
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
ENDING_SECONDS = STACKS_SECONDS + WORKERS_ENDING_SECONDS + 5.0
"""Exceeds the time in which a node ends its workers and moves their raw files."""


class NodeProgram:
    """The node program of a repeat on another node. Its process here is ssh or srun."""

    def __init__(
        self, config: Config, node: int, name: str, host: str, folder: Path, scratch: Path
    ) -> None:
        """Start it. `name`: of the node, for display. `folder`: the shared folder of the
        repeat. `scratch`: a folder for the log."""
        self.node = node
        self.name = name
        self.launcher = config.launcher
        self.folder = folder
        self.seen: NodeSeen | None = None
        self.ended: ExitInfo | None = None
        self.log_file = scratch / f"node{node}.log"
        environment = dict(os.environ)
        for variable in OF_ALLOCATION:
            environment.pop(variable, None)
        with self.log_file.open("wb") as output:
            self.process = subprocess.Popen(
                start_command(config, node, host, folder),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                bufsize=0,
                env=environment,
                # Ctrl-C reaches only the driver, which ends the nodes in its own way.
                start_new_session=True,
            )

    def look(self) -> None:
        """Read what the node has written. Raises OSError."""
        status = self.process.poll()
        if not self.seen:
            file = self.folder / f"started-{self.node}.json"
            if file in [*self.folder.iterdir()]:
                self.seen = NodeSeen.model_validate_json(file.read_bytes())
        if status == 0 and not self.ended:
            file = self.folder / f"ended-{self.node}.json"
            self.ended = ExitInfo.model_validate_json(file.read_bytes())

    @property
    def error(self) -> Failure | None:
        """The failure outside the workers that has ended the node, if any."""
        return None if self.process.returncode is None else self.exit_info().error

    def tell(self, start: WindowStart) -> None:
        """Tell the node where the window starts."""
        # If ssh or srun has ended, the node is lost.
        with contextlib.suppress(BrokenPipeError):
            assert self.process.stdin
            self.process.stdin.write(f"{start}\n".encode())

    def close(self) -> None:
        """Have the node end its workers."""
        assert self.process.stdin
        self.process.stdin.close()

    def wait(self, deadline: float) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(max(0.0, deadline - time.monotonic()))

    def kill(self) -> None:
        """Kill ssh or srun, at whose end the node ends its workers."""
        self.close()
        self.process.kill()
        self.process.wait()

    @property
    def log(self) -> str:
        return portable(shortened(self.log_file))

    def exit_info(self) -> ExitInfo:
        """Return how the node's workers exited; of a node that has not told it, why."""
        return self.ended or ExitInfo(error=self._lost())

    def _lost(self) -> Failure:
        status, log = self.process.poll(), last_lines(self.log)
        reason = f"{self.name}: {self.launcher} ended with status {status}"
        if status is None:
            reason = f"{self.name}: no answer within {ENDING_SECONDS:.0f} s"
        if self.seen:
            reason += "; the raw steps there are lost"
        # srun adds lines about the exit status.
        said = [line for line in log.splitlines() if not line.startswith("srun: ")]
        if log:
            reason += f"; it said: {(said or [log])[-1]}"
        return Failure(code="node_lost", reason=reason, node=self.name, log=log)


def start_command(config: Config, node: int, host: str, folder: Path) -> list[str]:
    """Return the command that runs the program of `node` on `host`."""
    program = [*PYTHON, "-m", NODE, str(folder), str(node)]
    if config.launcher == "ssh":
        remote = shlex.join(["env", *exported_variables(), *program])
        return [*SSH.split(), host, "--", remote]
    command = [*SRUN.split(), "--nodelist", host]
    if config.device == "gpu" and any(name in os.environ for name in ALLOCATED_GPUS):
        command += ["--gres", f"gpu:{config.gpus}"]
    return [*command, *program]


def exported_variables() -> list[str]:
    """Return `NAME=VALUE` of the variables that ssh passes on: neither secrets, which both
    machines' process lists would show, nor names of this machine's GPUs."""
    exported = []
    for name, value in sorted(os.environ.items()):
        if EXPORTED.match(name) and is_setting(name, value):
            exported.append(f"{name}={value}")
    return exported
