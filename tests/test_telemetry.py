"""Telemetry samples on fake /proc and /sys trees."""

import os
import resource
import time

import psutil
import pytest

from perfkit.measuring.request.resolve import resolve
from perfkit.measuring.results.store import read_events
from perfkit.measuring.system import cpu
from perfkit.measuring.system.cpu import core_seconds, cpu_readers
from perfkit.measuring.system.environment import MissingError
from perfkit.measuring.system.telemetry import Telemetry

CPU = resolve({"model": "resnet50", "device": "cpu", "gpus": 0, "processes": 1})
TICKS = os.sysconf("SC_CLK_TCK")


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Return a function that writes a file below tmp_path, the root of /proc and /sys."""
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path / "proc"))

    def written(path, text):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(f"{text}\n")

    return written


@pytest.fixture
def sys(tmp_path):
    return tmp_path / "sys"


@pytest.fixture
def sampled(tmp_path):
    """Return a function that takes samples, each followed by `between`; returns the events."""

    def sample(samples=1, between=lambda: None, **sys):
        path = tmp_path / "telemetry.jsonl"
        path.unlink(missing_ok=True)
        with Telemetry(path, CPU, **sys) as telemetry:
            for _ in range(samples):
                telemetry.sample(None)
                between()
        return read_events(path)

    return sample


def values(sys, cores, sensor):
    """Return what a sensor reads now, by device."""
    readers = cpu_readers(sys, cores, sensor)
    return {device: read() for device, read in readers.items()}


def test_cpu_time_covers_usable_cores_without_interrupts_and_iowait(write, sys):
    row = "{} 100 20 3 4000 500 60 7 {} 0 0\n"
    write("proc/stat", row.format("cpu ", 9) + row.format("cpu0", 8) + row.format("cpu1", 5))
    write("sys/devices/system/cpu/online", "0-1")
    seconds = core_seconds(sys, [1])
    assert seconds == pytest.approx({"busy_seconds": 123 / TICKS, "steal_seconds": 5 / TICKS})


def test_hidden_and_offline_cores_do_not_shift_the_rows(write, sys):
    """psutil omits the rows' names: with cores 0, 2 and 3, the third row belongs to core 3."""
    stat = "cpu  1 1 1 1 1 1 1 1 0 0\n"
    for core, ticks in ((0, 100), (2, 300), (3, 400)):
        stat += f"cpu{core} {ticks} 0 0 0 0 0 0 0 0 0\n"
    write("proc/stat", stat)
    write("sys/devices/system/cpu/online", "0,2-3")
    for cores in ([2], [0, 1, 2, 3]):
        with pytest.raises(MissingError, match="does not have every usable core"):
            core_seconds(sys, cores)
    assert core_seconds(sys, [0, 2, 3])["busy_seconds"] == 800 / TICKS


def test_clocks_are_averaged_counts_added_and_the_hottest_package_counts(write, sys):
    cpus = "sys/devices/system/cpu"
    write(f"{cpus}/cpu0/cpufreq/scaling_cur_freq", 2_000_000)
    write(f"{cpus}/cpu3/cpufreq/scaling_cur_freq", 3_000_000)
    assert values(sys, [0, 3], cpu.CLOCK) == {"cpu": 2500.0}
    write(f"{cpus}/cpu0/thermal_throttle/core_throttle_count", 3)
    write(f"{cpus}/cpu0/thermal_throttle/package_throttle_count", 40)
    assert values(sys, [0], cpu.THROTTLING) == {"cpu": 43}
    sensors = (("nvme", 90_000), ("coretemp", 61_000), ("coretemp", 64_000))
    for index, (name, millidegrees) in enumerate(sensors):
        write(f"sys/class/hwmon/hwmon{index}/name", name)
        write(f"sys/class/hwmon/hwmon{index}/temp1_input", millidegrees)
    assert values(sys, [0], cpu.TEMPERATURE) == {"cpu": 64.0}


def test_energy_covers_packages_and_memory_once(write, sys, sampled):
    zones = {"intel-rapl:0": "package-0", "intel-rapl:0:0": "core", "intel-rapl:0:1": "dram"}
    zones |= {"intel-rapl:1": "psys", "intel-rapl-mmio:0": "package-0"}
    for joules, (zone, name) in enumerate(zones.items(), 1):
        folder = f"sys/class/powercap/{zone}"
        write(f"{folder}/name", name)
        write(f"{folder}/energy_uj", joules * 10**6)
        write(f"{folder}/max_energy_range_uj", joules * 10**8)
    assert values(sys, [0, 1], cpu.ENERGY) == {"package-0": 1.0, "dram-0": 3.0}
    begin, _sample = sampled(sys=sys)
    assert begin["energy_wraps_joules"] == {"package-0": 100.0, "dram-0": 300.0}


def test_missing_sensors_are_recorded_once_with_reasons(write, sampled, sys, tmp_path):
    begin, *samples = sampled(samples=2, sys=sys)
    no = "no reading of the CPU in /sys/"
    missing = {
        "cpu_time": f"{tmp_path}/proc/stat: No such file or directory",
        "cpu_clock": f"{no}devices/system/cpu/cpu*/cpufreq/scaling_cur_freq",
        "cpu_temperature": f"{no}class/hwmon/*/temp1_input",
        "cpu_throttling": f"{no}devices/system/cpu/cpu*/thermal_throttle/*_throttle_count",
        "cpu_energy": f"{no}class/powercap/intel-rapl:*/energy_uj",
    }
    assert begin == {
        "event": "begin",
        "device": "cpu",
        "ranks": 1,
        "cores": len(os.sched_getaffinity(0)),
        "energy_wraps_joules": {},
        "missing": missing,
    }
    assert len(samples) == 2
    for sample in samples:
        assert sample.keys() == {"event", "at"}


def test_samples_of_this_machine_have_monotonic_times_and_growing_cpu_time(sampled):
    before = time.monotonic()
    _begin, first, second = sampled(samples=2, between=lambda: sum(range(3_000_000)))
    assert before <= first["at"] <= second["at"] <= time.monotonic()
    assert second["busy_seconds"] > first["busy_seconds"] > 0
    # No rank is known yet.
    assert "process_seconds" not in first


def test_a_failed_write_ends_the_telemetry_file(tmp_path):
    """When a disk fills up and has space again, earlier lines stay readable."""
    path = tmp_path / "telemetry.jsonl"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Telemetry(path, CPU) as telemetry:
        telemetry.sample(None)
        whole = path.stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (whole + 10, hard))
        try:
            telemetry.sample(None)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        telemetry.sample(None)
    assert path.stat().st_size == whole + 10
    assert [event["event"] for event in read_events(path)] == ["begin", "sample"]
