"""The suite's own cost: timer, driver, notebook."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

from measuring import measured
from runner import PAIRS, PIXELS, SAMPLES, TESTS, of_pairs, of_values
from turns import Turns

sys.path.insert(0, TESTS)
from fake_trainer import launcher_command

import perfkit
from perfkit.core.driver import workers as launch
from perfkit.core.driver.settings import worker_environment
from perfkit.core.frameworks.devices import CpuDevice
from perfkit.core.frameworks.facts import NodeRank
from perfkit.core.paths import ROOT
from perfkit.core.worker.loop import train
from perfkit.core.worker.rank import RawFile

PERFKIT = Path(sys.executable).with_name("perfkit")


def timer():
    """Cost of the timer per step, raw file included: the training loop with 20,000 empty steps
    per run."""
    steps = 20_000
    nothing = SimpleNamespace(
        backward=lambda _batch, *, sync_gradients: 1.0, update=lambda: None
    )

    def step_microseconds():
        with tempfile.TemporaryDirectory() as folder:
            raw = RawFile(Path(folder) / "raw.jsonl")
            began = time.perf_counter()
            options = {"samples_per_step": 1, "accumulate": 1, "read_losses_at_once": True}
            options |= {"warmup_steps": 0, "measured_steps": steps}
            train(nothing, iter(range(steps)), CpuDevice(), raw.write, **options)
            return (time.perf_counter() - began) / steps * 1e6

    values = [step_microseconds() for _run in range(PAIRS)]
    return [of_values("each step", values, "µs")]


def transparency():
    """Throughput through the notebook / of a bare Paddle loop. Both processes run at once and
    take their steps alternately; waiting times are excluded. The bare loop is Paddle's
    ResNet-50 with DALI, without perfkit. Batch 4, 160 px."""
    # Smaller images than 224 px give more steps, with a larger share of the suite's cost.
    pairs = []
    for _run in range(2 * PAIRS):
        pairs.append(_in_turn(size=min(160, PIXELS), batch=4, warmup=6, steps=24))
        print("  {:.4g} / {:.4g} images/s".format(*pairs[-1]), flush=True)
    return [of_pairs("notebook / bare loop", pairs, "images/s")]


def _in_turn(size, batch, warmup, steps):
    """Return images/s through the notebook and of the bare loop."""
    with tempfile.TemporaryDirectory() as folder:
        turns = Turns(Path(folder))
        request = {"device": "cpu", "image_size": size, "batch_size": batch, "repeats": 1}
        request |= {"warmup_steps": warmup, "measured_steps": steps, "data_dir": SAMPLES}
        request |= {"outputs_dir": folder}
        options = [word for pair in request.items() for word in ("-p", *map(str, pair))]
        suite = [sys.executable, "-m", "papermill", str(ROOT / "notebooks" / "resnet50.ipynb")]
        # The suite reads one batch before its first step, so the bare loop takes one step more.
        numbers = map(str, (size, batch, warmup + 1, steps))
        bare = [
            sys.executable,
            str(ROOT / "benchmarks" / "bare_loop.py"),
            str(SAMPLES),
            *numbers,
        ]
        config = perfkit.plan("resnet50", {"device": "cpu", "data_dir": str(SAMPLES)}).config
        settings = worker_environment(config, NodeRank()) | turns.variables("b")
        quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        notebook = os.environ | turns.variables("a")
        with (
            subprocess.Popen(
                [*suite, f"{folder}/out.ipynb", *options], env=notebook, **quiet
            ) as measured_process,
            subprocess.Popen(bare, env=settings, **quiet) as bare_process,
        ):
            turns.give(warmup + 1 + steps)
            statuses = measured_process.wait(), bare_process.wait()
        assert statuses == (0, 0), statuses
        (result,) = Path(folder).glob("*/result.json")
        # Batch 0 precedes the first step. The end of the bare loop's last step is not
        # observable from outside, so both sides exclude that step.
        window = slice(warmup + 1, warmup + steps)
        suite_steps = perfkit.load_steps(result.parent)["seconds"][warmup : warmup + steps - 1]
        suite_seconds = sum(suite_steps) - sum(turns.waits("a")[window])
        bare_seconds = sum(turns.step_seconds("b")[window])
        return batch * (steps - 1) / suite_seconds, batch * (steps - 1) / bare_seconds


def driver():
    """Driver's share of a core while its workers start and train ResNet-50 with batch 4."""

    def percent():
        began, used = time.perf_counter(), time.process_time()
        measured(input="synthetic", batch_size=4, measured_steps=20)
        return (time.process_time() - used) / (time.perf_counter() - began) * 100

    values = [percent() for _run in range(min(PAIRS, 3))]
    return [of_values("the driver", values, "% of a core")]


def driver_overhead():
    """Wall time of perfkit.measure without its trainer. A fake trainer of 0.5 s (to 0.01 s)
    replaces launcher and workers, so Paddle's start is excluded. One repeat: from the driver's
    start to the trainer's (environment, id, folders, supervisor), and from the trainer's last
    event to the stored result (exit, cleanup, logs, numbers, result.json). The cost of each
    further repeat follows from interleaved measurements of 6 repeats."""
    trainer_seconds, further = 0.5, 5

    def seconds(repeats):
        request = {"device": "cpu", "input": "synthetic", "repeats": repeats}
        with tempfile.TemporaryDirectory() as outputs:
            plan = perfkit.plan("resnet50", request | {"outputs_dir": outputs})
            began = time.perf_counter()
            result = perfkit.measure(plan.config, plan.protocol).result
            taken = time.perf_counter() - began
        assert result.status == "complete", result.failure
        return taken - repeats * trainer_seconds

    only, each = [], []
    with patch.object(launch, "launcher_command", launcher_command(trainer_seconds)):
        for pair in range(PAIRS):
            turns = (1, 1 + further) if pair % 2 == 0 else (1 + further, 1)
            taken = {repeats: seconds(repeats) for repeats in turns}
            only.append(taken[1])
            each.append((taken[1 + further] - taken[1]) / further)
            print(f"  {only[-1]:.3f} s, {each[-1]:.3f} s each further", flush=True)
    return [
        of_values("a measurement of one repeat", only, "s"),
        of_values("each further repeat", each, "s"),
    ]


def overhead():
    """Share of a warm `make report` that is not training: starts of Paddle and its launcher,
    papermill, the page."""
    with tempfile.TemporaryDirectory() as outputs:
        request = {"device": "cpu", "protocol": "quick", "outputs_dir": outputs}
        request |= {"data_dir": SAMPLES, "image_size": PIXELS, "repeats": min(PAIRS, 5)}
        options = [word for pair in request.items() for word in ("-p", *map(str, pair))]
        began = time.perf_counter()
        subprocess.run([PERFKIT, "run", "resnet50", *options], check=True, capture_output=True)
        wall = time.perf_counter() - began
        (result,) = Path(outputs).glob("*/result.json")
        training = perfkit.load_steps(result.parent)["seconds"].sum()
    return [
        of_values("all of it", [wall], "s"),
        of_values("not training", [(1 - training / wall) * 100], "%"),
    ]
