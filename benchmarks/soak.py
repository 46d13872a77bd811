"""Measurements killed with SIGKILL at random times: driver, supervisor, launcher or worker.

python benchmarks/soak.py [KILLS [SEED]]; defaults: 200 and a random seed, which is printed.
Four drivers at a time, with DALI, Paddle's and PyTorch's DataLoader, are restarted after each
kill; the first kill of each follows its first repeat. At the end no process, scratch folder or
shared memory may be left, and no finished repeat lost. Takes 20 minutes on 2 cores. To exclude
other programs' shared memory, run it in a mount namespace: `unshare -m sh -c 'mount -t tmpfs
none /dev/shm && exec "$0" "$@"' python benchmarks/soak.py`.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import psutil
from measuring import DRIVER

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from kept import finished_repeats

from perfkit.core.inputs.samples import make_images
from perfkit.core.results.store import Measurement
from perfkit.core.system.scratch import SHARED_MEMORY, sweep

REQUEST = {"device": "cpu", "batch_size": 2, "image_size": 32, "timeout": 120}
REQUEST |= {"warmup_steps": 1, "measured_steps": 10, "repeats": 1000}
WORKERS = {"input": "dataloader", "dataloader_workers": 2}
LANES = (
    WORKERS,
    {"input": "dali"},
    WORKERS | {"framework": "torch"},
    {"input": "dali", "processes": 2},
)
"""The measurements that run at the same time."""
TARGETS = {
    "-c": "driver",
    "perfkit.core.driver.supervisor": "supervisor",
    "paddle.distributed.launch": "launcher",
    "torch.distributed.run": "launcher",
    "perfkit.core.worker.rank": "worker",
}
"""Command-line word -> kind of process; a DataLoader's processes are workers too."""
COMMAND_WORDS = 4
"""The words in which a process's kind stands: `python -P -m MODULE`."""
LONGEST_SECONDS = 30.0
ENDING_SECONDS = 30.0
APPEARING_SECONDS = 60.0
"""After so long without a process of the kind to kill, the measurement has none."""


def kind(process):
    """Return the kind of a measurement's process; None for other processes."""
    with suppress(psutil.Error):
        for word in process.cmdline()[1:COMMAND_WORDS]:
            if word in TARGETS:
                return TARGETS[word]
    return None


def processes(scratch):
    """Return all processes whose TMPDIR is `scratch`, without zombies."""
    owned = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            is_owned = process.environ().get("TMPDIR") == str(scratch)
            if is_owned and process.status() != psutil.STATUS_ZOMBIE:
                owned.append(process)
    return owned


def temporary(scratch):
    """Return the paths in `scratch` except PyTorch's cache of compiled kernels."""
    return [path for path in scratch.iterdir() if not path.name.startswith("torchinductor_")]


def kill(request, target, seconds, scratch):
    """Start a measurement and kill one of its processes `seconds` after its first repeat, or as
    soon as the target exists; return whether it was killed."""
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER, json.dumps(request)],
        env=os.environ | {"TMPDIR": str(scratch)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        driver, killed = psutil.Process(process.pid), False
        while process.poll() is None and not finished_repeats(Path(request["outputs_dir"])):
            time.sleep(0.5)
        time.sleep(seconds)
        deadline = time.monotonic() + APPEARING_SECONDS
        while process.poll() is None and not killed and time.monotonic() < deadline:
            with suppress(psutil.Error):
                family = [driver, *driver.children(recursive=True)]
                victims = [member for member in family if kind(member) == target]
                if victims:
                    random.choice(victims).kill()
                    killed = True
            time.sleep(0.02)
        if killed:
            with suppress(subprocess.TimeoutExpired):
                process.wait(ENDING_SECONDS)
        process.kill()
    return killed


class Lane:
    """Measurements of the same work, one after the other, and kills of their processes."""

    def __init__(self, work, chance, folder, scratch):
        self.outputs = folder / "-".join(map(str, work.values()))
        places = {"data_dir": str(folder), "outputs_dir": str(self.outputs)}
        self.request = REQUEST | work | places
        self.chance, self.scratch = chance, scratch
        self.killed = Counter()
        self.lost = 0
        self.finished = {}

    def run(self, numbers):
        """Kill processes until `numbers` is empty, which all lanes share."""
        with suppress(IndexError):
            while True:
                number = numbers.pop(0)
                if not self.kill(number):
                    # The measurement ended before the kill or never had such a process.
                    numbers.append(number)

    def kill(self, number):
        """Kill a process and count the raw files of finished repeats that are lost."""
        target = self.chance.choice(sorted({*TARGETS.values()}))
        seconds = self.chance.uniform(0, LONGEST_SECONDS)
        was_killed = kill(self.request, target, seconds, self.scratch)
        self.killed[target] += was_killed
        finished = finished_repeats(self.outputs)
        for path, content in self.finished.items():
            self.lost += finished.get(path) != content
        self.finished = finished
        what = f"{target} after {seconds:4.1f} s: {len(finished)} raw files"
        print(f"  {number} {self.outputs.name}: {what}", flush=True)
        return was_killed


def main(kills, seed):
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder, scratch = Path(name), Path(name) / "scratch"
        scratch.mkdir()
        list(make_images(folder, 24))
        shared, began = {*SHARED_MEMORY.iterdir()}, time.monotonic()
        chance = random.Random(seed)
        lanes = [Lane(work, random.Random(chance.random()), folder, scratch) for work in LANES]
        numbers = [*range(1, kills + 1)]
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda lane: lane.run(numbers), lanes))
        killed = sum((lane.killed for lane in lanes), Counter())
        lost = sum(lane.lost for lane in lanes)
        left = left_after(ENDING_SECONDS, scratch)
        before = len(temporary(scratch))
        # Clean up as the next start of a measurement does.
        tempfile.tempdir = str(scratch)
        sweep()
        folders, segments = temporary(scratch), {*SHARED_MEMORY.iterdir()} - shared
        finished = 0
        for path in folder.glob("*/*/result.json"):
            finished += len(Measurement.read(path.parent).result.complete_repeats)
        print(f"{killed.total()} kills in {time.monotonic() - began:.0f} s: {dict(killed)}")
        print(f"raw files of {finished} finished repeats that were lost: {lost}")
        print(f"processes left: {[' '.join(process.cmdline()) for process in left]}")
        print(f"scratch folders left: {before}, after the next start {len(folders)} {folders}")
        print(f"shared memory left: {len(segments)}")
        return not (lost or left or folders or segments)


def left_after(seconds, scratch):
    """Return the processes that are left after so many seconds at most."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        left = processes(scratch)
        if not left:
            return []
        time.sleep(0.1)
    return left


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kills", type=int, nargs="?", default=200)
    parser.add_argument("seed", type=int, nargs="?", default=random.randrange(10**6))
    arguments = parser.parse_args()
    sys.exit(not main(arguments.kills, arguments.seed))
