"""perfkit.StepTimer: without `perfkit run`, and in a rank of each framework."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
from script_rank import ScriptRank

import perfkit
from perfkit.measuring.paths import ROOT
from perfkit.timing.batches import rows_of
from perfkit.timing.failure import ConfigMismatchError
from perfkit.timing.frameworks import Torch
from perfkit.timing.measuring_timer import MeasuringTimer
from perfkit.timing.peak import product_precision
from perfkit.timing.plain_timer import PlainTimer
from perfkit.timing.raw_file import RawFile, rank_file
from perfkit.timing.session import Session
from perfkit.timing.told import Told


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def plain_timer(clock):
    return PlainTimer(Told(8, "images", None, None, None), clock)


def take_steps(timer, clock, count, seconds):
    for _ in range(count):
        clock.now += seconds
        timer.step(0.5)


@pytest.fixture
def without_exit(monkeypatch):
    """No line is printed when the process of these tests exits."""
    monkeypatch.setattr("atexit.register", lambda _function: None)


@pytest.mark.usefixtures("without_exit")
def test_a_step_waits_for_the_loss_of_the_step_before(clock):
    """JAX submits steps in no time."""

    class Loss:
        def block_until_ready(self):
            clock.now += 0.5

    timer = plain_timer(clock)
    for _step in range(16):
        timer.step(Loss())
    assert timer.summary().startswith("16 images/s of this process in the last 8 of 16")


@pytest.mark.usefixtures("without_exit")
@pytest.mark.parametrize(("steps", "counted"), [(4, 2), (7, 4), (100, 50)])
def test_the_line_at_the_end_tells_the_throughput_of_the_second_half_of_the_steps(
    clock, monkeypatch, steps, counted
):
    monkeypatch.setattr(sys, "argv", ["train.py", "--lr", "0.1"])
    timer = plain_timer(clock)
    slow = steps - counted
    take_steps(timer, clock, slow, 50.0)
    take_steps(timer, clock, counted, 2.0)
    assert timer.summary() == (
        f"4 images/s of this process in the last {counted} of {steps} steps (the first {slow} "
        "are left out as warm-up), by the host's clock, with the wait for data, without "
        "pauses. To measure it with warm-up, repeats and an interval: perfkit run train.py -- "
        "--lr 0.1"
    )


@pytest.mark.usefixtures("without_exit")
def test_pauses_do_not_count_in_the_line_at_the_end(clock):
    timer = plain_timer(clock)
    for _ in range(8):
        take_steps(timer, clock, 1, 2.0)
        with timer.pause():
            clock.now += 100.0
    assert timer.summary().startswith("4 images/s")


@pytest.mark.usefixtures("without_exit")
def test_too_few_steps_tell_no_throughput(clock):
    timer = plain_timer(clock)
    take_steps(timer, clock, 3, 2.0)
    assert timer.summary().startswith(
        "3 steps are too few to tell a throughput, which takes 4. To measure"
    )


@pytest.mark.usefixtures("without_exit")
def test_a_short_last_batch_counts_with_its_rows(clock):
    """An epoch has three full batches of 8 and one of 4."""
    timer = plain_timer(clock)
    loader = timer.batches([Array(8)] * 3 + [Array(4)])
    assert len(loader) == 4
    for _epoch in range(4):
        for _batch in loader:
            take_steps(timer, clock, 1, 2.0)
    assert timer.summary().startswith("3.5 images/s of this process in the last 8 of 16 steps")


@pytest.mark.usefixtures("without_exit")
def test_samples_that_are_no_multiple_of_the_rows_are_told_with_both_numbers(clock):
    timer = plain_timer(clock)
    for _batch in timer.batches([Array(6)] * 8):
        take_steps(timer, clock, 1, 2.0)
    assert "Caution: samples_per_step=8, but a step read 6 rows, of which it is" in (
        timer.summary()
    )


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize(("rank", "lines"), [("0", 1), ("1", 0)])
def test_a_script_without_perfkit_run_trains_to_its_end_and_one_line_follows(rank, lines):
    """In an interpreter that has nothing but the standard library."""
    code = f"""
import sys
sys.path.append({str(ROOT)!r})
import perfkit
timer = perfkit.StepTimer(samples_per_step=8, unit="images")
for batch in timer.batches(range(20)):
    timer.step(0.5)
    with timer.pause():
        pass
print("trained")
"""
    command = [sys.executable, "-I", "-S", "-W", "error", "-c", code]
    environment = {"RANK": rank}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert done.stdout == "trained\n"
    assert len(done.stderr.splitlines()) == lines
    if lines:
        assert " images/s of this process in the last 10 of 20 steps" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"samples_per_step": 1.5}, "samples_per_step=1.5: must be a whole number"),
        ({"unit": "images/h"}, "unit='images/h': must be a plural noun"),
        ({"flops_per_sample": -1}, "flops_per_sample=-1: must be a positive number"),
        ({"precision": "x" * 31}, "must be the name of a number format"),
    ],
)
def test_wrong_arguments_are_refused_where_the_timer_is_made(arguments, problem):
    with pytest.raises(ValueError, match=problem):
        perfkit.StepTimer(**({"samples_per_step": 8} | arguments))


class Array:
    def __init__(self, *shape):
        self.shape = shape


@pytest.mark.parametrize(
    ("batch", "rows"),
    [
        (Array(8, 3), 8),
        ((Array(8, 3), Array(8)), 8),
        ([{"ids": Array(4, 7), "labels": Array(4)}], 4),
        (Array(), None),
        ("text", None),
        ([], None),
    ],
)
def test_the_rows_of_a_batch_are_those_of_its_first_array(batch, rows):
    assert rows_of(batch) == rows


@pytest.mark.parametrize(
    ("told", "used"),
    [
        ("BFloat16-mixed", "bf16"),
        ("fp16", "amp"),
        ("float32", "fp32"),
        ("tf32", "fp32"),
    ],
)
def test_the_peak_is_measured_in_the_precision_that_a_script_tells(told, used):
    assert product_precision(told) == used


@pytest.mark.parametrize("told", [None, "fp8"])
def test_the_peak_of_an_unknown_precision_is_not_measured(told):
    with pytest.raises(ValueError, match="precision"):
        product_precision(told)


DONATED = """
import functools
import jax
import perfkit
from jax import numpy as jnp


