"""The effect of settings, inputs and a slow rank, as ratios of throughputs."""

import os
import subprocess
import sys
import tempfile
from functools import partial
from unittest.mock import patch

from measuring import in_ranks, measured, planted, result_of
from runner import PAIRS, SAMPLES, of_pairs, of_trials, paired


def cpu_settings():
    """Throughput with perfkit's CPU settings (threads, MKL's path) / of Paddle as installed;
    batch 8, synthetic input."""
    request = {"batch_size": 8, "input": "synthetic", "warmup_steps": 1, "measured_steps": 3}
    tuned = partial(measured, **request, cpu_tuning=True)
    untuned = partial(measured, **request, cpu_tuning=False)
    return [paired("with / without", tuned, untuned, "images/s", min(PAIRS, 3))]


INPUT_ALONE = """
import time
from perfkit.training.options import Options
from perfkit.training.paddle.train import new_batches, open_device
options = Options.parse("paddle")
open_device(options)
batches, count = new_batches(options), 40
for _ in range(4):
    next(batches)
began = time.perf_counter()
for _ in range(count):
    next(batches)
print(options.batch_size * count / (time.perf_counter() - began), flush=True)
"""
INPUT = ["--model", "resnet50", "--device", "cpu", "--batch-size", "32"]
INPUT += ["--image-size", "224", "--layout", "NCHW", "--data-dir", str(SAMPLES)]
INPUT += ["--dataloader-workers", "2", "--dali-threads", "2"]


def inputs():
    """Samples/s of DALI on the CPU / of Paddle's DataLoader, without training: the same files,
    2 threads or processes."""

    def alone(name):
        command = [sys.executable, "-c", INPUT_ALONE, *INPUT, "--input", name]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return float(done.stdout)

    dali, dataloader = partial(alone, "dali"), partial(alone, "dataloader")
    return [paired("DALI / DataLoader", dali, dataloader, "samples/s", min(PAIRS, 5))]


SLEEPING = """
import time
import perfkit.inputs.synthetic as synthetic
real = synthetic.batches

def batches(options, rank):
    for batch in real(options, rank):
        time.sleep({seconds}[rank])
        yield batch

synthetic.batches = batches
"""
"""Makes each rank sleep for a known time per batch, longer than all other work."""


TWO_RANKS = {
    "processes": 2,
    "input": "synthetic",
    "batch_size": 2,
    "image_size": 32,
    "warmup_steps": 1,
    "measured_steps": 8,
}


def _two_ranks(*seconds):
    """Measure two ranks that sleep for so many seconds per batch."""
    with tempfile.TemporaryDirectory() as folder:
        variables = planted(folder, in_ranks(SLEEPING.format(seconds=seconds)))
        with patch.dict(os.environ, variables):
            return result_of(**TWO_RANKS)


def straggler():
    """Throughput of two ranks that need 0.5 and 0.6 s per batch / of two that need 0.5 s; the
    ratio by arithmetic, for a step 0.1 s longer; and the share of runs in which the slower rank
    was named."""
    usual, slow = 0.5, 0.6
    predicted, named = [], []

    def without():
        throughput = _two_ranks(usual, usual).throughput.value
        samples = TWO_RANKS["processes"] * TWO_RANKS["batch_size"]
        step_seconds = samples / throughput
        # Every rank waits for the slowest one: a step takes longer by its extra time.
        longer = step_seconds + slow - usual
        predicted.append((samples / longer, throughput))
        return throughput

    def with_it():
        result = _two_ranks(usual, slow)
        (repeat,) = result.repeats
        alone = ", ".join(f"{rank.compute_seconds:.3f}" for rank in repeat.ranks)
        print(f"  straggler: rank {repeat.straggler}; alone {alone} s; ", end="")
        print(f"data wait {repeat.data_wait_share:.0%}", flush=True)
        named.append(repeat.straggler)
        return result.throughput.value

    return [
        paired("with a slow rank / without", with_it, without, "images/s", min(PAIRS, 5)),
        of_pairs("by arithmetic", predicted, "images/s"),
        of_trials("the slower rank was named", [rank == 1 for rank in named]),
    ]
