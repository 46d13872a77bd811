"""Drivers that measure on two nodes: over ssh between namespaces, or in a Slurm job."""

import json
import os
import shlex
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
from clusters import Namespaces, Slurm, Ssh, slurm_cluster, ssh_between, two_namespaces

from perfkit.measuring.paths import ROOT
from perfkit.measuring.results.schema import Result
from perfkit.measuring.results.store import read_result

NODE_PROGRAM = "perfkit.measuring.driver.node"
"""The module that the launcher starts on every node but the first."""
SUPERVISOR = "perfkit.measuring.driver.supervisor"
# Python keeps ignoring SIGINT if its parent did, as for a background job.
DRIVER = """
import json, signal, sys, perfkit
signal.signal(signal.SIGINT, signal.default_int_handler)
plan = perfkit.plan(sys.argv[2], json.loads(sys.argv[1]))
failure = perfkit.measure(plan.config, plan.protocol).result.failure
print(failure.line() if failure else "complete", flush=True)
"""
"""Measures the request in its first argument, as JSON, of the model in its second one, and
prints its failure or `complete`."""
FAKE_TRAINER = f"""
import sys
is_driver = sys.orig_argv[1:3] == ["-c", {DRIVER!r}]
if is_driver or sys.orig_argv[1:4] == ["-P", "-m", "{NODE_PROGRAM}"]:
    sys.path.append({str(Path(__file__).parent)!r})
    import fake_trainer
    from perfkit.measuring.driver import workers

    train = workers.launcher_command

    def command(config, place, log_dir, job, words):
        seconds = {{first}} if job.endswith("-1") else {{later}}
        start = fake_trainer.launcher_command(seconds) if seconds else train
        return start(config, place, log_dir, job, words)

    workers.launcher_command = command
"""
SMALL = {
    "device": "cpu",
    "batch_size": 2,
    "image_size": 32,
    "input": "synthetic",
    "warmup_steps": 1,
    "measured_steps": 2,
    "measured_seconds": 0,
    "repeats": 1,
    "timeout": 120,
}

SMALL_SCRIPT = {
    "device": "cpu",
    "warmup_steps": 2,
    "measured_steps": 3,
    "measured_seconds": 0,
    "repeats": 1,
    "timeout": 120,
}


def fake_training(first: float, later: float | None) -> str:
    """Return code to plant that makes the first repeat take so many seconds instead of
    training, and the later repeats; None: they train."""
    return FAKE_TRAINER.format(first=first, later=later)


class Driver(ABC):
    """A driver in a process of its own, which prints into the file `printed`."""

    printed: Path

    @property
    @abstractmethod
    def process(self) -> psutil.Process:
        """The driver's process."""

    @abstractmethod
    def status(self) -> int | None:
        """Return the exit status; None if the driver still runs."""

    def wait(self, seconds: float = 240) -> str:
        """Wait until the driver ends and return what it printed."""
        deadline = time.monotonic() + seconds
        while self.status() is None:
            assert time.monotonic() < deadline, f"the driver did not end within {seconds} s"
            time.sleep(0.05)
        return self.printed.read_text()


