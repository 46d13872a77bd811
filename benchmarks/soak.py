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
LONGEST_SECONDS = 30.0
ENDING_SECONDS = 30.0


def kind(process):
    """Return the kind of a measurement's process; None for other processes."""
    with suppress(psutil.Error):
        words = process.cmdline()[1:3]
        return next((TARGETS[word] for word in words if word in TARGETS), None)


def processes(scratch):
    """Return all processes whose TMPDIR is `scratch`, without zombies."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            owned = process.environ().get("TMPDIR") == str(scratch)
            if owned and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


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
        while process.poll() is None and not killed:
            with suppress(psutil.Error):
                every = [driver, *driver.children(recursive=True)]
                if victims := [one for one in every if kind(one) == target]:
                    random.choice(victims).kill()
                    killed = True
            time.sleep(0.02)
        with suppress(subprocess.TimeoutExpired):
            process.wait(ENDING_SECONDS)
        process.kill()
    return killed


def lane(work, numbers, chance, folder, scratch):
    """Kill processes of this work until `numbers` is empty. Return the kills by target and the
    number of raw files of finished repeats that were lost."""
    killed, lost, kept = Counter(), 0, {}
    outputs = folder / "-".join(map(str, work.values()))
    request = REQUEST | work | {"data_dir": str(folder), "outputs_dir": str(outputs)}
    with suppress(IndexError):
        while True:
            number = numbers.pop(0)
            target = chance.choice(sorted({*TARGETS.values()}))
            seconds = chance.uniform(0, LONGEST_SECONDS)
            if kill(request, target, seconds, scratch):
                killed[target] += 1
            else:
                # The measurement ended before the kill or never had such a process.
                numbers.append(number)
            now = finished_repeats(outputs)
            lost += sum(now.get(raw) != seen for raw, seen in kept.items())
            kept = now
            what = f"{target} after {seconds:4.1f} s: {len(now)} raw files"
            print(f"  {number} {outputs.name}: {what}", flush=True)
    return killed, lost


def main(kills, seed):
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder, scratch = Path(name), Path(name) / "scratch"
        scratch.mkdir()
        list(make_images(folder, 24))
        shared, began = {*SHARED_MEMORY.iterdir()}, time.monotonic()
        numbers, chance = [*range(1, kills + 1)], random.Random(seed)
        chances = [random.Random(chance.random()) for _ in LANES]
        with ThreadPoolExecutor() as pool:
            ends = pool.map(
                lambda *own: lane(own[0], numbers, own[1], folder, scratch), LANES, chances
            )
            killed, lost = zip(*ends, strict=True)
        killed = sum(killed, Counter())
        deadline = time.monotonic() + ENDING_SECONDS
        while (left := processes(scratch)) and time.monotonic() < deadline:
            time.sleep(0.1)
        before = len(temporary(scratch))
        # Clean up as the next start of a measurement does.
        tempfile.tempdir = str(scratch)
        sweep()
        folders, segments = temporary(scratch), {*SHARED_MEMORY.iterdir()} - shared
        measured = [Measurement.read(path.parent) for path in folder.glob("*/*/result.json")]
        finished = sum(len(one.result.complete_repeats) for one in measured)
        print(f"{killed.total()} kills in {time.monotonic() - began:.0f} s: {dict(killed)}")
        print(f"raw files of {finished} finished repeats that were lost: {sum(lost)}")
        print(f"processes left: {[' '.join(process.cmdline()) for process in left]}")
        print(f"scratch folders left: {before}, after the next start {len(folders)} {folders}")
        print(f"shared memory left: {len(segments)}")
        return not (sum(lost) or left or folders or segments)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kills", type=int, nargs="?", default=200)
    parser.add_argument("seed", type=int, nargs="?", default=random.randrange(10**6))
    asked = parser.parse_args()
    sys.exit(not main(asked.kills, asked.seed))
