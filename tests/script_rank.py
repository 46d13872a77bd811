"""Runs one rank of a script of the user's, as a launcher would."""

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from textwrap import dedent
from typing import Any, NamedTuple

from perfkit.measuring.paths import ROOT
from perfkit.measuring.system.scratch import lock
from perfkit.timing.job import Job
from perfkit.timing.raw_file import rank_file

JOB = {
    "task": "train",
    "framework": "torch",
    "device": "cpu",
    "ranks": 1,
    "rank_variable": "RANK",
    "warmup_steps": 2,
    "measured_steps": 4,
    "measured_seconds": 0,
    "warmup_limit": None,
    "warmup_seconds": None,
    "static_modules": [],
    "cores": [],
}
LIMIT_SECONDS = 120


class Ran(NamedTuple):
    """How a rank ended: its exit status, its output and the events of its raw file."""

    status: int
    stdout: str
    stderr: str
    events: list[dict[str, Any]]

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["event"] == kind]

    def kinds(self) -> list[str]:
        """Return the kinds of the events in their order, each once in a row."""
        kinds: list[str] = []
        for event in self.events:
            if not kinds or kinds[-1] != event["event"]:
                kinds.append(event["event"])
        return kinds

    def failure(self) -> tuple[str, str]:
        """Return code and message of the failure that ends the file."""
        last = self.events[-1]
        assert last["event"] == "failure", (last, self.stderr)
        return last["code"], last["message"]

    def ended(self) -> "Ran":
        """Return this if the rank has completed its task."""
        assert self.events[-1]["event"] == "end", (self.events[-1], self.stderr)
        assert self.status == 0, self.stderr
        return self


class ScriptRank:
    """A script in `folder`, and the job of one rank that runs it."""

    def __init__(self, folder: Path, code: str, name: str = "train.py", **changes: Any) -> None:
        self.folder = folder
        self.script = folder / name
        self.script.parent.mkdir(parents=True, exist_ok=True)
        self.script.write_text(dedent(code))
        self.scratch = folder / "scratch"
        self.job_file = self.scratch / "job.json"
        self.raw_folder = folder / "raw"
        for place in (self.scratch, self.raw_folder):
            place.mkdir(exist_ok=True)
        # A rank whose scratch folder nobody has locked exits.
        self.lock = lock(self.scratch)
        self.arguments = changes.pop("arguments", [])
        self.job = Job(**(JOB | {"raw_folder": str(self.raw_folder)} | changes))

    def write_job(self) -> None:
        self.job_file.write_text(json.dumps(asdict(self.job)))

    def command(self, *options: str) -> list[str]:
        """Return the command of a rank, with these options of Python."""
        rank = [sys.executable, *options, "-m", "perfkit.timing.rank", str(self.job_file)]
        return [*rank, str(self.script), *self.arguments]

    def start(self, *options: str, **variables: str) -> subprocess.Popen[str]:
        """Start the rank with these options of Python and environment variables."""
        self.write_job()
        environment = os.environ | {"PYTHONPATH": str(ROOT)} | variables
        return subprocess.Popen(
            self.command(*options),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            cwd=self.folder,
            env=environment,
        )

    def finish(self, process: subprocess.Popen[str]) -> Ran:
        try:
            stdout, stderr = process.communicate(timeout=LIMIT_SECONDS)
        finally:
            process.kill()
        return self.result(0, process.returncode, stdout, stderr)

    def result(self, rank: int, status: int, stdout: str = "", stderr: str = "") -> Ran:
        """Return how a rank ended, with the events of its raw file."""
        lines = rank_file(self.raw_folder, rank).read_text().splitlines()
        return Ran(status, stdout, stderr, [json.loads(line) for line in lines])

    def run(self, *options: str, **variables: str) -> Ran:
        """Run the rank to its end."""
        return self.finish(self.start(*options, **variables))
