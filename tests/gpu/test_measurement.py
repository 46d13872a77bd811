"""Whole measurements on the GPU, and what is left on it when one fails or is killed."""

import json
import os
import subprocess
import sys
import time

import psutil
import pynvml
import pytest

from perfkit.analysis.utilization import datasheet, share_of_datasheet
from perfkit.measuring.paths import ROOT
from perfkit.measuring.system import gpus

pytestmark = pytest.mark.gpu

LARGER_THAN_ANY_GPU = 4096
"""Images of a batch, which in fp32 need about 360 GB: an H200 used 88 MB an image. The host
makes larger synthetic batches for minutes."""
START_SECONDS, END_SECONDS = 120, 15
KEPT_BYTES = 300 * 2**20
"""Memory that the driver may keep, or another process take."""
DRIVER = """
import json, sys
import perfkit
plan = perfkit.plan("resnet50", json.loads(sys.argv[1]))
perfkit.measure(plan.config, plan.protocol)
"""


@pytest.fixture
def full(small):
    """Changes for a measurement that fills a GPU; none for a device that is no GPU."""
    return {} if small else {"batch_size": 128, "protocol": "published"}


def test_a_measurement_is_complete_steady_and_has_telemetry(measure, full, say, small):
    result = measure(precision="amp", **({"protocol": "quick"} | full))
    assert result.status == "complete", result.failure
    assert (result.effective.device, result.effective.step_clock) == ("gpu", "device")
    assert result.effective.precision == "amp"
    for repeat in result.repeats:
        seen = repeat.telemetry
        assert {"gpu_clock", "gpu_temperature", "gpu_memory", "gpu_energy"}.isdisjoint(
            seen.missing
        )
        assert seen.energy_joules_per_sample
        watts = seen.energy_joules_per_sample * repeat.throughput / len(repeat.ranks)
        assert 10 < watts < 3000
        assert seen.memory_used_bytes["gpu0"] > repeat.ranks[0].memory_bytes > 0
    sheet = datasheet(result)
    share = share_of_datasheet(result, sheet) if sheet else None
    throughputs = sorted(result.throughputs)
    spread = (throughputs[-1] - throughputs[0]) / result.throughput.value
    mfu = f"{share:.1%}" if share else "unknown"
    say(f"{result.throughput.value:.0f} images/s, spread {spread:.2%}, MFU {mfu}")
    assert share is None or 0 < share < 1
    if not small:
        assert spread < 0.03


def test_two_gpus_have_a_rank_each_and_equal_work(measure, visible_gpus, say):
    if len(visible_gpus) < 2:
        pytest.skip("one GPU is visible; this needs two")
    result = measure(gpus=2, protocol="quick", repeats=1, measured_steps=20)
    assert result.status == "complete", result.failure
    (repeat,) = result.repeats
    say(f"{result.throughput.value:.0f} images/s")
    assert len({rank.samples for rank in repeat.ranks}) == 1 < len(repeat.ranks)
    assert {"gpu0", "gpu1"} <= set(repeat.telemetry.clock_mhz)


def test_a_batch_too_large_is_out_of_memory_and_leaves_nothing(measure, say):
    before = used_bytes()
    # The search for the fastest convolutions takes minutes on such a batch.
    changes = {"image_size": 224, "disable_tuning": "cudnn_search"}
    result = measure(
        batch_size=LARGER_THAN_ANY_GPU, protocol="quick", repeats=1, timeout=240, **changes
    )
    failure = result.repeats[-1].failure
    assert failure and failure.code == "out_of_memory"
    say(assert_nothing_is_left(before, psutil.Process().children(recursive=True)))


@pytest.mark.usefixtures("measure")
def test_a_killed_driver_leaves_nothing(values, tmp_path, say):
    before = used_bytes()
    asked = values(
        outputs_dir=str(tmp_path), protocol="quick", repeats=1, measured_steps=100_000
    )
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, json.dumps(asked)],
        env=os.environ | {"PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"},
    )
    try:
        wait_for_a_step(tmp_path, driver)
        started = psutil.Process(driver.pid).children(recursive=True)
    finally:
        driver.kill()
        driver.wait()
    assert started
    say(assert_nothing_is_left(before, started))


def wait_for_a_step(outputs, driver):
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        for file in outputs.glob("*/repeats/1/rank0.jsonl"):
            if '"event":"step"' in file.read_text():
                return
        assert driver.poll() is None, "the driver ended before a step"
        time.sleep(0.2)
    pytest.fail(f"no step within {START_SECONDS} s")


def used_bytes():
    """The memory in use on the visible GPUs, by all processes."""
    with gpus.session():
        handles = gpus.visible_handles().values()
        return sum(int(pynvml.nvmlDeviceGetMemoryInfo(handle).used) for handle in handles)


def assert_nothing_is_left(before, processes):
    """Wait until these processes have ended and no more memory than `before` is in use; return
    how long that took."""
    began = time.monotonic()
    _gone, alive = psutil.wait_procs(processes, timeout=END_SECONDS)
    assert [process for process in alive if process.status() != psutil.STATUS_ZOMBIE] == []
    while used_bytes() - before > KEPT_BYTES:
        assert time.monotonic() - began < END_SECONDS, "memory is still in use"
        time.sleep(0.2)
    return f"free after {time.monotonic() - began:.1f} s"