@functools.partial(jax.jit, donate_argnums=0)
def train(state):
    weights = jax.lax.fori_loop(0, 20, lambda _, x: x @ state["eye"], state["weights"])
    return {**state, "weights": weights, "step": state["step"] + 1}


state = {"weights": jnp.ones((512, 512)), "eye": jnp.eye(512), "step": jnp.zeros((), int)}
state["key"] = jax.random.key(0)
timer = perfkit.StepTimer(samples_per_step=8)
for step in range(100):
    state = train(state)
    timer.step(result=state)
"""


@pytest.mark.slow
@pytest.mark.usefixtures("processes")
def test_a_jax_script_that_donates_its_state_is_timed_by_the_state(tmp_path):
    pytest.importorskip("jax")
    ran = ScriptRank(tmp_path, DONATED, framework="jax", measured_steps=20).run().ended()
    steps = [step["seconds"] for step in ran.of_kind("step")]
    (window,) = ran.of_kind("window")
    assert len(steps) == 22
    assert window["seconds"] == pytest.approx(sum(steps[2:]), rel=0.02)
    # Twenty products of 512 x 512 matrices take longer than their submission.
    assert min(steps) > 1e-3
    assert not ran.of_kind("loss")


@pytest.mark.usefixtures("processes")
def test_a_jax_script_without_an_array_to_wait_for_is_refused(tmp_path):
    pytest.importorskip("jax")
    code = "import jax, perfkit\nperfkit.StepTimer(8).step(0.5)"
    code, message = ScriptRank(tmp_path, code, framework="jax").run().failure()
    assert code == "worker_error"
    assert "timer.step(loss, result=state)" in message


def torch_with(*, allocated_bytes, training_gpu=0):
    """Return PyTorch as it would be with this much memory in use on a GPU."""
    cuda = SimpleNamespace(
        is_initialized=lambda: allocated_bytes is not None,
        memory_allocated=lambda gpu: allocated_bytes if gpu == training_gpu else 0,
        device_count=lambda: 2,
        current_device=lambda: 0,
    )
    return Torch(SimpleNamespace(cuda=cuda))


ON_GPU, ON_CPU, ON_MPS = (
    SimpleNamespace(device=SimpleNamespace(type=kind, index=0))
    for kind in ("cuda", "cpu", "mps")
)


@pytest.mark.parametrize(
    ("allocated_bytes", "loss", "device"),
    [
        (None, 0.5, "cpu"),
        (2**20, ON_GPU, "gpu"),
        # A loss that was copied to the host, and a number.
        (2**20, ON_CPU, "gpu"),
        (2**20, 0.5, "gpu"),
        # A process that has only looked for a GPU.
        (0, ON_CPU, "cpu"),
        (None, ON_MPS, "mps"),
    ],
)
def test_the_device_of_a_pytorch_script_is_recognised(allocated_bytes, loss, device):
    assert torch_with(allocated_bytes=allocated_bytes).device_type(loss, None) == device


@pytest.mark.parametrize(
    "loss", [ON_CPU, 0.5, SimpleNamespace(device=SimpleNamespace(type="cuda", index=1))]
)
def test_a_script_that_trains_on_another_gpu_than_the_selected_one_is_refused(loss):
    torch = torch_with(allocated_bytes=2**20, training_gpu=1)
    with pytest.raises(ConfigMismatchError, match="trains on the GPU 1, but has selected 0"):
        torch.device_type(loss, None)


def test_a_device_whose_work_can_not_be_timed_is_refused():
    with pytest.raises(ConfigMismatchError, match="trains with PyTorch on the device mps"):
        torch_with(allocated_bytes=None).open_device("mps")


@pytest.fixture
def measuring_timer(processes, tmp_path, clock):
    """A timer of a PyTorch script in this process, without the process's session. PyTorch's
    build for GPUs starts ldconfig as it is imported."""
    pytest.importorskip("torch")
    rank = ScriptRank(tmp_path, "", warmup_steps=5)
    raw = RawFile(rank_file(rank.raw_folder, 0))
    session = Session(rank.job, str(rank.script), raw, os.getpid())
    return MeasuringTimer(Told(8, "images", None, None, None), session, exits=True, clock=clock)


def events_of(timer):
    lines = timer.session.raw.path.read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_the_first_step_begins_when_its_first_batch_is_asked_for(measuring_timer, clock):
    clock.now += 100.0
    batches = measuring_timer.batches([1, 2, 3])
    clock.now += 100.0
    for _batch in batches:
        clock.now += 2.0
        measuring_timer.step(0.5)
        break
    _told, step, _loss = events_of(measuring_timer)
    assert step["seconds"] == pytest.approx(2.0)


def test_without_batches_the_first_step_begins_with_the_timer(measuring_timer, clock):
    clock.now += 3.0
    with measuring_timer.pause():
        clock.now += 100.0
    measuring_timer.step(0.5)
    _told, step, _loss = events_of(measuring_timer)
    assert step["seconds"] == pytest.approx(3.0)
