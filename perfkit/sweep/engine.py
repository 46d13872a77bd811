"""Snakemake over workflow/Snakefile: started, watched, stopped, cleaned up after.

What has been measured is in `outputs/<id>/` and nowhere else. The folder of a sweep,
`outputs/sweeps/<name>/`, holds what Snakemake needs and what the jobs printed; each call
derives it anew from the results, so that after a kill there is nothing to unlock or to believe.
"""

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Literal

from rich.text import Text

from perfkit.config import ROOT, portable, resolved_path
from perfkit.driver.workers import ENDING_SECONDS, close
from perfkit.report.site import write_index, write_site
from perfkit.results.store import (
    PARTIAL,
    Measurement,
    folders,
    make_folder,
    read_file,
    write_atomically,
)
from perfkit.sweep.jobs import Job, Profile, for_snakemake, measured, written
from perfkit.sweep.matrix import SweepError
from perfkit.system.scratch import Scratch
from perfkit.text.messages import coded

SNAKEFILE = ROOT / "workflow" / "Snakefile"
POLL_SECONDS = 1.0
CANCEL_SECONDS = 20.0
"""Time to cancel what runs on other machines before Snakemake itself is killed."""
LOCK_SECONDS = CANCEL_SECONDS + ENDING_SECONDS
"""What an earlier call started is gone by then, had that been killed."""
STALE_SECONDS = 60.0
ENDINGS = (".ended", ".log", ".ipynb")
"""Of what a job leaves."""
REASON_LENGTH = 300
LAST_LINES = 8


@dataclass(frozen=True)
class JobStatus:
    """How far one job is, and why it failed."""

    job: Job
    state: Literal["waiting", "running", "done", "failed"]
    measurement: Measurement | None
    reason: str = ""


