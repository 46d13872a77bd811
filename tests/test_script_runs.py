"""Real scripts, measured by the driver on the CPU: complete, and going wrong, each time with
its own sentence."""

import json
import sys
from textwrap import dedent

import pytest

import perfkit
from perfkit.measuring.driver import rank_processes
from perfkit.measuring.results.store import read_events
from perfkit.measuring.results.summarize import check_against_raw

pytestmark = pytest.mark.usefixtures("processes")
REQUEST = {
    "device": "cpu",
    "warmup_steps": 2,
    "measured_steps": 3,
    "measured_seconds": 0,
    "repeats": 1,
    "timeout": 120,
}
TORCH = """
import os
import signal
import sys
import time
from pathlib import Path

import torch
import perfkit

torch.set_num_threads(1)
torch.manual_seed(0)
weights = torch.zeros(8, requires_grad=True)
samples = 4
FOLDER = Path(__file__).parent
RANK = int(os.environ.get("RANK", "0"))
{before}
timer = perfkit.StepTimer(samples_per_step=samples, unit="images")
for number in range(1, 1_000_000):
    loss = (weights - 1).pow(2).sum()
    loss.backward()
    weights.data -= 0.01 * weights.grad
    weights.grad = None
    {in_step}
    timer.step(loss)
"""
"""A training in PyTorch; lines can be put before the timer, and into each step. It has no
torch.optim, whose import of PyTorch's compiler takes as long as all else."""


@pytest.fixture
def write(tmp_path):
    """Writes the script, a TORCH with further lines or another text, and returns its path."""

    def written(before="", in_step="", text=TORCH):
        lines = text.format(before=dedent(before), in_step=in_step)
        (tmp_path / "train.py").write_text(lines)
        return str(tmp_path / "train.py")

    return written


@pytest.fixture
def measure(tmp_path):
    """Measures a script with changes of REQUEST."""

    def measured(script, **changes):
        outputs = {"outputs_dir": str(tmp_path / "outputs")}
        plan = perfkit.plan("script", REQUEST | outputs | {"script": script} | changes)
        return perfkit.measure(plan.config, plan.protocol)

    return measured


def failure_of(measurement):
    """Return code and sentence of the failure of a measurement."""
    failure = measurement.result.failure
    assert failure, "the measurement is complete"
    return failure.code, failure.reason


def logs(measurement):
    return "\n".join(path.read_text() for path in measurement.log_files())


def test_a_script_is_measured_as_a_model_is(write, measure):
    script = write(before="print('arguments:', sys.argv[1:])")
    measurement = measure(script, arguments="--name 'two words'")
    result = measurement.result
    assert result.status == "complete", logs(measurement)
    assert result.told.samples_per_step == 4
    assert result.told.device == "cpu"
    assert result.throughput.unit == "images/s"
    assert "arguments: ['--name', 'two words']" in logs(measurement)
    (repeat,) = result.repeats
    assert repeat.data_wait_share is None
    assert repeat.ranks[0].samples == 3 * 4
    assert repeat.loss_last < repeat.loss_first
    assert not repeat.killed_after_end
    assert repeat.late_modules == []
    events = read_events(measurement.rank_file(1, 0))
    (window,) = [event for event in events if event["event"] == "window"]
    assert repeat.throughput == 12 / window["seconds"]
    assert check_against_raw(measurement) == ""


def test_a_result_that_tells_other_work_than_its_raw_files_is_named(write, measure):
    measurement = measure(write())
    path = measurement.result_file
    result = json.loads(path.read_text())
    result["told"]["flops_per_sample"] = 7.0
    path.write_text(json.dumps(result))
    changed = perfkit.Measurement.read(measurement.folder)
    assert check_against_raw(changed) == "repeat 1: the raw files give another told"


@pytest.mark.parametrize(
    ("before", "in_step", "code", "sentence"),
    [
        pytest.param(
            "",
            "if number == 4: break",
            "ended_early",
            "rank 0: the script ended after step 3 of 5; let it train longer, or measure fewer "
            "steps: -p measured_steps NUMBER",
            id="ends early",
        ),
        pytest.param(
            "import argparse; parser = argparse.ArgumentParser(prog='train.py'); "
            "parser.add_argument('--data', required=True); parser.parse_args()",
            "",
            "script_exit",
            "rank 0: the script exited with status 2 after step 0",
            id="lacks an argument",
        ),
    ],
)
def test_a_script_that_goes_wrong_has_its_own_sentence(
    write, measure, before, in_step, code, sentence
):
    assert failure_of(measure(write(before, in_step))) == (code, sentence)


