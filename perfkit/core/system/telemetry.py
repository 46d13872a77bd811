"""Samples of the machine during a repeat, taken outside the training processes.

A sample is a line of `repeats/<k>/telemetry.jsonl`: raw counters and sensors of the kernel and
the GPUs. `results.telemetry` derives the values of the window. Sampling starts no process and
never waits.

psutil provides CPU times. Clocks and temperatures are read here, since psutil reads every
core's clock, /proc/cpuinfo and every sensor, even of disks and network adapters, in each call,
and without cpufreq returns the nominal clock.
"""

import json
import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from io import FileIO
from pathlib import Path
from statistics import fmean
from typing import Any, Self, TypeVar

import psutil

from perfkit.core.config import Config
from perfkit.core.system import gpus
from perfkit.core.system.environment import UNAVAILABLE, MissingError, reason

CORES_SAMPLED = 8
"""Number of usable cores, evenly chosen, whose clock and throttling are sampled."""
CPU_SENSORS = ("coretemp", "k10temp", "zenpower", "cpu_thermal")
"""Drivers of CPU temperature sensors; the first input of each is the package."""
Readers = dict[str, Callable[[], Any]]
"""Device -> function that reads its value."""
T = TypeVar("T")

CPU_FIGURES: dict[str, tuple[str, str, Callable[[list[int]], float]]] = {
    "cpu_clock": (
        "clock_mhz",
        "devices/system/cpu/cpu{}/cpufreq/scaling_cur_freq",
        lambda kilohertz: fmean(kilohertz) / 1e3,
    ),
    "cpu_temperature": (
        "temperature_celsius",
        "class/hwmon/*/temp1_input",
        lambda millidegrees: max(millidegrees) / 1e3,
    ),
    "cpu_throttling": (
        "throttle_count",
        "devices/system/cpu/cpu{}/thermal_throttle/*_throttle_count",
        sum,
    ),
    "cpu_energy": (
        "energy_joules",
        "class/powercap/intel-rapl:*/energy_uj",
        lambda microjoules: sum(microjoules) / 1e6,
    ),
}
"""Readings of the CPU: field of a sample, files below /sys ({} is a core), and how the numbers
of a device's files are combined. Energy counters wrap around at `max_energy_range_uj`."""


def cpu_readers(sys: Path, cores: Sequence[int], name: str, file: str = "") -> Readers:
    """Readers for CPU_FIGURES, or for `file` in the same folders. Raises MissingError."""
    _, pattern, combine = CPU_FIGURES[name]
    files: dict[str, list[Path]] = {}
    for path in sorted({path for core in cores for path in sys.glob(pattern.format(core))}):
        if device := _device(path):
            files.setdefault(device, []).append(path.with_name(file or path.name))
    if not files:
        raise MissingError(f"no reading of the CPU in /sys/{pattern.format('*')}")
    return {device: partial(_combined, combine, paths) for device, paths in files.items()}


def _device(path: Path) -> str | None:
    """The device of a file: the CPU, a package or a package's memory. None for other sensors
    and other RAPL zones: a package includes its cores, and `psys` the packages."""
    label = path.with_name("name")
    if not label.exists():
        return "cpu"
    name = label.read_text().strip()
    if path.name == "temp1_input":
        return "cpu" if name in CPU_SENSORS else None
    if name == "dram":
        return f"dram-{path.parent.name.split(':')[1]}"
    return name if name.startswith("package") else None


def _combined(combine: Callable[[list[int]], float], paths: list[Path]) -> float:
    return combine([int(path.read_text()) for path in paths])


def core_seconds(sys: Path, cores: Sequence[int]) -> dict[str, float]:
    """CPU time of these cores since boot: `busy_seconds` of processes and the kernel, and
    `steal_seconds` that the hypervisor gave to other machines.

    Interrupt time is excluded: it belongs to no process, and the measurement's own network
    traffic causes some of it. Raises MissingError if a core has no times.
    """
    times = psutil.cpu_times(percpu=True)
    if len(times) > len(cores):
        # The list omits offline and hidden cores, so check that it is complete.
        online = (sys / "devices/system/cpu/online").read_text().strip()
        times = [times[core] for core in cores] if online == f"0-{len(times) - 1}" else []
    if len(times) < len(cores):
        raise MissingError("/proc/stat does not have every usable core")
    return {
        "busy_seconds": sum(core.user + core.nice + core.system for core in times),
        "steal_seconds": sum(core.steal for core in times),
    }


