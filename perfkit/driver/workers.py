"""What a repeat needs of its workers, wherever they are, and the workers of one node: started,
watched, and all ended."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Self

import psutil

from perfkit.config import Config, Protocol, portable
from perfkit.frameworks import FRAMEWORKS
from perfkit.frameworks.base import NodeRank
from perfkit.results.schema import Failure, NodeSeen
from perfkit.results.store import rank_file
from perfkit.system.environment import cpu_vendor
from perfkit.system.gpus import visible_gpus

WORKER, SUPERVISOR = "perfkit.worker.rank", "perfkit.driver.supervisor"
"""The modules that a rank's process, and the one above all of a node, run."""
STACKS_SECONDS = 1.0
ENDING_SECONDS = 12.0
LOG_BYTES = 512 * 1024
WATCH_SECONDS = 0.1
"""Between two looks at the processes: seldom enough not to disturb them, often enough to see
which one of them ended first."""


class ExitInfo(NamedTuple):
    """How the workers of a repeat exited. `exited_at`: when each rank's process was first seen
    to have exited, seconds of this process's clock; `logs`: text by name, home and checkout
    paths taken out; `error`: what ended the repeat, if it was not the workers."""

    status: int | None
    exited_at: dict[int, float]
    killed_for_memory: bool
    free_bytes: int
    logs: dict[str, str]
    error: Failure | None = None


class WorkerGroup(ABC):
    """The workers of one repeat, on one node or several; none outlives the `with` block."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @abstractmethod
    def wait(self, seconds: float) -> bool:
        """Wait up to `seconds`; whether all workers have ended, or can't go on."""

    @abstractmethod
    def end(self, *, dump_stacks: bool = False) -> None:
        """Kill what is left; before, every worker may have to write to its log where it is."""

    @abstractmethod
    def exit_info(self) -> ExitInfo:
        """How the workers exited, after `end`."""


class Launcher(ABC):
    """Starts the workers of each repeat; a context manager."""

    result_json: str | None = None
    """The result so far, for nodes that store it too."""

    def __init__(self, config: Config, protocol: Protocol) -> None:
        self.config = config
        self.protocol = protocol

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def wait_for_nodes(self, _show_status: Callable[[str], None]) -> list[NodeSeen]:
        """The nodes, once all are there; of one node, none. Raises NodeError."""
        return []

    def node_name(self, _node: int) -> str | None:
        """How people call a node, such as "node 1 (host)"; None if there is only one."""
        return None

    @abstractmethod
    def start(self, repeat: int, raw_folder: Path, job: str) -> WorkerGroup:
        """Start the workers of a repeat, whose raw events are to come into `raw_folder`."""


class LocalLauncher(Launcher):
    """Starts workers on this machine alone."""

    def start(self, _repeat: int, raw_folder: Path, job: str) -> WorkerGroup:
        return LocalWorkers(self.config, self.protocol, raw_folder, job)