class Nodes(ABC):
    """Two nodes and the folder `outputs`, which both see.

    Each has a folder for scratch files, and each Python process on them first runs the planted
    code.
    """

    place: dict[str, Any]
    """The parameters of a request that choose these nodes."""
    names: tuple[str, str]
    """The nodes' names in results and failures."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.outputs = folder / "outputs"
        for name in ("outputs", "planted", "scratch0", "scratch1"):
            (folder / name).mkdir(exist_ok=True)

    @abstractmethod
    def start_program(self, words: list[str], **variables: str) -> Driver:
        """Start a program on the first node, with these environment variables."""

    @abstractmethod
    def processes(self, node: int | None = None) -> list[psutil.Process]:
        """Return the live processes of drivers and their workers on a node, or on both."""

    def request(self, **changes: Any) -> dict[str, Any]:
        return SMALL | self.place | {"outputs_dir": str(self.outputs)} | changes

    def start(
        self, request: dict[str, Any], model: str = "resnet50", **variables: str
    ) -> Driver:
        """Start a driver that measures this request."""
        words = [sys.executable, "-c", DRIVER, json.dumps(request), model]
        return self.start_program(words, **variables)

    def plant(self, code: str) -> None:
        (self.folder / "planted" / "sitecustomize.py").write_text(code)

    def measure(self, **changes: Any) -> Result:
        """Measure to the end and return the stored result."""
        return self.result_of(self.start(self.request(**changes)))

    def measure_script(self, script: Path, **changes: Any) -> Result:
        """Measure a script to the end and return the stored result."""
        request = SMALL_SCRIPT | self.place | changes
        request |= {"script": str(script), "outputs_dir": str(self.outputs)}
        return self.result_of(self.start(request, "script"))

    def result_of(self, driver: Driver) -> Result:
        """Wait for the driver's end and return the stored result."""
        output = driver.wait()
        assert driver.status() == 0, output
        return self.result()

    def result(self) -> Result:
        (path,) = self.outputs.glob("*/result.json")
        return read_result(path)

    def in_second_repeat(self) -> bool:
        """Whether the first repeat is stored and each node, in its scratch folder, has a raw
        file with a step of the second."""
        if not [*self.outputs.glob("*/result.json")] or not self.result().repeats:
            return False
        raw_files = [*self.folder.glob("scratch*/**/rank*.jsonl")]
        return len([file for file in raw_files if '"step"' in file.read_text()]) == 2

    def running(self, module: str, node: int) -> list[psutil.Process]:
        """Return the processes on a node that `python -m module` started."""
        found = []
        for process in self.processes(node):
            with suppress(psutil.Error):
                if process.cmdline()[1:4] == ["-P", "-m", module]:
                    found.append(process)
        return found

    def node_program(self) -> psutil.Process:
        """Return the process of the second node's NODE_PROGRAM."""
        return self.running(NODE_PROGRAM, 1)[0]

    def workers_supervisor(self) -> psutil.Process:
        """Return the supervisor of the second node's workers, below its node program."""
        return self.running(SUPERVISOR, 1)[0]

    def left(self, node: int | None = None) -> list[str]:
        """Return what remains on a node, or on both: command lines and scratch folders.

        PyTorch's cache of compiled code is not counted: it makes and keeps its folder there.
        """
        commands = []
        for process in self.processes(node):
            with suppress(psutil.Error):
                commands.append(shlex.join(process.cmdline()))
        scratch = self.folder.glob(f"scratch{'*' if node is None else node}/*")
        kept = (path for path in scratch if not path.name.startswith("torchinductor_"))
        return [*commands, *map(str, kept)]

    def assert_nothing_left(self, node: int | None = None, seconds: float = 20) -> None:
        """Wait until nothing remains on a node, or on both, and fail with what does."""
        deadline = time.monotonic() + seconds
        while (left := self.left(node)) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert left == [], left


class ChildDriver(Driver):
    """A driver that is a child of this process."""

    def __init__(self, command: list[str], environment: dict[str, str], printed: Path) -> None:
        self.printed = printed
        with printed.open("w") as output:
            self.child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=os.environ | environment,
            )

    @property
    def process(self) -> psutil.Process:
        return psutil.Process(self.child.pid)

    def status(self) -> int | None:
        return self.child.poll()

    def close(self) -> None:
        """Kill the driver if it still runs."""
        self.child.kill()
        self.child.wait()


