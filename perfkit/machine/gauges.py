"""What the kernel tells of the machine and its processes, in /proc and /sys below a root.

Whatever the machine does not tell raises one of UNTOLD, whose text is the reason.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
CPU_SENSORS = ("coretemp", "k10temp", "zenpower", "cpu_thermal")
"""Drivers of the processor's own sensor; the first input of each is the package's."""
WORKER, SUPERVISOR = b"perfkit.worker.rank", b"perfkit.nodes.supervisor"
"""The modules that a rank's process, and the one above them all, run."""


class NotToldError(LookupError):
    """This machine does not tell it; the message says why."""


UNTOLD = (NotToldError, OSError, ValueError, IndexError)


class Gauge(NamedTuple):
    """Something to be read again and again: `what` of which `device`, as a look has them."""

    what: str
    device: str
    read: Callable[[], Any]


def core_seconds(root: Path, cores: Sequence[int]) -> dict[str, float]:
    """CPU time of these cores since the machine started: `busy_seconds` of processes and the
    kernel, and `stolen_seconds` that the hypervisor gave to others.

    Time in interrupts is left out: it is nobody's, and a measurement's own network makes some.
    """
    names = {f"cpu{core}" for core in cores}
    lines = (root / "proc/stat").read_text().splitlines()
    rows = [line.split() for line in lines if line.partition(" ")[0] in names]
    if len(rows) < len(names):
        raise NotToldError("/proc/stat does not have every usable core")
    busy = sum(int(ticks) for row in rows for ticks in row[1:4])
    stolen = sum(int(row[8]) for row in rows)
    return {"busy_seconds": busy / TICKS_A_SECOND, "stolen_seconds": stolen / TICKS_A_SECOND}


class Tree:
    """The processes of a repeat on this machine: the supervisor of a rank and all below it.

    Of the others only the parent is looked up, once each: on a busy machine, /proc has
    thousands of them.
    """

    def __init__(self, root: Path, rank: int) -> None:
        """Raises one of UNTOLD unless `rank` is the process of a rank here: in a container of
        its own, it has another number."""
        self.proc = root / "proc"
        if WORKER not in _command(self.proc, rank):
            raise NotToldError(f"process {rank} is not a rank's")
        self.top = rank
        while SUPERVISOR not in _command(self.proc, self.top):
            self.top = Process.read(self.proc, self.top).parent
        self.started = {self.top: Process.read(self.proc, self.top).started}
        self.others: set[int] = set()

    def seconds(self) -> float:
        """CPU seconds so far, those of ended processes included, which their parents have.
        Raises one of UNTOLD once the supervisor has ended."""
        with os.scandir(self.proc) as entries:
            present = {int(entry.name) for entry in entries if entry.name.isdigit()}
        self._find_children(present)
        ticks = 0
        for pid, started in list(self.started.items()):
            process = self._read(pid)
            if process and process.started == started:
                ticks += process.ticks
            elif pid == self.top:
                raise NotToldError("the supervisor has ended")
            else:
                del self.started[pid]
        return ticks / TICKS_A_SECOND

    def _find_children(self, present: set[int]) -> None:
        read = {pid: self._read(pid) for pid in present - self.others - self.started.keys()}
        new = {pid: process for pid, process in read.items() if process}
        while children := [pid for pid in new if new[pid].parent in self.started]:
            self.started |= {pid: new.pop(pid).started for pid in children}
        self.others = (self.others & present) | new.keys()

    def _read(self, pid: int) -> "Process | None":
        """None if it has ended."""
        try:
            return Process.read(self.proc, pid)
        except UNTOLD:
            return None


class Process(NamedTuple):
    """One process as its `stat` has it; `ticks` are its own and of the children waited for."""

    parent: int
    ticks: int
    started: int

    @classmethod
    def read(cls, proc: Path, pid: int) -> "Process":
        # The name before the last parenthesis may have anything in it.
        fields = (proc / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
        return cls(int(fields[1]), sum(map(int, fields[11:15])), int(fields[19]))


def _command(proc: Path, pid: int) -> list[bytes]:
    return (proc / str(pid) / "cmdline").read_bytes().split(b"\0")


def cpu_clock(root: Path, cores: Sequence[int]) -> list[Gauge]:
    """`clock_mhz` of the CPU, the mean of these cores."""
    folder = root / "sys/devices/system/cpu"
    paths = [folder / f"cpu{core}/cpufreq/scaling_cur_freq" for core in cores]
    if not paths[0].exists():
        raise NotToldError("no cpufreq under /sys/devices/system/cpu")
    return [Gauge("clock_mhz", "cpu", lambda: sum(map(_number, paths)) / len(paths) / 1e3)]


def cpu_throttling(root: Path, cores: Sequence[int]) -> list[Gauge]:
    """`throttle_count` of the CPU: how often these cores, or their package, have slowed down
    since the machine started because they were too hot."""
    folder = root / "sys/devices/system/cpu"
    paths = [
        folder / f"cpu{core}/thermal_throttle/{part}_throttle_count"
        for core in cores
        for part in ("core", "package")
    ]
    if not paths[0].exists():
        raise NotToldError("no thermal_throttle under /sys/devices/system/cpu")
    return [Gauge("throttle_count", "cpu", lambda: sum(map(_number, paths)))]


def cpu_temperature(root: Path) -> list[Gauge]:
    """`temperature_celsius` of the CPU, that of the hottest package."""
    sensors = sorted((root / "sys/class/hwmon").glob("*/name"))
    paths = [n.parent / "temp1_input" for n in sensors if n.read_text().strip() in CPU_SENSORS]
    if not paths:
        raise NotToldError("no sensor of the processor under /sys/class/hwmon")
    return [Gauge("temperature_celsius", "cpu", lambda: max(map(_number, paths)) / 1e3)]


def cpu_energy(root: Path) -> list[Gauge]:
    """`energy_joules` of each processor package and of its memory: RAPL's counters, which begin
    again at `energy_wraps`."""
    zones = _rapl_zones(root)
    if not zones:
        raise NotToldError("no RAPL under /sys/class/powercap")

    def gauge(name: str, path: Path) -> Gauge:
        return Gauge("energy_joules", name, lambda: _number(path) / 1e6)

    return [gauge(name, zone / "energy_uj") for name, zone in zones.items()]


def energy_wraps(root: Path) -> dict[str, float]:
    """Joules at which the counters of `cpu_energy` begin at 0 again."""
    zones = _rapl_zones(root)
    return {name: _number(zone / "max_energy_range_uj") / 1e6 for name, zone in zones.items()}


def _rapl_zones(root: Path) -> dict[str, Path]:
    """Packages and their memory, by name. A package counts its cores in, and `psys` the
    packages: those zones would be counted twice."""
    zones = {}
    for zone in sorted((root / "sys/class/powercap").glob("intel-rapl:*")):
        name = (zone / "name").read_text().strip()
        if name.startswith("package"):
            zones[name] = zone
        elif name == "dram":
            zones[f"dram-{zone.name.split(':')[1]}"] = zone
    return zones


def _number(path: Path) -> int:
    return int(path.read_text())
