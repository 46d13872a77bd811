"""Samples of a machine, on /proc and /sys made by hand: what is written down, and what not."""

import os
import resource
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pynvml
import pytest

from perfkit.request.resolve import resolve
from perfkit.results.store import read_events
from perfkit.system.environment import MissingError
from perfkit.system.gpus import visible_names
from perfkit.system.telemetry import Telemetry, core_seconds, cpu_readers

CPU = resolve(
    {
        "model": "resnet50",
        "device": "cpu",
        "gpus": 0,
        "processes": 1,
        "batch_size": 4,
        "input": "dali",
    }
)
TWO_GPUS = resolve(
    {"model": "resnet50", "device": "gpu", "gpus": 2, "batch_size": 4, "input": "dali"}
)


TICKS = os.sysconf("SC_CLK_TCK")


def sampled(tmp_path, config=CPU, samples=1, **sys):
    """The lines of so many samples of the machine with /sys at `sys`, or of this one."""
    path = tmp_path / "telemetry.jsonl"
    with Telemetry(path, config, **sys) as telemetry:
        for _ in range(samples):
            telemetry.sample(None)
    return read_events(path)


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write a file below the root, which is tmp_path."""
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path / "proc"))

    def written(path, text):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)

    return written


def values(readers):
    return {device: read() for device, read in readers.items()}


def test_cpu_time_is_that_of_the_usable_cores_without_interrupts_and_waiting(write, tmp_path):
    row = "{} 100 20 3 4000 500 60 7 {} 0 0\n"
    write("proc/stat", row.format("cpu ", 9) + row.format("cpu0", 8) + row.format("cpu1", 5))
    write("sys/devices/system/cpu/online", "0-1\n")
    seconds = core_seconds(tmp_path / "sys", [1])
    assert seconds == pytest.approx({"busy_seconds": 123 / TICKS, "steal_seconds": 5 / TICKS})


def test_a_core_that_a_container_hides_is_not_taken_for_an_idle_one(write, tmp_path):
    write("proc/stat", "cpu  1 1 1 1 1 1 1 1 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n")
    with pytest.raises(MissingError, match="does not have every usable core"):
        core_seconds(tmp_path / "sys", [0, 1])


def test_rows_are_not_taken_for_other_cores_where_one_is_offline(write, tmp_path):
    """psutil leaves the rows' names out: of cores 0, 2 and 3, the third row is core 3's."""
    rows = [f"cpu{core} {100 * (core + 1)} 0 0 0 0 0 0 0 0 0\n" for core in (0, 2, 3)]
    write("proc/stat", "cpu  1 1 1 1 1 1 1 1 0 0\n" + "".join(rows))
    write("sys/devices/system/cpu/online", "0,2-3\n")
    with pytest.raises(MissingError, match="does not have every usable core"):
        core_seconds(tmp_path / "sys", [2])
    assert core_seconds(tmp_path / "sys", [0, 2, 3])["busy_seconds"] == 800 / TICKS


def test_the_clock_is_the_mean_of_the_cores(write, tmp_path):
    for core, khz in ((0, 2_000_000), (3, 3_000_000)):
        write(f"sys/devices/system/cpu/cpu{core}/cpufreq/scaling_cur_freq", f"{khz}\n")
    assert values(cpu_readers(tmp_path / "sys", [0, 3], "cpu_clock")) == {"cpu": 2500.0}


def test_throttling_is_counted_over_cores_and_package(write, tmp_path):
    for part, count in (("core", 3), ("package", 40)):
        path = f"sys/devices/system/cpu/cpu0/thermal_throttle/{part}_throttle_count"
        write(path, f"{count}\n")
    assert values(cpu_readers(tmp_path / "sys", [0], "cpu_throttling")) == {"cpu": 43}


def test_the_temperature_is_the_hottest_packages_and_not_a_disks(write, tmp_path):
    sensors = (("nvme", 90_000), ("coretemp", 61_000), ("coretemp", 64_000))
    for index, (name, millidegrees) in enumerate(sensors):
        write(f"sys/class/hwmon/hwmon{index}/name", f"{name}\n")
        write(f"sys/class/hwmon/hwmon{index}/temp1_input", f"{millidegrees}\n")
    assert values(cpu_readers(tmp_path / "sys", [0], "cpu_temperature")) == {"cpu": 64.0}


def test_energy_is_of_packages_and_memory_and_nothing_is_counted_twice(write, tmp_path):
    zones = {
        "intel-rapl:0": "package-0",
        "intel-rapl:0:0": "core",
        "intel-rapl:0:1": "dram",
        "intel-rapl:1": "psys",
        "intel-rapl-mmio:0": "package-0",
    }
    for index, (zone, name) in enumerate(zones.items(), 1):
        write(f"sys/class/powercap/{zone}/name", f"{name}\n")
        write(f"sys/class/powercap/{zone}/energy_uj", f"{index}000000\n")
        write(f"sys/class/powercap/{zone}/max_energy_range_uj", f"{index}00000000\n")
    energy = cpu_readers(tmp_path / "sys", [0, 1], "cpu_energy")
    assert values(energy) == {"package-0": 1.0, "dram-0": 3.0}
    begin, _sample = sampled(tmp_path, sys=tmp_path / "sys")
    assert begin["energy_wraps_joules"] == {"package-0": 100.0, "dram-0": 300.0}


def test_this_machines_own_cpu_time_grows():
    cores = sorted(os.sched_getaffinity(0))
    before = core_seconds(Path("/sys"), cores)["busy_seconds"]
    sum(range(3_000_000))
    assert core_seconds(Path("/sys"), cores)["busy_seconds"] > before > 0


def test_a_machine_that_tells_nothing_is_written_down_with_the_reasons_once(write, tmp_path):
    begin, *samples = sampled(tmp_path, samples=2, sys=tmp_path / "sys")
    assert begin == {
        "event": "begin",
        "device": "cpu",
        "ranks": 1,
        "cores": len(os.sched_getaffinity(0)),
        "energy_wraps_joules": {},
        "missing": {
            "cpu_time": f"{tmp_path}/proc/stat: No such file or directory",
            "cpu_clock": "no cpufreq under /sys/devices/system/cpu",
            "cpu_temperature": "no sensor of the processor under /sys/class/hwmon",
            "cpu_throttling": "no thermal_throttle under /sys/devices/system/cpu",
            "cpu_energy": "no RAPL under /sys/class/powercap",
        },
    }
    assert [{*sample} for sample in samples] == [{"event", "at"}] * 2


def test_what_is_there_and_may_not_be_read_says_so(tmp_path):
    zone = tmp_path / "sys/class/powercap/intel-rapl:0"
    (zone / "energy_uj").mkdir(parents=True)
    (zone / "name").write_text("package-0\n")
    (zone / "max_energy_range_uj").write_text("1000000\n")
    begin, _sample = sampled(tmp_path, sys=tmp_path / "sys")
    assert begin["missing"]["cpu_energy"] == f"{zone}/energy_uj: Is a directory"


def test_a_sensor_that_falls_silent_is_left_out_from_then_on_and_the_rest_goes_on(tmp_path):
    sensor = tmp_path / "sys/class/hwmon/hwmon0"
    sensor.mkdir(parents=True)
    (sensor / "name").write_text("k10temp\n")
    (sensor / "temp1_input").write_text("55000\n")
    with Telemetry(tmp_path / "c.jsonl", CPU, tmp_path / "sys") as telemetry:
        telemetry.sample(None)
        (sensor / "temp1_input").write_text("")
        telemetry.sample(None)
        (sensor / "temp1_input").unlink()
        telemetry.sample(None)
    _begin, *samples = read_events(tmp_path / "c.jsonl")
    seen = [sample.get("temperature_celsius") for sample in samples]
    assert seen == [{"cpu": 55.0}, None, None]


def test_this_machine_is_sampled_by_the_monotonic_clock(tmp_path):
    before = time.monotonic()
    _begin, first, second = sampled(tmp_path, samples=2)
    assert before <= first["at"] <= second["at"] <= time.monotonic()
    assert first["busy_seconds"] > 0
    # No rank has shown itself.
    assert "process_seconds" not in first


def test_a_line_that_cannot_be_written_is_the_last_and_nothing_else_happens(tmp_path):
    """As on a disk that fills up and has room again: what was written stays readable."""
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


def test_a_file_that_cannot_be_made_is_done_without(tmp_path):
    with Telemetry(tmp_path / "no folder" / "telemetry.jsonl", CPU) as telemetry:
        telemetry.sample(None)
    assert [*tmp_path.iterdir()] == []


@pytest.fixture
def nvml(monkeypatch):
    """Two GPUs behind NVML's functions, in the place of a driver; returns what they say."""
    said = {
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetUUID": lambda handle: f"GPU-{handle}",
        "nvmlDeviceGetClockInfo": lambda handle, _clock: 1400 + handle,
        "nvmlDeviceGetTemperature": lambda handle, _sensor: 60 + handle,
        "nvmlDeviceGetTotalEnergyConsumption": lambda handle: 5500 + handle,
        "nvmlDeviceGetCurrentClocksThrottleReasons": lambda handle: [0x1, 0x44][handle],
        "nvmlInit": lambda: said.update(open=True),
        "nvmlShutdown": lambda: said.update(open=False),
    }
    for name in list(said):
        monkeypatch.setattr(pynvml, name, lambda *given, name=name: said[name](*given))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return said


