"""Snakemake over workflow/Snakefile: started, watched, stopped, cleaned up after.

What has been measured is in `outputs/<id>/` and nowhere else. The folder of a sweep,
`outputs/sweeps/<name>/`, holds what Snakemake needs and what the jobs said; each call derives
it anew from the results, so that after a kill there is nothing to unlock or to believe.
"""

import contextlib
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rich.text import Text

from perfkit.config import ROOT, portable
from perfkit.launch import close
from perfkit.report.site import write_index, write_site
from perfkit.results import Measurement, write_atomically
from perfkit.sweep.file import SweepError
from perfkit.sweep.jobs import Job, for_snakemake, measured
from perfkit.sweep.yaml_file import read_yaml

PROFILES = ROOT / "workflow" / "profiles"
SNAKEFILE = ROOT / "workflow" / "Snakefile"
POLL_SECONDS = 1.0
LOCK_SECONDS = 15.0
"""What an earlier call started is gone by then, had that been killed."""
CANCEL_SECONDS = 20.0
"""Time to cancel what runs on other machines before Snakemake itself is killed."""
STALE_SECONDS = 60.0
REASON_LENGTH = 300
TEMPORARY = re.compile(r"\..+\.[a-z0-9_]{8}")
"""A file that was being written when its writer was killed: results.write_atomically."""


@dataclass(frozen=True)
class Profile:
    """Who runs the jobs, and where: a folder of Snakemake's."""

    folder: Path
    executor: str

    @property
    def elsewhere(self) -> bool:
        """Whether the jobs run on other machines than this one."""
        return self.executor != "local"

    @classmethod
    def named(cls, name: str) -> "Profile":
        """The profile of workflow/profiles, or in the folder `name`. Raises SweepError."""
        folder = PROFILES / name if (PROFILES / name).is_dir() else Path(name).resolve()
        file = folder / "config.yaml"
        if not file.is_file():
            known = ", ".join(sorted(path.name for path in PROFILES.iterdir()))
            raise SweepError(
                [f"--profile: {name!r}: allowed: {known}, or a folder with a config.yaml"]
            )
        return cls(folder, str(read_yaml(file)[0].get("executor", "local")))


@dataclass(frozen=True)
class Standing:
    """How it stands with one job."""

    job: Job
    state: Literal["waiting", "running", "done", "failed"]
    measurement: Measurement | None
    reason: str = ""


