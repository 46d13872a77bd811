"""Looks at a machine: what is written down of it, and what is not."""

import os
import resource
import time

import pynvml
import pytest

from perfkit.config import Config
from perfkit.driver.lookout import Lookout
from perfkit.results.files import read_events

CPU = Config(model="resnet50", device="cpu", gpus=0, processes=1, batch_size=4, input="dali")
TWO_GPUS = Config(model="resnet50", device="gpu", gpus=2, batch_size=4, input="dali")


def looked(tmp_path, config=CPU, looks=1, **root):
    """The lines of so many looks at the machine below `root`, or at this one."""
    path = tmp_path / "conditions.jsonl"
    with Lookout(path, config, **root) as lookout:
        for _ in range(looks):
            lookout.look(None)
    return read_events(path)


def test_a_machine_that_tells_nothing_is_written_down_with_the_reasons_once(tmp_path):
    (tmp_path / "proc").mkdir()
    begin, *looks = looked(tmp_path, looks=2, root=tmp_path)
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
    assert [{*look} for look in looks] == [{"event", "at"}] * 2


def test_what_is_there_and_may_not_be_read_says_so(tmp_path):
    zone = tmp_path / "sys/class/powercap/intel-rapl:0"
    (zone / "energy_uj").mkdir(parents=True)
    (zone / "name").write_text("package-0\n")
    (zone / "max_energy_range_uj").write_text("1000000\n")
    begin, _look = looked(tmp_path, root=tmp_path)
    assert begin["missing"]["cpu_energy"] == f"{zone}/energy_uj: Is a directory"


def test_a_sensor_that_falls_silent_is_left_out_from_then_on_and_the_rest_goes_on(tmp_path):
    sensor = tmp_path / "sys/class/hwmon/hwmon0"
    sensor.mkdir(parents=True)
    (sensor / "name").write_text("k10temp\n")
    (sensor / "temp1_input").write_text("55000\n")
    with Lookout(tmp_path / "c.jsonl", CPU, tmp_path) as lookout:
        lookout.look(None)
        (sensor / "temp1_input").write_text("")
        lookout.look(None)
        (sensor / "temp1_input").unlink()
        lookout.look(None)
    _begin, *looks = read_events(tmp_path / "c.jsonl")
    seen = [look.get("temperature_celsius") for look in looks]
    assert seen == [{"cpu": 55.0}, None, None]


def test_this_machine_is_looked_at_by_the_monotonic_clock(tmp_path):
    before = time.monotonic()
    _begin, first, second = looked(tmp_path, looks=2)
    assert before <= first["at"] <= second["at"] <= time.monotonic()
    assert first["busy_seconds"] > 0
    # No rank has shown itself.
    assert "own_seconds" not in first


def test_a_line_that_cannot_be_written_is_the_last_and_nothing_else_happens(tmp_path):
    """As on a disk that fills up and has room again: what was written stays readable."""
    path = tmp_path / "conditions.jsonl"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Lookout(path, CPU) as lookout:
        lookout.look(None)
        whole = path.stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (whole + 10, hard))
        try:
            lookout.look(None)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        lookout.look(None)
    assert path.stat().st_size == whole + 10
    assert [event["event"] for event in read_events(path)] == ["begin", "look"]


def test_a_file_that_cannot_be_made_is_done_without(tmp_path):
    with Lookout(tmp_path / "no folder" / "conditions.jsonl", CPU) as lookout:
        lookout.look(None)
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
    begin, look = looked(tmp_path, TWO_GPUS, root=tmp_path)
    assert not {name for name in begin["missing"] if name.startswith("gpu")}
    assert (begin["device"], begin["ranks"]) == ("gpu", 2)
    assert look["clock_mhz"] == {"gpu0": 1400, "gpu1": 1401}
    assert look["temperature_celsius"] == {"gpu0": 60, "gpu1": 61}
    assert look["energy_joules"] == {"gpu0": 5.5, "gpu1": 5.501}
    assert look["throttled"] == {"gpu0": [], "gpu1": ["power_cap", "hardware_thermal"]}
    assert nvml["open"] is False


def test_what_one_gpu_does_not_support_is_missing_with_nvmls_reason(tmp_path, nvml):
    def unsupported(handle):
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    nvml["nvmlDeviceGetTotalEnergyConsumption"] = unsupported
    begin, look = looked(tmp_path, TWO_GPUS, root=tmp_path)
    assert begin["missing"]["gpu_energy"] == "NVML: Not Supported"
    assert "energy_joules" not in look and "clock_mhz" in look


def test_gpus_that_may_not_be_asked_are_missing_and_the_rest_is_looked_at(tmp_path, nvml):
    def forbidden(_index):
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NO_PERMISSION)

    nvml["nvmlDeviceGetHandleByIndex"] = forbidden
    begin, look = looked(tmp_path, TWO_GPUS, root=tmp_path)
    assert begin["missing"]["gpus"] == "NVML: Insufficient Permissions"
    assert look["at"] > 0
    assert nvml["open"] is False


def test_gpus_without_a_driver_are_missing_and_a_cpus_measurement_asks_for_none(tmp_path, nvml):
    def no_driver():
        raise pynvml.NVMLError(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)

    nvml["nvmlInit"] = no_driver
    begin, _look = looked(tmp_path, TWO_GPUS, root=tmp_path)
    assert begin["missing"]["gpus"] == "NVML: Driver Not Loaded"
    (tmp_path / "conditions.jsonl").unlink()
    begin, _look = looked(tmp_path, CPU, root=tmp_path)
    assert "gpus" not in begin["missing"]
