"""Clock, temperature, throttling, energy and time of the CPU, for telemetry.

psutil provides CPU times. Clocks and temperatures are read here, since psutil reads every
core's clock, /proc/cpuinfo and every sensor, even of disks and network adapters, in each call,
and without cpufreq returns the nominal clock.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import psutil

from perfkit.measuring.system.environment import MissingError

TEMPERATURE_DRIVERS = ("coretemp", "k10temp", "zenpower", "cpu_thermal")
"""Drivers of CPU temperature sensors; the first input of each is the package."""
Readers = dict[str, Callable[[], Any]]
"""Device -> function that reads its value."""


class CpuSensor(NamedTuple):
    """A reading of the CPU: its name, its field in a sample, its files below /sys ({} is a
    core), and how the numbers of a device's files are combined."""

    name: str
    field: str
    files: str
    combine: Callable[[list[int]], float]


CLOCK = CpuSensor(
    "cpu_clock",
    "clock_mhz",
    "devices/system/cpu/cpu{}/cpufreq/scaling_cur_freq",
    lambda kilohertz: fmean(kilohertz) / 1e3,
)
TEMPERATURE = CpuSensor(
    "cpu_temperature",
    "temperature_celsius",
    "class/hwmon/*/temp1_input",
    lambda millidegrees: max(millidegrees) / 1e3,
)
THROTTLING = CpuSensor(
    "cpu_throttling",
    "throttle_count",
    "devices/system/cpu/cpu{}/thermal_throttle/*_throttle_count",
    sum,
)
ENERGY = CpuSensor(
    "cpu_energy",
    "energy_joules",
    "class/powercap/intel-rapl:*/energy_uj",
    lambda microjoules: sum(microjoules) / 1e6,
)
"""Energy counters wrap around at the number in `max_energy_range_uj`."""
SENSORS = (CLOCK, TEMPERATURE, THROTTLING, ENERGY)


def cpu_readers(sys: Path, cores: Sequence[int], sensor: CpuSensor, file: str = "") -> Readers:
    """Return the readers of a sensor, or of `file` in the same folders. Raises MissingError."""
    paths: set[Path] = set()
    for core in cores:
        paths.update(sys.glob(sensor.files.format(core)))
    files_of: dict[str, list[Path]] = {}
    for path in sorted(paths):
        device = _device(path)
        if device:
            files_of.setdefault(device, []).append(path.with_name(file or path.name))
    if not files_of:
        raise MissingError(f"no reading of the CPU in /sys/{sensor.files.format('*')}")
    return {device: partial(_combined, sensor, files) for device, files in files_of.items()}


def _device(path: Path) -> str | None:
    """Return the device of a file: the CPU, a package or a package's memory. None for other
    sensors and other RAPL zones: a package includes its cores, and `psys` the packages."""
    label = path.with_name("name")
    if not label.exists():
        return "cpu"
    name = label.read_text().strip()
    if path.name == "temp1_input":
        return "cpu" if name in TEMPERATURE_DRIVERS else None
    if name == "dram":
        _prefix, package, *_zone = path.parent.name.split(":")
        return f"dram-{package}"
    if name.startswith("package"):
        return name
    return None


def _combined(sensor: CpuSensor, paths: list[Path]) -> float:
    return sensor.combine([int(path.read_text()) for path in paths])


def core_seconds(sys: Path, cores: Sequence[int]) -> dict[str, float]:
    """Return the CPU time of these cores since boot: `busy_seconds` of processes and the
    kernel, and `steal_seconds` that the hypervisor gave to other machines.

    Interrupt time is excluded: it belongs to no process, and the measurement's own network
    traffic causes some of it. Raises MissingError if a core has no times.
    """
    times = psutil.cpu_times(percpu=True)
    if len(times) > len(cores):
        # The list omits offline and hidden cores, so check that it is complete.
        online = (sys / "devices/system/cpu/online").read_text().strip()
        if online != f"0-{len(times) - 1}":
            raise MissingError("/proc/stat does not have every usable core")
        times = [times[core] for core in cores]
    if len(times) < len(cores):
        raise MissingError("/proc/stat does not have every usable core")
    return {
        "busy_seconds": sum(core.user + core.nice + core.system for core in times),
        "steal_seconds": sum(core.steal for core in times),
    }