class Engine:
    """One sweep: its jobs, the folder of their outputs, the profile that says who runs them."""

    def __init__(self, name: str, jobs: list[Job], profile: Profile) -> None:
        self.jobs = jobs
        self.outputs = resolved_path(jobs[0].plan.config.outputs_dir)
        self.profile = profile
        self.folder = self.outputs / "sweeps" / name
        self.log = self.folder / "snakemake.log"
        self.before: dict[Path, int] | None = None
        """When each result was written that was there before `run`."""

    def statuses(self, *, over: bool = False) -> list[JobStatus]:
        """How far each job is; when all is `over`, nothing runs or waits any more."""
        elsewhere = self.profile.elsewhere
        found = measured(self.jobs, self.outputs, elsewhere=elsewhere, is_new=self._is_new)
        return [self._status(job, found.get(job.name), over) for job in self.jobs]

    def _status(self, job: Job, found: Measurement | None, over: bool) -> JobStatus:
        if found and found.result.status == "complete":
            return JobStatus(job, "done", found)
        if over or (self.folder / f"{job.name}.ended").exists():
            reason = "".join(filter(str.isprintable, self._reason(job, found)))
            return JobStatus(job, "failed", found, portable(reason)[:REASON_LENGTH])
        started = (self.folder / f"{job.name}.log").exists()
        return JobStatus(job, "running" if started else "waiting", found)

    def _is_new(self, folder: Path) -> bool:
        return self.before is not None and written(folder) != self.before.get(folder)

    def _reason(self, job: Job, found: Measurement | None) -> str:
        """Why it failed: what its result says, what its notebook said last, or else the log
        of who was to run it. Text from elsewhere."""
        is_new = found and (self.before is None or self._is_new(found.folder))
        if found and is_new and found.result.failure:
            return coded(found.result.failure)
        log = self.folder / f"{job.name}.log"
        raw = read_file(log) if log.exists() else b""
        text = Text.from_ansi(raw.decode(errors="replace")).plain
        if lines := [line.strip() for line in text.split("\n") if line.strip()]:
            return lines[-1]
        logs = sorted(self.folder.glob(f".snakemake/slurm_logs/rule_run/{job.name}/*.log"))
        return f"its job did not come to its end; see {portable(str((logs or [self.log])[-1]))}"

    def run(
        self, show: Callable[[list[JobStatus]], None], notify: Callable[[str], None]
    ) -> list[JobStatus]:
        """Run what is not measured yet, showing how far it is as it goes, and write the site;
        how far it is at the end. Raises SweepError if another sweep is at work here, or
        Snakemake can't start."""
        make_folder(self.folder)
        with _lock(self.outputs, notify) as lock:
            if left := self._prepare():
                with self._snakemake(lock) as process:
                    self._follow(process, show)
                begun = any((self.folder / f"{job.name}.log").exists() for job in left)
                if process.returncode and not begun:
                    lines = read_file(self.log).decode(errors="replace").splitlines()
                    what = "Snakemake ended before it began a job:"
                    raise SweepError([what, *lines[-LAST_LINES:]])
            show(self.statuses(over=True))
            for reason in write_site(self.outputs, lambda _part: None)[1]:
                notify(f"left out: {reason}")
            return self.statuses(over=True)

    def _prepare(self) -> list[Job]:
        """Leave of earlier calls what is true now, and nothing else; the jobs for Snakemake,
        without those that are measured already."""
        shutil.rmtree(self.folder / ".snakemake", ignore_errors=True)
        self.profile.prepare(self.folder)
        for depth in ("", "*/", "sweeps/*/"):
            for path in self.outputs.glob(f"{depth}.*{PARTIAL}"):
                # Of a killed writer: no write takes as long.
                with contextlib.suppress(FileNotFoundError):
                    if time.time() - path.stat().st_mtime > STALE_SECONDS:
                        path.unlink()
        left = [s.job for s in self.statuses() if s.state != "done"]
        old = [self.folder / f"{job.name}{end}" for job in left for end in ENDINGS]
        for path in (*old, *self.folder.glob(".*.ipynb"), self.log):
            path.unlink(missing_ok=True)
        # Nothing here is shared with Kubernetes but what its plugin passes on: no sample data.
        makes_samples = self.profile.executor != "kubernetes"
        content = for_snakemake(left, self.outputs, makes_samples=makes_samples)
        write_atomically(self.folder / "jobs.json", json.dumps(content, indent=1))
        self.before = {folder: written(folder) for folder in folders(self.outputs)}
        # Beside what it reads: where nothing is shared, Snakemake sends on what lies here.
        write_atomically(self.folder / "Snakefile", SNAKEFILE.read_text("utf-8"))
        return left

    def _follow(
        self, process: subprocess.Popen[bytes], show: Callable[[list[JobStatus]], None]
    ) -> None:
        """Show how far it is until Snakemake has ended: with little work as long as nothing
        changes, since a measurement is going on."""
        before: object = None
        failed = 0
        while process.poll() is None:
            reached = {*self.folder.glob("*.log"), *self.folder.glob("*.ended")}
            seen = reached, [(folder, written(folder)) for folder in folders(self.outputs)]
            if seen != before:
                statuses = self.statuses()
                show(statuses)
                failed_before, failed = failed, sum(s.state == "failed" for s in statuses)
                # What is done has written the index itself. If it can't be written, what runs
                # goes on.
                with contextlib.suppress(OSError):
                    if failed > failed_before:
                        write_index(self.outputs)
            before = seen
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(POLL_SECONDS)

    @contextmanager
    def _snakemake(self, lock: int) -> Iterator[subprocess.Popen[bytes]]:
        """Snakemake at work; nothing that it started here outlives the block, or this process.

        The supervisor holds the lock too: until all is gone, no other call begins.
        """
        grace = str(CANCEL_SECONDS if self.profile.elsewhere else 0)
        # Its own records are thrown away: the lock is ours, and a job is done if it has ended.
        command = [sys.executable, "-m", "snakemake", "--snakefile", "Snakefile"]
        command += ["--workflow-profile", str(self.profile.folder), "--keep-going"]
        command += ["--nolock", "--rerun-triggers", "mtime", "--scheduler", "greedy"]
        if not self.profile.elsewhere:
            command += ["--resources", "machine=1"]
        if self.profile.executor == "kubernetes":
            # Its plugin takes nothing to be shared, and passes files on through here.
            command += ["--default-storage-prefix", str(self.folder)]
        supervisor = [sys.executable, "-m", "perfkit.driver.supervisor"]
        with Scratch() as scratch, self.log.open("wb") as log:
            process = subprocess.Popen(
                [*supervisor, str(scratch.folder), grace, "--interrupt", *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env={n: v for n, v in os.environ.items() if n != "SNAKEMAKE_PROFILE"},
                start_new_session=True,
                pass_fds=[lock],
            )
            try:
                yield process
            finally:
                close(process, float(grace))


@contextmanager
def _lock(outputs: Path, notify: Callable[[str], None]) -> Iterator[int]:
    """The lock of the folder, as a descriptor. Raises SweepError if it can't be had."""
    shown, deadline = portable(str(outputs)), time.monotonic() + LOCK_SECONDS
    with (outputs / ".sweep.lock").open("w") as file:
        for attempt in count():
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            if not attempt:
                notify(f"Waiting for another sweep of {shown}, or what it left …")
            if time.monotonic() > deadline:
                raise SweepError([f"another sweep is at work in {shown}; wait for it"])
            time.sleep(0.1)
        yield file.fileno()