class ProcessTree:
    """A process that adopts orphans, and all of its descendants.

    The parent of every other process is read only once: a busy machine has thousands of them,
    and psutil's `children` reads all of them in each call.
    """

    def __init__(self, top: psutil.Process) -> None:
        self.top = top
        self.members = {top.pid: top}
        self.others: set[int] = set()

    def cpu_seconds(self) -> float:
        """CPU seconds so far, including exited processes, which their parents account for.
        Raises psutil.NoSuchProcess once the top process has exited."""
        present, new = {*psutil.pids()}, {}
        for pid in present - self.others - self.members.keys():
            with suppress(*UNAVAILABLE):
                process = psutil.Process(pid)
                new[pid] = (process.ppid(), process)
        while children := [pid for pid, (parent, _) in new.items() if parent in self.members]:
            self.members |= {pid: new.pop(pid)[1] for pid in children}
        self.others = (self.others & present) | new.keys()
        seconds = 0.0
        for pid, process in list(self.members.items()):
            with suppress(*UNAVAILABLE):
                if process.is_running():
                    user, system, children_user, children_system, _iowait = process.cpu_times()
                    seconds += user + system + children_user + children_system
                    continue
            if process is self.top:
                raise psutil.NoSuchProcess(pid)
            del self.members[pid]
        return seconds


class Telemetry:
    """Appends samples to `path`. After a failed write, sampling ends and the measurement
    continues; if the disk is full, its raw files fail, too."""

    def __init__(self, path: Path, config: Config, sys: Path = Path("/sys")) -> None:
        self.path, self.config, self.sys = path, config, sys
        self.cores = sorted(os.sched_getaffinity(0))
        self.core_seconds = partial(core_seconds, sys, self.cores)
        self.processes: ProcessTree | None = None
        self.missing: dict[str, str] = {}
        self.stream: FileIO | None = None

    def __enter__(self) -> Self:
        self.opened = ExitStack()
        with suppress(OSError):
            self.stream = self.opened.enter_context(self.path.open("xb", buffering=0))
            self.figures = self._figures()
            wraps = partial(cpu_readers, self.sys, [0], "cpu_energy", "max_energy_range_uj")
            begin = {
                "event": "begin",
                "device": self.config.device,
                "ranks": self.config.devices,
                "cores": len(self.cores),
                "energy_wraps_joules": self._try(lambda: _read_all(wraps())) or {},
                "missing": self.missing,
            }
            self._write(begin)
        return self

    def __exit__(self, *_: object) -> None:
        self.opened.close()

    def sample(self, top: psutil.Process | None) -> None:
        """Append a sample. `top` is the root of the measurement's processes, if known."""
        if not self.stream:
            return
        sample: dict[str, Any] = {"event": "sample", "at": time.monotonic()}
        sample |= self._try(self.core_seconds) or {}
        if top and not self.processes:
            self.processes = ProcessTree(top)
        if self.processes and (seconds := self._try(self.processes.cpu_seconds)) is not None:
            sample["process_seconds"] = seconds
        for field, readers in self.figures:
            for device, read in readers.items():
                if (value := self._try(read)) is not None:
                    sample.setdefault(field, {})[device] = value
        self._write(sample)

    def _write(self, event: dict[str, Any]) -> None:
        line, written = json.dumps(event).encode() + b"\n", 0
        with suppress(OSError):
            written = self.stream.write(line) if self.stream else 0
        if written != len(line):
            self.stream = None

    def _figures(self) -> list[tuple[str, Readers]]:
        """Fields and readers of the available readings; `missing` gets the others' reasons."""
        self._try(self.core_seconds, "cpu_time")
        cores = self.cores[:: -(-len(self.cores) // CORES_SAMPLED)]
        found = {
            name: (field, self._try(partial(cpu_readers, self.sys, cores, name), name) or {})
            for name, (field, *_) in CPU_FIGURES.items()
        }
        if self.config.device == "gpu":
            found |= self._try(self._gpu_figures, "gpus") or {}
        elif self.config.accelerated:
            self.missing["accelerators"] = f"no telemetry of {self.config.device} devices"
        return [
            (field, readers)
            for name, (field, readers) in found.items()
            if self._try(partial(_read_all, readers), name)
        ]

    def _gpu_figures(self) -> dict[str, tuple[str, Readers]]:
        self.opened.enter_context(gpus.session())
        return gpus.figures(self.config.devices)

    def _try(self, read: Callable[[], T], name: str | None = None) -> T | None:
        """Return `read()`, or None if unavailable; with a `name`, `missing` gets the reason."""
        try:
            return read()
        except UNAVAILABLE as error:
            if name:
                self.missing[name] = reason(error)
            return None


def _read_all(readers: Readers) -> dict[str, Any]:
    return {device: read() for device, read in readers.items()}