@pytest.mark.slow
def test_a_script_that_trains_on_without_the_timer_is_stopped_at_the_time_limit(write, measure):
    script = write("import itertools\nfor _ in itertools.count(): time.sleep(0.1)")
    code, sentence = failure_of(measure(script, timeout=4))
    assert code == "timeout"
    assert sentence.startswith("repeat 1 took over 4 s without a call of timer.step")


@pytest.mark.slow
def test_a_script_that_tells_something_else_in_a_later_repeat_is_refused(write, measure):
    before = """
    again = FOLDER / "again"
    samples = 8 if again.exists() else 4
    again.touch()
    """
    measurement = measure(write(before), repeats=3)
    assert failure_of(measurement) == (
        "told_differs",
        "the training told samples_per_step = 8 in repeat 2, 4 in the first one; that "
        "is other work: give it another label (-p label NAME), or make it do the same in "
        "every run",
    )
    assert measurement.result.status == "partial"
    assert measurement.result.told.samples_per_step == 4


def test_a_script_that_changes_between_repeats_is_refused(write, measure):
    before = """
    with open(__file__, "a") as script:
        script.write("# changed\\n")
    """
    measurement = measure(write(before), repeats=3)
    code, sentence = failure_of(measurement)
    assert code == "script_changed"
    assert "train.py, or a module that it imports, was changed since the request" in sentence
    assert [repeat.status for repeat in measurement.result.repeats] == ["complete"]


@pytest.mark.parametrize(
    "in_step",
    [
        "try: timer.step(loss)\n    except SystemExit: time.sleep(60)\n    continue",
        pytest.param(
            "(number == 1) and __import__('atexit').register(time.sleep, 60)",
            marks=pytest.mark.slow,
        ),
    ],
    ids=["catches SystemExit", "hangs at exit"],
)
def test_a_script_that_goes_on_after_the_window_is_complete_and_killed(
    write, measure, monkeypatch, in_step
):
    monkeypatch.setattr(rank_processes, "AFTER_END_SECONDS", 1.0)
    result = measure(write(in_step=in_step)).result
    assert result.status == "complete", result.failure
    (repeat,) = result.repeats
    assert repeat.killed_after_end
    assert repeat.wall_seconds < 50


def test_of_a_script_that_prints_100_mb_the_log_keeps_beginning_and_end(write, measure):
    before = """
    line = "x" * 999 + "\\n"
    for _ in range(100):
        sys.stdout.write(line * 1000)
    print("all printed")
    """
    measurement = measure(write(before))
    assert measurement.result.status == "complete"
    text = logs(measurement)
    assert "\n[… 9" in text
    assert "\nall printed\n" in text
    assert len(text) < 1.1 * 2**20


def test_pauses_are_left_out_of_the_window_and_stored(write, measure):
    pause = "if number == 4:\n        with timer.pause(): time.sleep(0.5)"
    (repeat,) = measure(write(in_step=pause)).result.repeats
    assert repeat.pauses_seconds == pytest.approx(0.5, abs=0.2)
    assert repeat.ranks[0].window_seconds < 0.4


def test_an_interpreter_without_perfkits_packages_runs_a_script(
    write, measure, new_environment, tmp_path
):
    interpreter = new_environment()
    (packages,) = (tmp_path / "other").glob("lib/python*/site-packages")
    installed = [folder for folder in sys.path if folder.endswith("site-packages")]
    (packages / "installed.pth").write_text("\n".join(installed))
    for name in ("pydantic", "pydantic_core", "psutil"):
        (packages / f"{name}.py").write_text("raise ImportError('not installed here')\n")
    measurement = measure(write(), python=interpreter)
    assert measurement.result.status == "complete", logs(measurement)