def cpu_settings(config: Config, vendor: str, cores: int) -> dict[str, str]:
    """The variables that make the framework fast on a CPU."""
    if config.device != "cpu" or not config.cpu_tuning:
        return {}
    threads = max(1, cores // config.devices)
    return FRAMEWORKS[config.framework].cpu_settings(vendor, threads)


def worker_environment(config: Config, place: NodeRank) -> dict[str, str]:
    """This process's environment with what the workers need in it."""
    settings = cpu_settings(config, cpu_vendor(), len(os.sched_getaffinity(0)))
    if config.device == "gpu":
        # The launcher looks labels up in this list, and does not strip blanks from it.
        settings["CUDA_VISIBLE_DEVICES"] = ",".join(visible_gpus())
        if not config.tf32:
            # Paddle and the libraries below each framework use TF32 unless told not to.
            settings["NVIDIA_TF32_OVERRIDE"] = "0"
    if place.interface:
        # Else gloo takes the address that the host's name resolves to, often the loopback.
        usual = {"GLOO_SOCKET_IFNAME": place.interface, "NCCL_SOCKET_IFNAME": place.interface}
        settings |= {name: os.environ.get(name, value) for name, value in usual.items()}
    return os.environ | settings | {"PYTHONUNBUFFERED": "1"}


def launcher_command(
    config: Config, place: NodeRank, log_dir: Path, job: str, worker: list[str]
) -> list[str]:
    """What starts the workers of one node; `worker` is the command of every rank."""
    return FRAMEWORKS[config.framework].launch_command(config, place, log_dir, job, worker)


def find_supervisor(rank: int) -> psutil.Process | None:
    """The supervisor above the process `rank`; None unless that is a rank's on this machine: in
    a container of its own, it has another number."""
    try:
        process = psutil.Process(rank)
        if WORKER not in process.cmdline():
            return None
        while SUPERVISOR not in process.cmdline():
            process = psutil.Process(process.ppid())
    except (OSError, ValueError, psutil.Error):
        return None
    return process


class LocalWorkers(WorkerGroup):
    """The workers of one node; none outlives the `with` block, or the driver.

    Ranks write their raw events into `raw_folder`. The launcher's log folder is a temporary
    one: besides the workers' logs it dumps the whole environment, which must not be published;
    `exit_info` takes the logs alone. If the driver is killed, the supervisor removes it.
    """

    def __init__(
        self,
        config: Config,
        protocol: Protocol,
        raw_folder: Path,
        job: str,
        place: NodeRank | None = None,
        task: str = "measure",
    ) -> None:
        self.config = config
        self.place = place or NodeRank()
        self.raw_folder = raw_folder
        self.exited_at: dict[int, float] = {}
        self.pids: dict[int, int] = {}
        self.killed_before = _killed_for_memory()
        self.scratch = Path(tempfile.mkdtemp(prefix="perfkit-"))
        self.supervisor_log = (self.scratch / "supervisor.log").open("wb")
        job_file = self.scratch / "job.json"
        work: dict[str, Any] = {"task": task, "config": config.model_dump()}
        work["protocol"] = protocol.model_dump()
        job_file.write_text(json.dumps(work | {"raw_folder": str(raw_folder.resolve())}))
        worker = [sys.executable, "-m", WORKER, str(job_file)]
        command = launcher_command(config, self.place, self.scratch, job, worker)
        supervisor = [sys.executable, "-m", SUPERVISOR]
        self.process = subprocess.Popen(
            [*supervisor, str(self.scratch), "0", *command],
            stdin=subprocess.PIPE,
            stdout=self.supervisor_log,
            stderr=subprocess.STDOUT,
            env=worker_environment(config, self.place),
            start_new_session=True,
        )

    @property
    def ranks(self) -> range:
        """The ranks of this node."""
        first = self.place.node * self.config.devices
        return range(first, first + self.config.devices)

    def __exit__(self, *_: object) -> None:
        self.end()
        self.supervisor_log.close()
        shutil.rmtree(self.scratch, ignore_errors=True)

    def wait(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while True:
            self._watch()
            left = deadline - time.monotonic()
            try:
                self.process.wait(max(0.0, min(left, WATCH_SECONDS)))
                return True
            except subprocess.TimeoutExpired:
                if left <= 0:
                    return False

    def _watch(self) -> None:
        """Note which ranks' processes have exited by themselves."""
        assert self.process.stdin
        if self.process.stdin.closed:
            return
        for rank in self.ranks:
            raw = rank_file(self.raw_folder, rank)
            if rank not in self.pids and raw.exists():
                first = raw.read_bytes().partition(b"\n")
                if first[1]:
                    self.pids[rank] = json.loads(first[0])["pid"]
            if (
                rank in self.pids
                and rank not in self.exited_at
                and _has_exited(self.pids[rank])
            ):
                self.exited_at[rank] = time.monotonic()

    def end(self, *, dump_stacks: bool = False) -> None:
        self._watch()
        if dump_stacks:
            for rank in self.pids.keys() - self.exited_at.keys():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.pids[rank], signal.SIGUSR1)
            time.sleep(STACKS_SECONDS)
        # That closes the pipe, which tells the supervisor to kill and wait.
        close(self.process)

    def exit_info(self) -> ExitInfo:
        return ExitInfo(
            status=self.process.returncode,
            exited_at=self.exited_at,
            killed_for_memory=_killed_for_memory() > self.killed_before,
            free_bytes=shutil.disk_usage(self.raw_folder).free,
            logs=self._logs(),
        )

    def _logs(self) -> dict[str, str]:
        launcher = "launcher" if self.place.nodes == 1 else f"launcher-node{self.place.node}"
        sources = {launcher: [self.scratch / "supervisor.log"]}
        if place := FRAMEWORKS[self.config.framework].log_pattern:
            for index, rank in enumerate(self.ranks):
                sources[f"rank{rank}"] = sorted(self.scratch.glob(place.format(index=index)))
        return {
            name: portable("".join(map(shortened, files)))
            for name, files in sources.items()
            if files
        }


def close(supervisor: subprocess.Popen[bytes], grace_seconds: float = 0.0) -> None:
    """End what a supervisor watches, and wait for it: not for ever, should it be stuck."""
    assert supervisor.stdin
    supervisor.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        supervisor.wait(grace_seconds + ENDING_SECONDS)


def shortened(log: Path) -> str:
    """The text of a log; of a long one, its beginning and its end."""
    with log.open("rb") as stream:
        text = stream.read(LOG_BYTES)
        size = log.stat().st_size
        if size > 2 * LOG_BYTES:
            text += f"\n[… {size - 2 * LOG_BYTES} bytes left out …]\n".encode()
            stream.seek(-LOG_BYTES, os.SEEK_END)
        text += stream.read(LOG_BYTES)
    return text.decode(errors="replace")


def _has_exited(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _killed_for_memory() -> int:
    """How many processes the kernel has killed for want of memory since it started."""
    for line in Path("/proc/vmstat").read_text().splitlines():
        if line.startswith("oom_kill "):
            return int(line.split()[1])
    return 0
