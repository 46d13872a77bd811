"""The interface to the workers of a repeat on any number of nodes, and the workers of one."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import psutil
from pydantic import BaseModel, ConfigDict

from perfkit.core.config import Config, Protocol
from perfkit.core.frameworks import FRAMEWORKS
from perfkit.core.frameworks.facts import NodeRank, visible_variable
from perfkit.core.paths import portable
from perfkit.core.results.failures import Failure
from perfkit.core.results.schema import NodeSeen
from perfkit.core.results.store import rank_file, steady_file
from perfkit.core.system.environment import cpu_vendor, usable_cores
from perfkit.core.system.scratch import Scratch
from perfkit.core.system.software import search_path

WORKER, SUPERVISOR = "perfkit.core.worker.rank", "perfkit.core.driver.supervisor"
"""The modules of a rank's process and of the supervisor above the ranks of a node."""
LOG = "supervisor.log"
"""The file in the scratch folder with the output of a supervisor and its command."""
STACKS_SECONDS = 1.0
ENDING_SECONDS = 12.0
LOG_BYTES = 512 * 1024
MOST_DALI_THREADS = 10
MEMORY_EVENTS = {
    "": "sys/fs/cgroup{}/memory.events.local",
    "memory": "sys/fs/cgroup/memory{}/memory.oom_control",
}
"""Files with a control group's count of out-of-memory kills, by the controllers in a line of
/proc/self/cgroup (none in version 2). A container has its own group at the root."""
WATCH_SECONDS = 0.1
"""Interval of checks, long enough not to disturb, short enough to see which exited first."""
SAME_SECONDS = 1.0
"""The order of exits seen within this time is unknown."""


class ExitInfo(BaseModel):
    """How the workers of a repeat exited, on one node or on all nodes together."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True
    )

    status: int | None
    """exit status of the framework's launcher; with several nodes, the first that is not 0"""
    exited_first: list[int] = []
    """ranks that were the first of their node to exit by themselves, within SAME_SECONDS"""
    idle_seconds: dict[int, float] = {}
    """by rank, the seconds between its last event and the end"""
    killed_for_memory: bool
    """whether the kernel killed a process of the workers' control group for lack of memory"""
    free_bytes: int
    """free space where the raw events are written"""
    logs: dict[str, str]
    """text by name, without home and checkout paths"""
    error: Failure | None = None
    """the failure outside the workers that ended the repeat, if any"""


class WorkerGroup(ABC):
    """The workers of one repeat, on one node or several; none outlives the `with` block."""

    raw_folder: Path
    """Folder in which the ranks of this machine write their raw events."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @abstractmethod
    def wait(self, seconds: float) -> bool:
        """Wait up to `seconds`. Return whether all workers have exited or can't continue."""

    @abstractmethod
    def end_warmup(self) -> None:
        """Tell the workers that their steps are steady."""

    @abstractmethod
    def end(self, *, dump_stacks: bool = False) -> None:
        """Kill the remaining workers; with `dump_stacks`, they first log their stacks."""

    @abstractmethod
    def exit_info(self) -> ExitInfo:
        """How the workers exited; only valid after `end`."""


class Launcher:
    """Starts the workers of each repeat on this machine; a context manager."""

    def __init__(self, config: Config, protocol: Protocol) -> None:
        self.config = config
        self.protocol = protocol

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def wait_for_nodes(self, _show_status: Callable[[str], None]) -> list[NodeSeen]:
        """Wait for all nodes and return them; none for a single node. Raises NodeError."""
        return []

    def node_name(self, _node: int) -> str | None:
        """Return a node's display name, such as "node 1 (host)"; None for a single node."""
        return None

    def start(self, _repeat: int, raw_folder: Path, job: str) -> WorkerGroup:
        """Start the workers of a repeat, whose raw events are in `raw_folder` once `exit_info`
        has returned. Raises OSError and NodeError."""
        return LocalWorkers(self.config, self.protocol, raw_folder, job)