class Engine:
    """One sweep: its jobs, the folder of their outputs, the profile that says who runs them."""

    def __init__(self, name: str, jobs: list[Job], outputs: Path, profile: Profile) -> None:
        self.jobs = jobs
        self.outputs = outputs
        self.profile = profile
        self.folder = outputs / "sweeps" / name
        self.log = self.folder / "snakemake.log"

    def measured(self) -> dict[str, Measurement]:
        return measured(self.jobs, self.outputs, elsewhere=self.profile.elsewhere)

    def standings(self, *, over: bool = False) -> list[Standing]:
        """How it stands with each job; when all is `over`, nothing runs or waits any more."""
        found = self.measured()
        return [self._standing(job, found.get(job.name), over) for job in self.jobs]

    def run(self, show: Callable[[list[Standing]], None]) -> list[Standing]:
        """Run what is not measured yet, showing how it stands as it goes, and write the site;
        how it stood at the end. Raises SweepError if another sweep is at work here."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with _lock(self.outputs) as lock:
            self._prepare()
            shown: list[Standing] = []
            seen: object = None
            with self._snakemake(lock) as process:
                while process.poll() is None:
                    # Little work as long as nothing has changed: a measurement is going on.
                    if seen != (seen := self._files()):
                        standings = self.standings()
                        if _ended(standings) != _ended(shown):
                            write_index(self.outputs)
                        show(shown := standings)
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(POLL_SECONDS)
            standings = self.standings(over=True)
            show(standings)
            # Snakemake leaves the last rule out if a job of another machine was killed there.
            if process.returncode:
                write_site(self.outputs, lambda _part: None)
            return standings

    def _files(self) -> list[tuple[str, float]]:
        """The files that standings are derived from, each with when it was written last."""
        found = []
        for path in (*self.outputs.glob("*/result.json"), *self.folder.glob("*.*")):
            with contextlib.suppress(FileNotFoundError):
                found.append((str(path), path.stat().st_mtime if path.suffix == ".json" else 0))
        return sorted(found)

    def _standing(self, job: Job, found: Measurement | None, over: bool) -> Standing:
        if found and found.result.status == "complete":
            return Standing(job, "done", found)
        if over or (self.folder / f"{job.name}.ended").exists():
            return Standing(job, "failed", found, self._reason(job, found))
        started = (self.folder / f"{job.name}.log").exists()
        return Standing(job, "running" if started else "waiting", found)

    def _reason(self, job: Job, found: Measurement | None) -> str:
        if found and (failure := found.result.failure):
            return f"{failure.code}: {failure.message}"
        # What the notebook said last; if it never began, the log of who was to run it.
        log = self.folder / f"{job.name}.log"
        said = Text.from_ansi(log.read_text(errors="replace")).plain if log.exists() else ""
        if words := [line.strip() for line in said.split("\n") if line.strip()]:
            return portable("".join(filter(str.isprintable, words[-1]))[:REASON_LENGTH])
        logs = sorted(self.folder.glob(f".snakemake/slurm_logs/rule_run/{job.name}/*.log"))
        return f"its job did not come to its end; see {_shown((logs or [self.log])[-1])}"

    def _prepare(self) -> None:
        """Leave of earlier calls what is true now, and nothing else."""
        shutil.rmtree(self.folder / ".snakemake", ignore_errors=True)
        if self.profile.executor == "slurm":
            _cancel_jobs(self.folder)
        _remove_half_written(self.outputs)
        for notebook in self.folder.glob(".*.ipynb"):
            notebook.unlink()
        found = self.measured()
        for job in self.jobs:
            ended = self.folder / f"{job.name}.ended"
            if job.name in found and found[job.name].result.status == "complete":
                if not ended.exists():
                    write_atomically(ended, "0\n")
            else:
                ended.unlink(missing_ok=True)
                (self.folder / f"{job.name}.log").unlink(missing_ok=True)
        told = json.dumps(for_snakemake(self.jobs, self.outputs), indent=1)
        write_atomically(self.folder / "jobs.json", told)
        # Beside what it reads: where nothing is shared, Snakemake sends on what lies here.
        write_atomically(self.folder / "Snakefile", SNAKEFILE.read_text("utf-8"))

    @contextmanager
    def _snakemake(self, lock: int) -> Iterator[subprocess.Popen[bytes]]:
        """Snakemake at work; nothing that it started here outlives the block, or this process.

        The supervisor holds the lock too: until all is gone, no other call begins.
        """
        scratch = tempfile.mkdtemp(prefix="perfkit-sweep-")
        grace = str(CANCEL_SECONDS if self.profile.elsewhere else 0)
        command = [sys.executable, "-m", "perfkit.supervisor", scratch, grace]
        command += [sys.executable, "-m", "snakemake", "--snakefile", "Snakefile"]
        command += ["--workflow-profile", str(self.profile.folder), "--keep-going"]
        # Its own records are thrown away: the lock is ours, and a job is done if it has ended.
        command += ["--nolock", "--rerun-triggers", "mtime", "--scheduler", "greedy"]
        if self.profile.executor == "kubernetes":
            # Its plugin takes nothing to be shared, and passes files on through here.
            command += ["--default-storage-prefix", str(self.folder)]
        environment = {n: v for n, v in os.environ.items() if n != "SNAKEMAKE_PROFILE"}
        with self.log.open("wb") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env=environment,
                start_new_session=True,
                pass_fds=[lock],
            )
        try:
            yield process
        finally:
            close(process, float(grace))
            shutil.rmtree(scratch, ignore_errors=True)


def _ended(standings: list[Standing]) -> list[str]:
    return [one.job.name for one in standings if one.state in ("done", "failed")]


@contextmanager
def _lock(outputs: Path) -> Iterator[int]:
    """The lock of the folder, as a descriptor. Raises SweepError if it can't be had."""
    path = outputs / ".sweep.lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        deadline = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise SweepError(
                        [f"another sweep is at work in {_shown(outputs)}; wait for it"]
                    ) from None
                time.sleep(0.1)
        yield descriptor
    finally:
        os.close(descriptor)


def _remove_half_written(outputs: Path) -> None:
    """Remove what a killed writer left; no write takes as long as STALE_SECONDS."""
    for path in (*outputs.glob(".*"), *outputs.glob("*/.*"), *outputs.glob("sweeps/*/.*")):
        with contextlib.suppress(FileNotFoundError):
            old = time.time() - path.stat().st_mtime > STALE_SECONDS
            if old and path.is_file() and TEMPORARY.fullmatch(path.name):
                path.unlink()


def _cancel_jobs(folder: Path) -> None:
    """Cancel the Slurm jobs that an earlier, killed call has left, and wait for their end."""

    def left() -> list[str]:
        command = ["squeue", "--noheader", "--user", str(os.getuid()), "--format", "%A %Z"]
        listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        pairs = (line.partition(" ") for line in listed.splitlines())
        return [number for number, _blank, where in pairs if Path(where.strip()) == folder]

    while jobs := left():
        subprocess.run(["scancel", *jobs], check=True, capture_output=True)
        time.sleep(1.0)


def _shown(path: Path) -> Any:
    return path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
