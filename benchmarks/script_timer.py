"""The cost of perfkit.StepTimer in a script of the user's."""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from runner import PAIRS, of_pairs
from turns import Turns

from perfkit.measuring.driver.supervised import RANK
from perfkit.measuring.paths import ROOT
from perfkit.measuring.system.scratch import Scratch
from perfkit.timing.job import Job

SCRIPT = str(ROOT / "benchmarks" / "own_script.py")
WARMUP, MEASURED = 10, 60
PASSIVE = {"OMP_WAIT_POLICY": "passive"}
"""Threads that spin after a step would slow the other side."""


def script():
    """Throughput of a PyTorch script by perfkit.StepTimer / of the same script without it, by
    two clock readings on a synchronized device. Both processes run at once and take their steps
    alternately; waiting times are excluded. A small GPT with batches of 8 x 64 tokens."""
    pairs = []
    for _run in range(2 * PAIRS):
        timed, bare = _in_turn()
        pairs.append((timed, bare))
        print(f"  {timed:.4g} / {bare:.4g} sequences/s", flush=True)
    return [of_pairs("with the timer / without it", pairs, "sequences/s")]


def _in_turn():
    """Return sequences/s of the script with the timer and without it."""
    with tempfile.TemporaryDirectory() as folder, Scratch() as scratch:
        job_file = scratch.folder / "job.json"
        job_file.write_text(json.dumps(asdict(_job(folder))))
        turns = Turns(Path(folder))
        numbers = [str(WARMUP), str(MEASURED)]
        rank = [sys.executable, "-m", RANK, str(job_file)]
        timed = _start([*rank, SCRIPT, "timer", *numbers], turns, "a")
        bare = _start([sys.executable, SCRIPT, "bare", *numbers], turns, "b")
        turns.give(WARMUP + MEASURED + 1)
        printed, _errors = bare.communicate()
        statuses = timed.wait(), bare.returncode
        assert statuses == (0, 0), statuses
        return _timed_speed(folder, turns), float(printed)


def _job(folder):
    return Job(
        task="train",
        framework="torch",
        device="cpu",
        ranks=1,
        rank_variable="RANK",
        raw_folder=folder,
        warmup_steps=WARMUP,
        measured_steps=MEASURED,
        measured_seconds=0,
        warmup_limit=None,
        warmup_seconds=None,
        static_modules=[],
        cores=[],
    )


def _start(command, turns, side):
    return subprocess.Popen(
        command,
        env=os.environ | turns.variables(side) | PASSIVE,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def _timed_speed(folder, turns):
    """Return samples/s of the window in the raw file, without the waiting for turns."""
    lines = (Path(folder) / "rank0.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    (window,) = [event for event in events if event["event"] == "window"]
    waited = sum(turns.waits("a")[WARMUP : WARMUP + MEASURED])
    return window["samples"] / (window["seconds"] - waited)