TORCH_RANKS = """
import torch.distributed
torch.distributed.init_process_group("gloo")
"""
"""Lines that connect the ranks of a TORCH script."""
EXCHANGE = "torch.distributed.all_reduce(torch.ones(1))"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("in_step", "code", "sentence"),
    [
        pytest.param(
            "if RANK == 1: continue",
            "timer_on_some_ranks",
            "ranks that called timer.step: 0; that did not: 1; every rank must call it",
            id="timer on the first rank alone",
        ),
        pytest.param(
            f"{EXCHANGE}\n    if RANK == 1 and number == 4: sys.exit(5)",
            "script_exit",
            "rank 1: the script exited with status 5 after step 3",
            id="one rank exits",
        ),
    ],
)
def test_what_goes_wrong_on_one_rank_of_two_has_its_own_sentence(
    write, measure, monkeypatch, in_step, code, sentence
):
    monkeypatch.setattr(rank_processes, "AFTER_END_SECONDS", 2.0)
    measurement = measure(write(TORCH_RANKS, in_step), processes=2)
    assert failure_of(measurement) == (code, sentence), logs(measurement)


@pytest.mark.slow
@pytest.mark.parametrize(("seconds", "processes"), [(0.001, 2), (0.02, 1)])
def test_ranks_end_an_automatic_warm_up_after_the_same_step(
    write, measure, monkeypatch, seconds, processes
):
    """Steps of about 1 ms are at the limit of 1000 soon after they are steady."""
    monkeypatch.setattr(
        "perfkit.measuring.steady.is_warmed_up",
        lambda step_seconds, *_: len(step_seconds) >= 60,
    )
    before = TORCH_RANKS if processes == 2 else ""
    exchange = f"{EXCHANGE}; " if processes == 2 else ""
    script = write(before, f"{exchange}time.sleep({seconds})")
    measurement = measure(script, processes=processes, warmup_steps="auto")
    result = measurement.result
    assert result.status == "complete", result.failure
    warmups = []
    for rank in range(processes):
        events = read_events(measurement.rank_file(1, rank))
        warmups += [event for event in events if event["event"] == "warmup"]
    assert len({warmup["steps"] for warmup in warmups}) == 1
    first = warmups[0]
    assert first["ended_by"] == "steady"
    assert 60 < first["steps"] <= 1000
    steps = perfkit.load_steps(measurement.folder)
    for _rank, rows in steps.groupby("rank"):
        assert [*rows["measured"]] == [False] * first["steps"] + [True] * 3


JAX_RANKS = """
import os
import jax
import perfkit

jax.distributed.initialize(
    os.environ["PERFKIT_MEETING"], 2, int(os.environ["PERFKIT_RANK"])
)
assert jax.process_count() == 2

@jax.jit
def update(weights):
    loss, gradient = jax.value_and_grad(lambda weights: ((weights - 1) ** 2).sum())(weights)
    return loss, weights - 0.01 * gradient

weights = jax.numpy.zeros(8)
timer = perfkit.StepTimer(samples_per_step=4)
for _ in range(1_000_000):
    loss, weights = update(weights)
    timer.step(loss, result=weights)
"""
TENSORFLOW = """
import tensorflow as tf
import perfkit

weights = tf.Variable(tf.zeros((8, 1)))
optimizer = tf.keras.optimizers.SGD(0.01)

@tf.function
def update(rows):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(rows @ weights - 1))
    optimizer.apply(tape.gradient(loss, [weights]), [weights])
    return loss

timer = perfkit.StepTimer(samples_per_step=4)
for _ in range(1_000_000):
    timer.step(update(tf.ones((4, 8))))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "processes", "clock"),
    [(JAX_RANKS, 2, "watcher"), (TENSORFLOW, 1, "host")],
    ids=["JAX", "TensorFlow"],
)
def test_scripts_of_other_frameworks_are_measured(write, measure, text, processes, clock):
    """That of Paddle is in test_example_scripts.py."""
    measurement = measure(write(text=text), processes=processes)
    result = measurement.result
    assert result.status == "complete", (result.failure, logs(measurement))
    assert result.throughput.unit == "samples/s"
    assert result.told.step_clock == clock
    (repeat,) = result.repeats
    assert sum(rank.samples for rank in repeat.ranks) == 3 * 4 * processes
    assert repeat.loss_last < repeat.loss_first
    assert check_against_raw(measurement) == ""
