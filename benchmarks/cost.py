"""The suite's own cost: timer, driver, notebook."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from measuring import as_options, measured
from runner import PAIRS, PIXELS, SAMPLES, TESTS, of_pairs, of_values
from turns import Turns

sys.path.insert(0, TESTS)
from fake_trainer import launcher_command
from trained import measured_here

import perfkit
from perfkit.measuring.driver import workers as launch
from perfkit.measuring.driver.settings import rank_environment
from perfkit.measuring.paths import ROOT
from perfkit.training.frameworks import NodeRank

TRAINER_SECONDS = 0.5
QUIET = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)


def timer():
    """Cost of perfkit.StepTimer per step, raw file included: a loop of 20,000 empty steps in a
    rank of a measurement, per run."""
    values = [_microseconds_of_a_step(20_000) for _run in range(PAIRS)]
    return [of_values("each step", values, "µs")]


def _microseconds_of_a_step(steps):
    # The timer asks the framework that the script has imported for the device.
    import paddle  # noqa: F401

    with measured_here("paddle", measured_steps=steps) as run:
        step_timer = perfkit.StepTimer(samples_per_step=1, exits=False)
        for _batch in step_timer.batches(range(1 + steps)):
            step_timer.step(1.0)
    return run.window["seconds"] / steps * 1e6


def transparency():
    """Throughput through the notebook / of a bare Paddle loop. Both processes run at once and
    take their steps alternately; waiting times are excluded. The bare loop is Paddle's
    ResNet-50 with DALI, without perfkit. Batch 4, 160 px."""
    # Smaller images than 224 px give more steps, with a larger share of the suite's cost.
    loop = Loop(size=min(160, PIXELS), batch=4, warmup=6, steps=24)
    pairs = []
    for _run in range(2 * PAIRS):
        suite, bare = _in_turn(loop)
        pairs.append((suite, bare))
        print(f"  {suite:.4g} / {bare:.4g} images/s", flush=True)
    return [of_pairs("notebook / bare loop", pairs, "images/s")]


class Loop(NamedTuple):
    """A training: image size, batch, and numbers of warm-up and measured steps."""

    size: int
    batch: int
    warmup: int
    steps: int


def _in_turn(loop):
    """Return images/s through the notebook and of the bare loop."""
    with tempfile.TemporaryDirectory() as folder:
        turns = Turns(Path(folder))
        with (
            _start_notebook(loop, folder, turns.variables("a")) as suite_process,
            _start_bare_loop(loop, turns.variables("b")) as bare_process,
        ):
            turns.give(loop.warmup + 1 + loop.steps)
            statuses = suite_process.wait(), bare_process.wait()
        assert statuses == (0, 0), statuses
        (result,) = Path(folder).glob("*/result.json")
        # Batch 0 precedes the first step. The end of the bare loop's last step is not
        # observable from outside, so both sides exclude that step.
        seconds = perfkit.load_steps(result.parent)["seconds"]
        suite_seconds = sum(seconds[loop.warmup : loop.warmup + loop.steps - 1])
        window = slice(loop.warmup + 1, loop.warmup + loop.steps)
        suite_seconds -= sum(turns.waits("a")[window])
        bare_seconds = sum(turns.step_seconds("b")[window])
        images = loop.batch * (loop.steps - 1)
        return images / suite_seconds, images / bare_seconds


def _start_notebook(loop, folder, variables):
    request = {
        "device": "cpu",
        "image_size": loop.size,
        "batch_size": loop.batch,
        "repeats": 1,
        "warmup_steps": loop.warmup,
        "measured_steps": loop.steps,
        "measured_seconds": 0,
        "data_dir": SAMPLES,
        "outputs_dir": folder,
    }
    notebook = str(ROOT / "notebooks" / "resnet50.ipynb")
    command = [sys.executable, "-m", "papermill", notebook, f"{folder}/out.ipynb"]
    command += as_options(request)
    return subprocess.Popen(command, env=os.environ | variables, **QUIET)


def _start_bare_loop(loop, variables):
    script = str(ROOT / "benchmarks" / "bare_loop.py")
    # The suite reads one batch before its first step, so the bare loop takes one step more.
    numbers = (loop.size, loop.batch, loop.warmup + 1, loop.steps)
    command = [sys.executable, script, str(SAMPLES), *map(str, numbers)]
    config = perfkit.plan("resnet50", {"device": "cpu", "data_dir": str(SAMPLES)}).config
    scratch = Path(tempfile.mkdtemp())
    environment = rank_environment(config, NodeRank(), scratch)
    return subprocess.Popen(command, env=environment | variables, **QUIET)


def driver():
    """Driver's share of a core while its workers start and train ResNet-50 with batch 4."""
    values = []
    for _run in range(min(PAIRS, 3)):
        began, used_before = time.perf_counter(), time.process_time()
        measured(input="synthetic", batch_size=4, measured_steps=20)
        used = time.process_time() - used_before
        values.append(used / (time.perf_counter() - began) * 100)
    return [of_values("the driver", values, "% of a core")]


def driver_overhead():
    """Wall time of perfkit.measure without its trainer. A fake trainer of 0.5 s (to 0.01 s)
    replaces launcher and workers, so Paddle's start is excluded. One repeat: from the driver's
    start to the trainer's (environment, id, folders, supervisor), and from the trainer's last
    event to the stored result (exit, cleanup, logs, numbers, result.json). The cost of each
    further repeat follows from interleaved measurements of 6 repeats."""
    further = 5
    only, each = [], []
    with patch.object(launch, "launcher_command", launcher_command(TRAINER_SECONDS)):
        for pair in range(PAIRS):
            turns = (1, 1 + further) if pair % 2 == 0 else (1 + further, 1)
            seconds = {repeats: _seconds_without_trainer(repeats) for repeats in turns}
            only.append(seconds[1])
            each.append((seconds[1 + further] - seconds[1]) / further)
            print(f"  {only[-1]:.3f} s, {each[-1]:.3f} s each further", flush=True)
    return [
        of_values("a measurement of one repeat", only, "s"),
        of_values("each further repeat", each, "s"),
    ]


def _seconds_without_trainer(repeats):
    request = {"device": "cpu", "input": "synthetic", "repeats": repeats}
    with tempfile.TemporaryDirectory() as outputs:
        plan = perfkit.plan("resnet50", request | {"outputs_dir": outputs})
        began = time.perf_counter()
        result = perfkit.measure(plan.config, plan.protocol).result
        seconds = time.perf_counter() - began
    assert result.status == "complete", result.failure
    return seconds - repeats * TRAINER_SECONDS