class NodesOverSsh(Nodes):
    """Two network namespaces, with an sshd on each."""

    def __init__(self, folder: Path, namespaces: Namespaces, ssh: Ssh) -> None:
        super().__init__(folder)
        self.namespaces = namespaces
        self.ssh = ssh
        first, second = [node.address for node in namespaces.nodes]
        self.place = {"nodes": 2, "launcher": "ssh", "hosts": f"{first},{second}"}
        self.names = (f"node 0 ({first})", f"node 1 ({second})")
        self.drivers: list[ChildDriver] = []

    def start_program(self, words: list[str], **variables: str) -> Driver:
        environment = _variables(self.folder, 0) | self.ssh.environment | variables
        command = self.namespaces.nodes[0].command(words)
        driver = ChildDriver(command, environment, self.folder / "printed")
        self.drivers.append(driver)
        return driver

    def processes(self, node: int | None = None) -> list[psutil.Process]:
        found = []
        for number, namespace in enumerate(self.namespaces.nodes):
            for process in namespace.processes() if node in (None, number) else ():
                with suppress(psutil.Error):
                    ended = process.status() == psutil.STATUS_ZOMBIE
                    if not ended and process.name() != "sshd":
                        found.append(process)
        return found


@contextmanager
def nodes_over_ssh(folder: Path, prepare: str = "", **remote: str) -> Iterator[NodesOverSsh]:
    """Yield two nodes whose files are in `folder`. The shell command `prepare` may mount other
    files on the second node; `remote` are environment variables there."""
    variables = _variables(folder, 1) | remote
    (folder / "outputs").mkdir(exist_ok=True)
    (folder / "scratch1").mkdir(exist_ok=True)
    with (
        two_namespaces() as namespaces,
        ssh_between(namespaces, prepare, variables) as ssh,
    ):
        nodes = NodesOverSsh(folder, namespaces, ssh)
        try:
            yield nodes
        finally:
            for driver in nodes.drivers:
                driver.close()


class BatchDriver(Driver):
    """A driver in a Slurm job, whose files are in `folder`."""

    def __init__(self, nodes: "NodesInSlurm") -> None:
        self.nodes = nodes
        self.printed = nodes.folder / "printed"
        self.status_file = nodes.folder / "status"
        self.status_file.unlink(missing_ok=True)

    @property
    def process(self) -> psutil.Process:
        for process in self.nodes.processes(0):
            with suppress(psutil.Error):
                if process.cmdline()[1:3] == ["-c", DRIVER]:
                    return process
        raise LookupError("the driver does not run")

    def status(self) -> int | None:
        # sbatch --wait polls only twice a minute.
        written = self.status_file.read_text() if self.status_file.exists() else ""
        return int(written) if written else None


class NodesInSlurm(Nodes):
    """The first two of the nodes that a Slurm job has."""

    def __init__(self, folder: Path, cluster: Slurm, options: list[str]) -> None:
        super().__init__(folder)
        self.place = {"nodes": 2, "launcher": "srun"}
        self.names = ("node 0 (node1)", "node 1 (node2)")
        self.cluster = cluster
        self.options = options

    def start_program(self, words: list[str], **variables: str) -> Driver:
        driver = BatchDriver(self)
        script = self.folder / "job.sh"
        script.write_text(f"#!/bin/bash\n{shlex.join(words)}\necho $? > {driver.status_file}\n")
        options = ["--exclusive", "--no-requeue", "--output", str(driver.printed)]
        environment = self.cluster.environment | _variables(self.folder, 0) | variables
        subprocess.run(
            ["sbatch", *options, *self.options, str(script)],
            env=os.environ | environment,
            stdout=subprocess.DEVNULL,
            check=True,
        )
        return driver

    def processes(self, node: int | None = None) -> list[psutil.Process]:
        return self.cluster.job_processes(None if node is None else f"node{node + 1}")


@contextmanager
def nodes_in_slurm(
    folder: Path, nodes: int = 4, gpus: int = 0, options: tuple[str, ...] = ()
) -> Iterator[NodesInSlurm]:
    """Yield two nodes of jobs with all nodes of a cluster and these options of sbatch."""
    with slurm_cluster(nodes, gpus) as cluster:
        yield NodesInSlurm(folder, cluster, ["--nodes", str(nodes), *options])


def _variables(folder: Path, node: int) -> dict[str, str]:
    """Return the environment variables for scratch files and planted code."""
    return {"TMPDIR": f"{folder}/scratch{node}", "PYTHONPATH": f"{folder}/planted:{ROOT}"}
