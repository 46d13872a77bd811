"""A fake training of known run time that replaces launcher and framework.

The rank, with its raw file, timer and failures, is perfkit's own. `planted(seconds)` returns a
sitecustomize.py that makes every notebook kernel start this file instead: a repeat takes
`seconds` from the start of the process to its last event.
"""

import json
import os
import sys
import time
from pathlib import Path
from types import ModuleType

import perfkit
from perfkit.timing import rank as rank_of_script
from perfkit.timing.session import current_session
from perfkit.training.frameworks import FRAMEWORKS
from perfkit.training.options import Options

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
    """Make measurements of this process use the fake training."""
    import perfkit.measuring.driver.workers

    perfkit.measuring.driver.workers.launcher_command = launcher_command(seconds)


def launcher_command(seconds):
    """Return a replacement for perfkit.measuring.driver.workers.launcher_command."""

    from perfkit.measuring.driver.supervised import RANK

    def command(config, place, _log_dir, _job, worker_command):
        rank = f"{FRAMEWORKS[config.framework].rank_variable}={place.node}"
        # … python -m perfkit.timing.rank JOB -m MODULE ARGUMENTS
        after = worker_command.index(RANK) + 1
        job, _option, _module, *arguments = worker_command[after:]
        start = [sys.executable, __file__, str(seconds), job, config.framework]
        return ["env", rank, *start, *arguments]

    return command


def running_seconds():
    """Return the seconds since this process started."""
    _pid_and_name, _parenthesis, fields = Path("/proc/self/stat").read_text().rpartition(")")
    start_ticks = int(fields.split()[19])
    uptime, _idle = Path("/proc/uptime").read_text().split()
    return float(uptime) - start_ticks / os.sysconf("SC_CLK_TCK")


class Framework(ModuleType):
    """A framework that trains on a CPU. It has no workloads, because measuring peaks takes
    time."""

    __version__ = "0.0"

    def get_device(self):
        return "cpu"


def new_batches(options):
    if options.input == "dali":
        import numpy as np

        from perfkit.inputs import Batches, dali

        return Batches(dali.batches(options, options.rank, ""), np.asarray)
    from perfkit.inputs import synthetic

    return synthetic.batches(options, options.rank)


def train(seconds, framework, words):
    """Sleep in steps until the process is `seconds` old; the loss falls from 7."""
    options = Options.parse(framework, words)
    session = current_session()
    steps = session.job.warmup_steps + session.job.measured_steps
    timer = perfkit.StepTimer(options.samples_per_step, "images", precision="fp32", exits=False)
    timer.note(
        precision="fp32",
        dtypes={},
        tf32=False,
        loss_scaling=None,
        threads={},
        variables={},
        optimizer_settings="none: a fake",
        settings={},
    )
    batches = new_batches(options)
    # The first batch of a real training only shows the precision.
    next(batches)
    step_seconds = due = 0.0
    for step, _batch in enumerate(timer.batches(batches)):
        if not step:
            step_seconds = max(0.001, (seconds - running_seconds()) / steps)
            print("step_seconds", step_seconds, flush=True)
            due = time.monotonic()
        # With absolute deadlines, a late sleep shortens the next one.
        due += step_seconds
        time.sleep(max(0.0, due - time.monotonic()))
        timer.step(7.0 - step / steps)
    timer.note(evaluation={"loss": 6.0, "accuracy": 0.0})


def main(seconds, job_file, framework, *words):
    """Run this file as a rank of the job."""
    sys.modules[framework] = Framework(framework)
    arguments = json.dumps([float(seconds), framework, words])
    rank_of_script.main(Path(job_file), [__file__, arguments])


if __name__ == "__main__":
    if current_session():
        train(*json.loads(sys.argv[1]))
    else:
        main(*sys.argv[1:])
