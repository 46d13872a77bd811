"""A fake trainer of known run time that replaces launcher and framework.

The worker, with its raw file, loop and failures, is perfkit's own. `planted(seconds)` returns a
sitecustomize.py that makes every notebook kernel start this file instead: a repeat takes
`seconds` from the start of the process to its last event.
"""

import json
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np

import perfkit.core.driver.workers
from perfkit.core.frameworks import FRAMEWORKS
from perfkit.core.results.schema import Effective
from perfkit.core.worker import rank as worker
from perfkit.timing.devices import CpuDevice

PLANTED = """
import sys
if "ipykernel_launcher" in sys.orig_argv:
    sys.path.append({folder!r})
    import fake_trainer

    fake_trainer.plant({seconds!r})
"""


def planted(seconds):
    return PLANTED.format(folder=str(Path(__file__).parent), seconds=seconds)


def plant(seconds):
    """Make measurements of this process use the fake trainer."""
    perfkit.core.driver.workers.launcher_command = launcher_command(seconds)


def launcher_command(seconds):
    """Return a replacement for perfkit.core.driver.workers.launcher_command."""

    def command(config, place, _log_dir, _job, worker_command):
        rank = f"{FRAMEWORKS[config.framework].rank_variable}={place.node}"
        return ["env", rank, sys.executable, __file__, str(seconds), worker_command[-1]]

    return command


def running_seconds():
    """Return the seconds since this process started."""
    _pid_and_name, _parenthesis, fields = Path("/proc/self/stat").read_text().rpartition(")")
    start_ticks = int(fields.split()[19])
    uptime, _idle = Path("/proc/uptime").read_text().split()
    return float(uptime) - start_ticks / os.sysconf("SC_CLK_TCK")


class Trainer:
    """Sleeps in its steps until the process is `seconds` old; its loss falls from 7."""

    skipped_steps = 0
    waits_in_update = False
    loss_scale = None

    def __init__(self, seconds, steps):
        self.seconds, self.steps, self.step = seconds, steps, 0
        self.step_seconds = 0.0

    def backward(self, batch, *, sync_gradients):
        return 7.0 - self.step / self.steps

    def update(self):
        if not self.step:
            left = self.seconds - running_seconds()
            self.step_seconds = max(0.001, left / self.steps)
            print("step_seconds", self.step_seconds, flush=True)
            self.due = time.monotonic()
        self.step += 1
        # With absolute deadlines, a late sleep shortens the next one.
        self.due += self.step_seconds
        time.sleep(max(0.0, self.due - time.monotonic()))

    def zero_grad(self):
        pass


class Inspector:
    def __init__(self, trainer):
        self.trainer = trainer

    def evaluate(self, batch):
        return self.trainer.backward(batch, sync_gradients=False), 0.0

    def effective(self, batch):
        return Effective(
            precision="fp32",
            device="cpu",
            dtypes={},
            threads={},
            variables={},
            parameters=1,
            optimizer_settings="none: a fake",
            tf32=False,
            loss_scaling=None,
        )


class Workloads:
    """Has no workloads, because measuring peaks takes time."""

    def __init__(self, _config):
        pass

    def matmul(self, size):
        raise NotImplementedError("a fake has no peak")


def tensors(batches, _config):
    for batch in batches:
        yield tuple(np.asarray(array) for array in batch)


def backend(seconds, steps):
    return SimpleNamespace(
        open_device=lambda _config: CpuDevice(),
        Trainer=lambda _config: Trainer(seconds, steps),
        Inspector=Inspector,
        Workloads=Workloads,
        largest_of_ranks=lambda value: value,
        tensors=tensors,
    )


def main(seconds, job_file):
    protocol = json.loads(job_file.read_text())["protocol"]
    steps = protocol["warmup_steps"] + protocol["measured_steps"]
    fake = backend(float(seconds), steps)
    for framework in FRAMEWORKS:
        sys.modules[f"perfkit.core.frameworks.{framework}.backend"] = fake
    worker.main(job_file)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
