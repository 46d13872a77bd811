"""Driver processes for tests, and the faults that tests plant in their workers."""

import json
import subprocess
import sys
from pathlib import Path

from conftest import IN_WORKER

AT_BATCHES = (
    IN_WORKER
    + """
    import os, signal, time
    import perfkit.inputs.synthetic as synthetic
    real = synthetic.batches

    def lose():
        # Changes the loss itself, because Paddle's CPU kernels turn NaN images or weights into
        # zeros, which keep the loss finite.
        script = sys.modules["__main__"]
        loss_of = script.loss_of
        script.loss_of = lambda *given: loss_of(*given) * float("nan")

    def batches(config, rank):
        for number, batch in enumerate(real(config, rank)):
            {fault}
            yield batch

    synthetic.batches = batches
"""
)
"""Runs `fault` before a batch of a worker's synthetic input; batch 0 precedes training."""

# Python keeps ignoring SIGINT if its parent did, as for a background job.
DRIVER = """
import json, signal, sys, perfkit
signal.signal(signal.SIGINT, signal.default_int_handler)
plan = perfkit.plan("resnet50", json.loads(sys.argv[1]))
print(perfkit.measure(plan.config, plan.protocol).result.status)
"""


def start_driver(parameters):
    """Start a driver process; return it and its log file beside the results."""
    log = Path(parameters["outputs_dir"]).with_name("driver.log")
    with log.open("w") as stream:
        command = [sys.executable, "-c", DRIVER, json.dumps(parameters)]
        return subprocess.Popen(command, stdout=stream, stderr=subprocess.STDOUT), log


def faked(seconds):
    """Return code that makes a driver's repeats take `seconds` instead of training."""
    path = f"import sys; sys.path.append({str(Path(__file__).parent)!r})\n"
    return f"{path}import fake_trainer; fake_trainer.plant({seconds})\n"


def started_steps(outputs):
    """Return the raw files below `outputs` with at least one step."""
    return [f for f in outputs.glob("*/repeats/*/*.jsonl") if '"step"' in f.read_text()]