def test_gpus_are_asked_for_clock_temperature_energy_and_reasons(tmp_path, nvml):
    begin, sample = sampled(tmp_path, TWO_GPUS, sys=tmp_path / "sys")
    assert not {name for name in begin["missing"] if name.startswith("gpu")}
    assert (begin["device"], begin["ranks"]) == ("gpu", 2)
    assert sample["clock_mhz"] == {"gpu0": 1400, "gpu1": 1401}
    assert sample["temperature_celsius"] == {"gpu0": 60, "gpu1": 61}
    assert sample["energy_joules"] == {"gpu0": 5.5, "gpu1": 5.501}
    assert sample["throttled"] == {"gpu0": [], "gpu1": ["power_cap", "hardware_thermal"]}
    assert nvml["open"] is False


def test_what_one_gpu_does_not_support_is_missing_with_nvmls_reason(tmp_path, nvml):
    def unsupported(handle):
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    nvml["nvmlDeviceGetTotalEnergyConsumption"] = unsupported
    begin, sample = sampled(tmp_path, TWO_GPUS, sys=tmp_path / "sys")
    assert begin["missing"]["gpu_energy"] == "NVML: Not Supported"
    assert "energy_joules" not in sample and "clock_mhz" in sample


def test_a_gpu_that_does_not_tell_its_memory_keeps_its_name(nvml, monkeypatch):
    def memory(handle):
        if handle:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return SimpleNamespace(total=80 * 2**30)

    monkeypatch.setattr(pynvml, "nvmlDeviceGetName", lambda handle: f"GPU {handle}")
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMemoryInfo", memory)
    assert visible_names() == ["GPU 0, 80 GiB", "GPU 1"]


def test_gpus_that_may_not_be_asked_are_missing_and_the_rest_is_sampled(tmp_path, nvml):
    def forbidden(_index):
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NO_PERMISSION)

    nvml["nvmlDeviceGetHandleByIndex"] = forbidden
    begin, sample = sampled(tmp_path, TWO_GPUS, sys=tmp_path / "sys")
    assert begin["missing"]["gpus"] == "NVML: Insufficient Permissions"
    assert sample["at"] > 0
    assert nvml["open"] is False


def test_gpus_without_a_driver_are_missing_and_a_cpus_measurement_asks_for_none(tmp_path, nvml):
    def no_driver():
        raise pynvml.NVMLError(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)

    nvml["nvmlInit"] = no_driver
    begin, _sample = sampled(tmp_path, TWO_GPUS, sys=tmp_path / "sys")
    assert begin["missing"]["gpus"] == "NVML: Driver Not Loaded"
    (tmp_path / "telemetry.jsonl").unlink()
    begin, _sample = sampled(tmp_path, CPU, sys=tmp_path / "sys")
    assert "gpus" not in begin["missing"]
