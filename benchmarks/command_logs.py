"""Commands timed by their own logs: cross-checks, and A with A.

python benchmarks/command_logs.py logs [TRAINER …] [--runs N]: the throughput by a public
trainer's own log / by perfkit.StepTimer over the same steps of the same process, with its
interval; of those of TRAINERS that this interpreter has.

python benchmarks/command_logs.py same [--runs N]: compares a command live with itself, and with
a copy of 5 % longer steps, each N times, and counts how often the two are called different.
"""

import argparse
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from runner import of_pairs, of_trials

import perfkit
from perfkit.analysis.comparison.interleaved_plan import plan_interleaved
from perfkit.analysis.comparison.interleaved_run import measure_interleaved
from perfkit.analysis.comparison.stored import read_comparison
from perfkit.measuring.paths import ROOT

FOLDER = ROOT / "benchmarks" / "trainers"
TRAINERS = {
    "hugging_face": ("transformers", 8, (1, 10)),
    "keras_fit": ("keras", 64, (1,)),
    "lightning_fit": ("lightning", 64, (1, 10)),
    "mmengine_runner": ("mmengine", 64, (1, 10)),
}
"""Script -> its package, the samples of a step, and the steps from one print to the next."""
TRAINER = """
import os, sys, time
os.environ["OPENBLAS_NUM_THREADS"] = "1"
import numpy as np

matrix = np.random.rand(400, 400)
for step in range(1, 100_000):
    began = time.monotonic()
    for _product in range(4):
        matrix @ matrix
    time.sleep(float(sys.argv[1]) * (time.monotonic() - began))
    print(f"step {step} loss: 2.5", flush=True)
"""
"""Computes, and sleeps for a share of the time that this took."""


def by_log_and_timer(trainer: str, every: int) -> tuple[float, float]:
    """Return the throughput of a trainer by its log and, over the same steps, by its timer."""
    _package, samples, _everies = TRAINERS[trainer]
    with tempfile.TemporaryDirectory() as folder:
        request = {
            "command": f"{sys.executable} {FOLDER / trainer}.py {every}",
            "directory": folder,
            "outputs_dir": f"{folder}/outputs",
            "device": "cpu",
            "repeats": 1,
            "warmup_steps": 20,
            "measured_steps": 100,
            "measured_seconds": 5,
            "batch_size": samples,
        }
        plan = perfkit.plan("command", request)
        result = perfkit.measure(plan.config, plan.protocol).result
        assert result.status == "complete", result.failure
        ends = {}
        for line in Path(folder, "ends.txt").read_text().splitlines():
            step, seconds = line.split()
            ends[int(step)] = float(seconds)
    (repeat,) = result.repeats
    first, last = repeat.warmup.steps, repeat.warmup.steps + repeat.measured_steps
    by_timer = samples * repeat.measured_steps / (ends[last] - ends[first])
    clock = result.told.step_clock
    print(f"  {repeat.throughput:.5g} / {by_timer:.5g} samples/s, by {clock}", flush=True)
    return repeat.throughput, by_timer


def logs(trainers: list[str], runs: int) -> None:
    for trainer in trainers or TRAINERS:
        package, _samples, everies = TRAINERS[trainer]
        if not find_spec(package):
            print(f"{trainer}: {package} is not installed")
            continue
        for every in everies:
            name = f"{trainer}, print of {every} steps: by its log / by the timer"
            print(name)
            pairs = [by_log_and_timer(trainer, every) for _run in range(runs)]
            of_pairs(name, pairs, "samples/s")


def same(runs: int) -> None:
    for name, share in (("A with A", 0.0), ("A with steps that are 5 % longer", 0.05)):
        print(name)
        trials = [are_called_different(share) for _run in range(runs)]
        of_trials(f"{name}: called different", trials)


def are_called_different(share: float) -> bool:
    """Compare TRAINER live with itself, sleeping for a share of each step."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "train.py").write_text(TRAINER)
        shared = {
            "command": f"{sys.executable} train.py",
            "directory": folder,
            "outputs_dir": f"{folder}/outputs",
            "device": "cpu",
            "repeats": 6,
            "warmup_steps": 3,
            "measured_steps": 20,
            "measured_seconds": 0,
            "batch_size": 4,
        }
        # The second word tells the two variants apart and has no effect.
        plan = plan_interleaved("command", ["flags=0 a", f"flags={share} b"], shared)
        measure_interleaved(plan)
        (pair,) = read_comparison(plan.folder).pairs
    print(f"  {pair.ratio:.5f}, {pair.verdict}", flush=True)
    return pair.verdict in ("faster", "slower")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("logs", "same"))
    parser.add_argument("trainers", nargs="*", metavar="TRAINER")
    parser.add_argument("--runs", type=int, default=6)
    given = parser.parse_args()
    if given.what == "logs":
        logs(given.trainers, given.runs)
    else:
        same(given.runs)
