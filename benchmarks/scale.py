"""The cost of many measurements: summary tables, site, sweep."""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measuring import planted
from runner import PAIRS, TESTS, counts, of_values

sys.path.insert(0, TESTS)
import fake_trainer
from made.results import write_many

SIZES, COUNTS, MEASUREMENTS = map(counts, ("SIZES", "COUNTS", "MEASUREMENTS"))
PERFKIT = Path(sys.executable).with_name("perfkit")

MERGE = """
import resource, sys, time
from perfkit.report.summarized import Summary
from perfkit.report.summary import fastest
start = time.perf_counter()
summary = Summary.read(sys.argv[1])
fastest(summary)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(time.perf_counter() - start, peak)
"""


def merging():
    """Time and memory from stored measurements of 7 repeats to the summary's tables. The time
    excludes interpreter start and imports."""
    numbers = []
    for size in SIZES:
        with tempfile.TemporaryDirectory() as outputs:
            write_many(outputs, size, raw=False)
            merged = [_floats(MERGE, outputs) for _run in range(min(PAIRS, 5))]
        seconds, mebibytes = zip(*merged, strict=True)
        name = f"{size:,} measurements"
        numbers.append(of_values(name, seconds, "s"))
        numbers.append(of_values(f"{name}, memory", mebibytes, "MiB"))
    return numbers


SITE = """
import pathlib, resource, sys, time
from perfkit.report.site import write_site
start = time.perf_counter()
write_site(pathlib.Path(sys.argv[1]), lambda _part: None)
seconds = time.perf_counter() - start
whose = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
peaks = [resource.getrusage(who).ru_maxrss / 1024 for who in whose]
print(seconds, *peaks)
"""


def site():
    """Time and memory for a site of measurements, each of 7 repeats of 120 steps on 1 to 4
    ranks, with a process per core. Every measurement's numbers are derived from its raw files
    again. Memory is that of the main process and of its largest child; imports are excluded
    from the main process's time only."""
    numbers = []
    for count in MEASUREMENTS:
        with tempfile.TemporaryDirectory() as outputs:
            write_many(outputs, count)
            seconds, main, child = _floats(SITE, outputs)
            pages = Path(outputs).rglob("*.html")
            size = sum(page.stat().st_size for page in pages)
        name = f"the site of {count:,} measurements"
        numbers.append(of_values(name, [seconds], "s"))
        numbers.append(of_values(f"{name}, main process's memory", [main], "MiB"))
        numbers.append(of_values(f"{name}, largest child's memory", [child], "MiB"))
        numbers.append(of_values(f"{name}, its pages", [size / 2**20], "MiB"))
    return numbers


def sweep():
    """Time per configuration of `perfkit sweep`, start and report included, without the run
    time of its trainer, a fake one of 1 s."""
    return [_sweep(count, trainer_seconds=1.0) for count in COUNTS]


def _sweep(count, trainer_seconds):
    with tempfile.TemporaryDirectory() as folder:
        request = {"device": "cpu", "input": "synthetic", "repeats": 1, "measured_seconds": 0}
        content = {
            "notebook": "resnet50",
            "protocol": "quick",
            "parameters": request | {"outputs_dir": f"{folder}/outputs"},
            "matrix": {"batch_size": [*range(1, count + 1)]},
        }
        file = Path(folder) / "sweep.yaml"
        file.write_text(json.dumps(content))
        environment = os.environ | planted(folder, fake_trainer.planted(trainer_seconds))
        streams = {"capture_output": True, "stdin": subprocess.DEVNULL}
        start = time.perf_counter()
        subprocess.run([PERFKIT, "sweep", file], check=True, env=environment, **streams)
        seconds = time.perf_counter() - start
    each = seconds / count - trainer_seconds
    return of_values(f"each of {count} configurations", [each], "s")


def _floats(code, *arguments):
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [float(word) for word in done.stdout.split()]
