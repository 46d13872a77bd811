"""Trains a built-in model by its script, in this process, under the timer of a rank."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from perfkit.timing import peak, session
from perfkit.timing.job import Job
from perfkit.timing.raw_file import RawFile, rank_file


class Trained(NamedTuple):
    """The events that a rank has written."""

    events: list[dict[str, Any]]

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["event"] == kind]

    @property
    def losses(self) -> list[float]:
        return [event["value"] for event in self.of_kind("loss")]

    @property
    def step_seconds(self) -> list[float]:
        return [event["seconds"] for event in self.of_kind("step")]

    @property
    def told(self) -> dict[str, Any]:
        return self.of_kind("told")[0]

    @property
    def window(self) -> dict[str, Any]:
        return self.of_kind("window")[0]

    @property
    def notes(self) -> dict[str, Any]:
        notes: dict[str, Any] = {}
        for event in self.of_kind("note"):
            notes |= event["values"]
        return notes

    @property
    def memory_bytes(self) -> int:
        return self.of_kind("end")[0]["memory_bytes"]


@contextmanager
def measured_here(framework: str, **changes: Any) -> Iterator[Trained]:
    """Make this process the rank of a measurement within the block; its events are there after
    it. The peak speed of the device is not measured for long."""
    seconds = peak.PRODUCT_SECONDS, peak.COPY_SECONDS, peak.LARGEST
    peak.PRODUCT_SECONDS, peak.COPY_SECONDS, peak.LARGEST = 0.0, 0.0, peak.SMALLEST
    trained = Trained([])
    with TemporaryDirectory() as folder:
        job = {
            "task": "train",
            "framework": framework,
            "device": "cpu",
            "ranks": 1,
            "rank_variable": "",
            "raw_folder": folder,
            "warmup_steps": 1,
            "measured_steps": 2,
            "measured_seconds": 0,
            "warmup_limit": None,
            "warmup_seconds": None,
            "static_modules": [],
            "cores": [],
        }
        raw = RawFile(rank_file(Path(folder), 0))
        here = session.Session(Job(**(job | changes)), __file__, raw, session.os.getpid())
        session.open_session(here)
        try:
            yield trained
            here.write_end()
        finally:
            del session._SESSIONS[here.pid]
            peak.PRODUCT_SECONDS, peak.COPY_SECONDS, peak.LARGEST = seconds
            lines = raw.path.read_text().splitlines()
            trained.events.extend(map(json.loads, lines))


def train_here(framework: str, *words: Any, **changes: Any) -> Trained:
    """Run a training script with these arguments, and return its events. `changes` are those of
    the job, such as `measured_steps`."""
    script = import_module(f"perfkit.training.{framework}.train")
    changes = {"warmup_steps": 1, "measured_steps": 2} | changes
    steps = changes["warmup_steps"] + changes["measured_steps"]
    arguments = sys.argv
    sys.argv = ["train.py", *map(str, words), "--steps", str(steps)]
    try:
        with measured_here(framework, **changes) as trained:
            script.main()
    finally:
        sys.argv = arguments
    return trained
