"""A sweep of real training, killed with SIGKILL at random times and resumed to its end.

python benchmarks/kills.py [KILLS [SEED]] [--slurm] [--longest SECONDS]; defaults: 50, a random
seed, which is printed, and kills up to 25 s after the start; a busy machine needs more. Six
configurations of small images differ in batch size, input and processes. After every kill all
results are read, and raw files of finished repeats must be unchanged; at the end the
measurements must be those of an undisturbed sweep. On this machine, no process may be left
10 s after a kill; with --slurm, on a cluster of two nodes on this machine, Slurm's jobs
continue, and none may be left at the end. Takes half an hour on 2 cores.
"""

import argparse
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from made.clusters import slurm_cluster
from made.results import finished_repeats

PERFKIT = Path(sys.executable).with_name("perfkit")
ENDING_SECONDS = 10.0
SWEEP = {
    "notebook": "resnet50",
    "protocol": "quick",
    "parameters": {"device": "cpu", "image_size": 32, "repeats": 8}
    | {"warmup_steps": 1, "measured_steps": 2, "measured_seconds": 0},
    "matrix": {"batch_size": [2, 4], "input": ["dali", "synthetic"], "processes": [1, 2]},
    "exclude": [{"batch_size": 4, "processes": 2}],
}
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


class Trial:
    """A sweep in a scratch folder, whose name is in the command of each of its processes."""

    def __init__(self, scratch, cluster):
        self.scratch = scratch
        self.cluster = cluster
        self.file = scratch / "six.yaml"
        self.file.write_text(json.dumps(SWEEP))
        places = {"TMPDIR": str(scratch), "JUPYTER_RUNTIME_DIR": str(scratch)}
        self.environment = os.environ | places
        if cluster:
            self.environment |= cluster.environment

    def start(self, outputs, **settings):
        command = [PERFKIT, "sweep", self.file, "-p", "outputs_dir", outputs]
        if self.cluster:
            command.append("--slurm")
        settings |= {"stdin": subprocess.DEVNULL, "env": self.environment}
        return subprocess.Popen(command, **settings)

    def processes(self):
        processes = []
        for process in psutil.process_iter(["cmdline"]):
            command = " ".join(process.info["cmdline"] or [])
            if str(self.scratch) in command:
                processes.append(process)
        return processes

    def left_after_kill(self):
        """The number of processes left. Slurm's jobs are meant to continue."""
        if self.cluster:
            return 0
        deadline = time.monotonic() + ENDING_SECONDS
        while self.processes() and time.monotonic() < deadline:
            time.sleep(0.1)
        return len(self.processes())

    def left_at_the_end(self):
        """The number of Slurm jobs and processes left."""
        if not self.cluster:
            return len(self.processes())
        self.cluster.wait_idle()
        return len(self.cluster.output("squeue", "--noheader").splitlines())


def main(kills, seed, longest, trial):
    chance = random.Random(seed)
    disturbed, whole = trial.scratch / "disturbed", trial.scratch / "whole"
    earlier, rerun, ended, left = {}, 0, 0, 0
    for number in range(1, kills + 1):
        seconds = chance.uniform(0.2, longest)
        process = trial.start(disturbed, **QUIET)
        time.sleep(seconds)
        ended += process.poll() is not None
        process.kill()
        process.wait()
        left += trial.left_after_kill()
        finished = finished_repeats(disturbed)
        rerun += replaced(earlier, finished)
        earlier = finished
        print(f"  kill {number} after {seconds:4.1f} s: {len(finished)} raw files", flush=True)
    status = trial.start(disturbed).wait()
    rerun += replaced(earlier, finished_repeats(disturbed))
    undisturbed = trial.start(whole).wait()
    left += trial.left_at_the_end()
    ids, expected = measurements(disturbed), measurements(whole)
    print(f"{kills} kills, {ended} of them after the end; exit {status} and {undisturbed}")
    print(f"raw files of finished repeats that were replaced: {rerun}")
    print(f"processes or Slurm jobs left: {left}")
    print(f"measurements: {len(ids)}; the same as undisturbed: {ids == expected}")
    sys.exit(bool(status or undisturbed or rerun or left or ids != expected))


def replaced(earlier, now):
    """Return the number of raw files of finished repeats that are gone or have changed."""
    return sum(now.get(path) != content for path, content in earlier.items())


def measurements(outputs):
    return sorted(path.parent.name for path in outputs.glob("*/result.json"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kills", type=int, nargs="?", default=50)
    parser.add_argument("seed", type=int, nargs="?", default=random.randrange(10**6))
    parser.add_argument("--slurm", action="store_true")
    parser.add_argument("--longest", type=float, default=25.0, metavar="SECONDS")
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kills-")))
        cluster = None
        if arguments.slurm:
            cluster = stack.enter_context(slurm_cluster(2))
        trial = Trial(scratch, cluster)
        main(arguments.kills, arguments.seed, arguments.longest, trial)
