"""Measurements on the fake accelerator: launcher, devices, telemetry, exhausted memory.

All tests are slow: each starts several processes that import Paddle."""

from html import unescape
from pathlib import Path

import pytest
from accelerator.fake import measured, perfkit_run

from perfkit.measuring.results.store import read_result

pytestmark = pytest.mark.slow

SMALL = {"batch_size": 2, "image_size": 32, "input": "synthetic", "repeats": 1}
SMALL |= {"warmup_steps": 1, "measured_steps": 3, "timeout": 200}
SMALL |= {"measured_seconds": 0}


@pytest.fixture
def measure(plugin, tmp_path):
    def run(parameters, **variables):
        return measured(plugin, "gpu", SMALL | parameters, tmp_path / "outputs", **variables)

    return run


def test_amp_runs_on_two_devices_of_a_gpu_build(measure):
    done, result = measure({"precision": "amp", "gpus": 2, "measured_steps": 12})
    assert done.returncode == 0, done.stderr
    effective = result.effective
    assert effective.device == "gpu"
    assert effective.precision == "amp"
    assert effective.step_clock == "device"
    assert result.config.topology == "1x2"
    assert result.environment["gpus"].value == ["Fake accelerator, 4 GiB"] * 2
    (repeat,) = result.repeats
    for rank in repeat.ranks:
        assert rank.samples == 24
        assert rank.memory_bytes
    telemetry = repeat.telemetry
    assert telemetry.clock_mhz == {"gpu0": (1000, 1000), "gpu1": (1001, 1001)}
    assert telemetry.memory_used_bytes == {"gpu0": 1 << 30, "gpu1": 1 << 30}
    watts = telemetry.energy_joules_per_sample * repeat.throughput
    assert watts == pytest.approx(2 * 100, rel=0.2)
    assert "gpu_energy" not in telemetry.missing


def test_cuda_visible_devices_selects_the_device(measure):
    done, result = measure({"gpus": 1}, CUDA_VISIBLE_DEVICES="1")
    assert done.returncode == 0, done.stderr
    (repeat,) = result.repeats
    # The clock of the second GPU.
    assert repeat.telemetry.clock_mhz == {"gpu0": (1001, 1001)}


def test_any_custom_device_type_trains(plugin, tmp_path):
    outputs, given = tmp_path / "outputs", SMALL | {"device": "fake", "precision": "fp32"}
    done = perfkit_run(plugin, "fake", given, outputs, FAKE_VISIBLE_DEVICES="1")
    assert done.returncode == 0, done.stderr
    (file,) = outputs.glob("*/result.json")
    result = read_result(file)
    assert result.config.topology == "1x1"
    assert result.effective.device == "fake"
    assert result.effective.step_clock == "host"
    (repeat,) = result.repeats
    assert repeat.step_seconds.minimum > 0
    assert repeat.telemetry.missing["accelerators"] == "no telemetry of fake devices"
    *_output, path = done.stdout.split()
    page = unescape(Path(path).read_text())
    assert "the host's clock" in page
    assert "FAKE" in page


def test_exhausted_device_memory_is_reported(measure):
    done, result = measure({"gpus": 1}, FAKE_MEMORY_BYTES=str(1 << 20))
    assert done.returncode == 1
    assert result.failure.code == "out_of_memory"