def cpu_settings(config: Config, vendor: str, cores: int) -> dict[str, str]:
    """Environment variables that tune the framework for a CPU."""
    if config.device != "cpu" or not config.cpu_tuning:
        return {}
    threads = max(1, cores // config.devices)
    return FRAMEWORKS[config.framework].cpu_settings(vendor, threads)


def with_dali_settings(config: Config, cores: int) -> Config:
    """Replace 0 in DALI's threads and prefetch: on a DGX A100 as in NVIDIA's
    DeepLearningExamples; with fewer cores per GPU, all cores but one for the training."""
    threads = max(2, min(MOST_DALI_THREADS, cores // config.devices - 1))
    chosen = {
        "dali_threads": config.dali_threads or threads,
        "dali_prefetch": config.dali_prefetch or (4 if threads == MOST_DALI_THREADS else 2),
    }
    return config.model_copy(update=chosen)


def worker_environment(config: Config, place: NodeRank) -> dict[str, str]:
    """This process's environment with the workers' variables."""
    settings = cpu_settings(config, cpu_vendor(), usable_cores())
    if config.accelerated:
        # The launcher matches labels against this list without stripping blanks.
        labels = FRAMEWORKS[config.framework].visible_devices(config.device, config.interpreter)
        settings[visible_variable(config.device)] = ",".join(labels)
    if config.device == "gpu":
        # The labels are in NVML's order; CUDA's default order has the fastest GPU first.
        settings["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        if not config.tf32:
            # Paddle and the libraries below each framework use TF32 by default.
            settings["NVIDIA_TF32_OVERRIDE"] = "0"
    if place.interface:
        # By default, gloo uses the address of the host's name, often the loopback.
        # For NCCL, a name without = is a prefix: eth1 also selects eth10.
        for library, sign in (("GLOO", ""), ("NCCL", "=")):
            name = f"{library}_SOCKET_IFNAME"
            settings[name] = os.environ.get(name, f"{sign}{place.interface}")
    settings |= search_path(config.interpreter)
    return os.environ | settings | {"PYTHONUNBUFFERED": "1"}


def launcher_command(
    config: Config, place: NodeRank, log_dir: Path, job: str, worker: list[str]
) -> list[str]:
    """The command that starts the workers of one node; `worker` is the command of each rank."""
    return FRAMEWORKS[config.framework].launch_command(config, place, log_dir, job, worker)


def find_supervisor(rank: int) -> psutil.Process | None:
    """Return the supervisor above the process `rank`. None if that is not a rank's process on
    this machine: in a separate container, its PID differs."""
    try:
        process = psutil.Process(rank)
        if WORKER not in process.cmdline():
            return None
        while SUPERVISOR not in process.cmdline():
            process = psutil.Process(process.ppid())
    except (OSError, ValueError, psutil.Error):
        return None
    return process


def start_supervised(
    command: list[str],
    scratch: Path,
    environment: dict[str, str],
    log: Path | None = None,
    **options: Any,
) -> subprocess.Popen[bytes]:
    """Run `command` under a supervisor, which ends all of its processes on `close` or when this
    process ends. Both write their output to `log`, by default LOG in `scratch`."""
    supervisor = [sys.executable, "-m", SUPERVISOR, str(scratch), "inf"]
    pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.STDOUT, "start_new_session": True}
    with (log or scratch / LOG).open("wb") as output:
        options |= pipes | {"env": environment, "stdout": output}
        return subprocess.Popen([*supervisor, *command], **options)


def close(supervisor: subprocess.Popen[bytes]) -> None:
    """Have a supervisor end its command, and wait for it for a limited time."""
    assert supervisor.stdin
    supervisor.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        supervisor.wait(ENDING_SECONDS)


class LocalWorkers(WorkerGroup):
    """The workers of one node; none outlives the `with` block, or the driver.

    Ranks write their raw events to `raw_folder`. The launcher's log folder is a scratch folder;
    `exit_info` returns only the workers' logs.
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
        self.place = place or NodeRank()
        self.log_pattern = FRAMEWORKS[config.framework].log_pattern
        self.ranks = self.place.ranks(config.devices)
        self.raw_folder = raw_folder
        self.exited_at: dict[int, float] = {}
        self.raw_bytes: dict[int, int] = {}
        self.moved_at = dict.fromkeys(self.ranks, time.monotonic())
        self.idle_seconds: dict[int, float] = {}
        self.pids: dict[int, int] = {}
        self.killed_before = killed_for_memory()
        work = {
            "task": task,
            "config": with_dali_settings(config, usable_cores()).model_dump(),
            "protocol": protocol.model_dump(),
            "raw_folder": str(raw_folder.resolve()),
        }
        environment = worker_environment(config, self.place)
        with contextlib.ExitStack() as opened:
            self.scratch = opened.enter_context(Scratch()).folder
            job_file = self.scratch / "job.json"
            job_file.write_text(json.dumps(work))
            worker = [config.interpreter, "-m", WORKER, str(job_file)]
            command = launcher_command(config, self.place, self.scratch, job, worker)
            self.process = start_supervised(command, self.scratch, environment)
            self.opened = opened.pop_all()

    def __exit__(self, *_: object) -> None:
        self.end()
        # If the warm-up had just reached a limit, no rank has removed the file.
        steady_file(self.raw_folder).unlink(missing_ok=True)
        self.opened.close()

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

    def end_warmup(self) -> None:
        steady_file(self.raw_folder).touch()

    def _watch(self) -> None:
        """Note which ranks write events, and which have exited by themselves."""
        assert self.process.stdin
        if self.process.stdin.closed:
            return
        for rank in self.ranks:
            raw = rank_file(self.raw_folder, rank)
            if not raw.exists():
                continue
            size = raw.stat().st_size
            if size != self.raw_bytes.get(rank):
                self.raw_bytes[rank] = size
                self.moved_at[rank] = time.monotonic()
            if rank not in self.pids:
                first, ended, _rest = raw.read_bytes().partition(b"\n")
                if ended:
                    self.pids[rank] = json.loads(first)["pid"]
        for rank in sorted(self.pids.keys() - self.exited_at.keys()):
            if _has_exited(self.pids[rank]):
                self.exited_at[rank] = time.monotonic()

    def end(self, *, dump_stacks: bool = False) -> None:
        self._watch()
        if not self.idle_seconds:
            now = time.monotonic()
            self.idle_seconds = {rank: now - at for rank, at in self.moved_at.items()}
        if dump_stacks:
            for rank in self.pids.keys() - self.exited_at.keys():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.pids[rank], signal.SIGUSR1)
            time.sleep(STACKS_SECONDS)
        close(self.process)

    def exit_info(self) -> ExitInfo:
        files = {self.place.log_name: [self.scratch / LOG]}
        for index, rank in enumerate(self.ranks if self.log_pattern else ()):
            pattern = self.log_pattern.format(index=index)
            files[f"rank{rank}"] = sorted(self.scratch.glob(pattern))
        logs = {name: portable("".join(map(shortened, f))) for name, f in files.items() if f}
        first_exit = min(self.exited_at.values(), default=0.0)
        first = [r for r, at in self.exited_at.items() if at - first_exit < SAME_SECONDS]
        return ExitInfo(
            status=self.process.returncode,
            exited_first=first,
            idle_seconds=self.idle_seconds,
            killed_for_memory=killed_for_memory() > self.killed_before,
            free_bytes=shutil.disk_usage(self.raw_folder).free,
            logs=logs,
        )


def shortened(log: Path) -> str:
    """The text of a log; for a long log, its beginning and its end."""
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


def killed_for_memory(root: Path = Path("/")) -> int:
    """Return how many processes of this control group, which the workers share, the kernel's
    out-of-memory killer has killed; 0 without a count by group."""
    with contextlib.suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _hierarchy, controllers, group = line.split(":", 2)
            for place in (group, "") if controllers in MEMORY_EVENTS else ():
                file = root / MEMORY_EVENTS[controllers].format(place)
                if file.exists():
                    events = dict(map(str.split, file.read_text().splitlines()))
                    return int(events.get("oom_kill", 0))
    return 0
