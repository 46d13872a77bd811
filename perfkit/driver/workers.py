"""What a repeat needs of its workers, wherever they are, and the workers of one node: started,
watched, and all ended."""

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
from typing import NamedTuple, Self

import psutil

from perfkit.config import Config, Protocol, portable
from perfkit.frameworks import FRAMEWORKS
from perfkit.frameworks.base import NodeRank, visible_variable
from perfkit.results.schema import Failure, NodeSeen
from perfkit.results.store import rank_file, steady_file
from perfkit.system.environment import cpu_vendor
from perfkit.system.scratch import Scratch
from perfkit.system.software import search_path

WORKER, SUPERVISOR = "perfkit.worker.rank", "perfkit.driver.supervisor"
"""The modules that a rank's process, and the one above all of a node, run."""
LOG = "supervisor.log"
"""In the scratch folder: what a supervisor and its command print."""
STACKS_SECONDS = 1.0
ENDING_SECONDS = 12.0
LOG_BYTES = 512 * 1024
MOST_DALI_THREADS = 10
MEMORY_EVENTS = {
    "": "sys/fs/cgroup{}/memory.events.local",
    "memory": "sys/fs/cgroup/memory{}/memory.oom_control",
}
"""Where a control group's kills for want of memory are counted, by the controllers that a line
of /proc/self/cgroup has: none in version 2. A container has its own group at the root."""
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
    def end_warmup(self) -> None:
        """Tell the workers that their steps are steady."""

    @abstractmethod
    def end(self, *, dump_stacks: bool = False) -> None:
        """Kill what is left; before, every worker may have to write to its log where it is."""

    @abstractmethod
    def exit_info(self) -> ExitInfo:
        """How the workers exited, after `end`."""


class Launcher:
    """Starts the workers of each repeat, on this machine alone; a context manager."""

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

    def start(self, _repeat: int, raw_folder: Path, job: str) -> WorkerGroup:
        """Start the workers of a repeat, whose raw events are to come into `raw_folder`."""
        return LocalWorkers(self.config, self.protocol, raw_folder, job)


def cpu_settings(config: Config, vendor: str, cores: int) -> dict[str, str]:
    """The variables that make the framework fast on a CPU."""
    if config.device != "cpu" or not config.cpu_tuning:
        return {}
    threads = max(1, cores // config.devices)
    return FRAMEWORKS[config.framework].cpu_settings(vendor, threads)


def with_dali_settings(config: Config, cores: int) -> Config:
    """The configuration with DALI's threads and prefetch chosen, where they are 0, by the
    node's `cores`: on a DGX A100 what NVIDIA's DeepLearningExamples take there, and where a GPU
    has fewer cores, all but the one of the training itself."""
    threads = max(2, min(MOST_DALI_THREADS, cores // config.devices - 1))
    chosen = {
        "dali_threads": config.dali_threads or threads,
        "dali_prefetch": config.dali_prefetch or (4 if threads == MOST_DALI_THREADS else 2),
    }
    return config.model_copy(update=chosen)


def worker_environment(config: Config, place: NodeRank) -> dict[str, str]:
    """This process's environment with what the workers need in it."""
    settings = cpu_settings(config, cpu_vendor(), len(os.sched_getaffinity(0)))
    if config.accelerated:
        # The launcher looks labels up in this list, and does not strip blanks from it.
        labels = FRAMEWORKS[config.framework].visible_devices(config.device, config.interpreter)
        settings[visible_variable(config.device)] = ",".join(labels)
    if config.device == "gpu":
        # NVML's order, by which the labels were chosen; CUDA's own has the fastest GPU first.
        settings["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        if not config.tf32:
            # Paddle and the libraries below each framework use TF32 unless told not to.
            settings["NVIDIA_TF32_OVERRIDE"] = "0"
    if place.interface:
        # Else gloo takes the address that the host's name resolves to, often the loopback.
        for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
            settings[name] = os.environ.get(name, place.interface)
    settings |= search_path(config.interpreter)
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


def start_supervised(
    command: list[str], scratch: Path, environment: dict[str, str], grace_seconds: float = 0.0
) -> subprocess.Popen[bytes]:
    """Run `command` under a supervisor, which leaves nothing of it once `close` is called or
    this process ends; both print into LOG of `scratch`."""
    supervisor = [sys.executable, "-m", SUPERVISOR, str(scratch), str(grace_seconds)]
    with (scratch / LOG).open("wb") as log:
        return subprocess.Popen(
            [*supervisor, *command],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )


def close(supervisor: subprocess.Popen[bytes], grace_seconds: float = 0.0) -> None:
    """End what a supervisor watches, and wait for it: not for ever, should it be stuck."""
    assert supervisor.stdin
    supervisor.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        supervisor.wait(grace_seconds + ENDING_SECONDS)


class LocalWorkers(WorkerGroup):
    """The workers of one node; none outlives the `with` block, or the driver.

    Ranks write their raw events into `raw_folder`. The launcher's log folder is a scratch
    folder, of which `exit_info` takes the workers' logs alone.
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
        self.pids: dict[int, int] = {}
        self.killed_before = killed_for_memory()
        self.opened = Scratch()
        self.scratch = self.opened.folder
        work = {
            "task": task,
            "config": with_dali_settings(config, len(os.sched_getaffinity(0))).model_dump(),
            "protocol": protocol.model_dump(),
            "raw_folder": str(raw_folder.resolve()),
        }
        job_file = self.scratch / "job.json"
        job_file.write_text(json.dumps(work))
        worker = [config.interpreter, "-m", WORKER, str(job_file)]
        command = launcher_command(config, self.place, self.scratch, job, worker)
        environment = worker_environment(config, self.place)
        self.process = start_supervised(command, self.scratch, environment)

    def __exit__(self, *_: object) -> None:
        self.end()
        # Where the warm-up came to a limit just before, no rank has taken it.
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
        """Note which ranks' processes have exited by themselves."""
        assert self.process.stdin
        if self.process.stdin.closed:
            return
        for rank in self.ranks:
            raw = rank_file(self.raw_folder, rank)
            if rank not in self.pids and raw.exists():
                first, ended, _rest = raw.read_bytes().partition(b"\n")
                if ended:
                    self.pids[rank] = json.loads(first)["pid"]
        for rank in sorted(self.pids.keys() - self.exited_at.keys()):
            if _has_exited(self.pids[rank]):
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
        files = {self.place.log_name: [self.scratch / LOG]}
        for index, rank in enumerate(self.ranks if self.log_pattern else ()):
            pattern = self.log_pattern.format(index=index)
            files[f"rank{rank}"] = sorted(self.scratch.glob(pattern))
        logs = {name: portable("".join(map(shortened, f))) for name, f in files.items() if f}
        return ExitInfo(
            status=self.process.returncode,
            exited_at=self.exited_at,
            killed_for_memory=killed_for_memory() > self.killed_before,
            free_bytes=shutil.disk_usage(self.raw_folder).free,
            logs=logs,
        )


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


def killed_for_memory(root: Path = Path("/")) -> int:
    """How many processes of this control group, which the workers are in too, the kernel has
    killed for want of memory; 0 where it does not count them by group."""
    with contextlib.suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _hierarchy, controllers, group = line.split(":", 2)
            for place in (group, "") if controllers in MEMORY_EVENTS else ():
                file = root / MEMORY_EVENTS[controllers].format(place)
                if file.exists():
                    events = dict(map(str.split, file.read_text().splitlines()))
                    return int(events.get("oom_kill", 0))
    return 0
