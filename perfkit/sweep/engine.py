"""Runs, monitors and stops Snakemake with workflow/Snakefile.

Results are only stored in `outputs/<id>/`. The folder of a sweep, `outputs/sweeps/<name>/`,
holds Snakemake's files and the logs of the jobs. Each call derives it anew from the results, so
that a killed call leaves no lock and no stale state.
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
from perfkit.driver.workers import ENDING_SECONDS, close, start_supervised
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
"""Time to cancel jobs on other machines before Snakemake itself is killed."""
LOCK_SECONDS = CANCEL_SECONDS + ENDING_SECONDS
"""After this time, the processes of a killed call have ended."""
STALE_SECONDS = 60.0
ENDINGS = (".ended", ".log", ".ipynb")
"""Suffixes of a job's files."""
REASON_LENGTH = 300
LAST_LINES = 8


@dataclass(frozen=True)
class JobStatus:
    """The state of a job, its measurement and the reason for its failure."""

    job: Job
    state: Literal["waiting", "running", "done", "failed"]
    measurement: Measurement | None
    reason: str = ""


class Engine:
    """One sweep: its jobs, their folder of outputs and Snakemake's profile."""

    def __init__(self, name: str, jobs: list[Job], profile: Profile) -> None:
        self.jobs = jobs
        self.outputs = resolved_path(jobs[0].plan.config.outputs_dir)
        self.profile = profile
        self.folder = self.outputs / "sweeps" / name
        self.log = self.folder / "snakemake.log"
        self.before: dict[Path, int] | None = None
        """Modification times of the results that existed before `run`, nanoseconds."""

    def statuses(self, *, over: bool = False) -> list[JobStatus]:
        """The status of each job; if the sweep is `over`, no job runs or waits."""
        remote = self.profile.remote
        found = measured(self.jobs, self.outputs, remote=remote, is_new=self._is_new)
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
        """Why a job failed, from its result, its log or the executor's log. Untrusted text."""
        is_new = found and (self.before is None or self._is_new(found.folder))
        if found and is_new and found.result.failure:
            return coded(found.result.failure)
        log = self.folder / f"{job.name}.log"
        raw = read_file(log) if log.exists() else b""
        text = Text.from_ansi(raw.decode(errors="replace")).plain
        if lines := [line.strip() for line in text.split("\n") if line.strip()]:
            return lines[-1]
        logs = sorted(self.folder.glob(f".snakemake/slurm_logs/rule_run/{job.name}/*.log"))
        return f"the job did not finish; see {portable(str((logs or [self.log])[-1]))}"

    def run(
        self, show: Callable[[list[JobStatus]], None], notify: Callable[[str], None]
    ) -> list[JobStatus]:
        """Run the unmeasured jobs, show their progress, write the site, return the statuses.
        Raises SweepError if another sweep is running here or Snakemake can't start."""
        make_folder(self.folder)
        with _lock(self.outputs, notify) as lock:
            if left := self._prepare():
                with self._snakemake(lock) as process:
                    self._follow(process, show)
                begun = any((self.folder / f"{job.name}.log").exists() for job in left)
                if process.returncode and not begun:
                    lines = read_file(self.log).decode(errors="replace").splitlines()
                    problem = "Snakemake exited before starting a job:"
                    raise SweepError([problem, *lines[-LAST_LINES:]])
            show(self.statuses(over=True))
            for reason in write_site(self.outputs, lambda _part: None)[1]:
                notify(f"left out: {reason}")
            return self.statuses(over=True)

    def _prepare(self) -> list[Job]:
        """Remove outdated files, write Snakemake's input, and return the unmeasured jobs."""
        shutil.rmtree(self.folder / ".snakemake", ignore_errors=True)
        self.profile.prepare(self.folder)
        for depth in ("", "*/", "sweeps/*/"):
            for path in self.outputs.glob(f"{depth}.*{PARTIAL}"):
                # Left by a killed writer: no write takes this long.
                with contextlib.suppress(FileNotFoundError):
                    if time.time() - path.stat().st_mtime > STALE_SECONDS:
                        path.unlink()
        left = [s.job for s in self.statuses() if s.state != "done"]
        old = [self.folder / f"{job.name}{end}" for job in left for end in ENDINGS]
        for path in (*old, *self.folder.glob(".*.ipynb"), self.log):
            path.unlink(missing_ok=True)
        # Kubernetes only gets the files that its plugin uploads, which excludes sample data.
        makes_samples = self.profile.executor != "kubernetes"
        content = for_snakemake(left, self.outputs, makes_samples=makes_samples)
        write_atomically(self.folder / "jobs.json", json.dumps(content, indent=1))
        self.before = {folder: written(folder) for folder in folders(self.outputs)}
        # Beside jobs.json: without a shared file system, Snakemake uploads this folder.
        write_atomically(self.folder / "Snakefile", SNAKEFILE.read_text("utf-8"))
        return left

    def _follow(
        self, process: subprocess.Popen[bytes], show: Callable[[list[JobStatus]], None]
    ) -> None:
        """Show the progress until Snakemake exits, with little work while nothing changes."""
        before: object = None
        failed = 0
        while process.poll() is None:
            files = {*self.folder.glob("*.log"), *self.folder.glob("*.ended")}
            state = files, [(folder, written(folder)) for folder in folders(self.outputs)]
            if state != before:
                statuses = self.statuses()
                show(statuses)
                failed_before, failed = failed, sum(s.state == "failed" for s in statuses)
                # Completed jobs write the index themselves. If writing fails, jobs continue.
                with contextlib.suppress(OSError):
                    if failed > failed_before:
                        write_index(self.outputs)
            before = state
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(POLL_SECONDS)

    @contextmanager
    def _snakemake(self, lock: int) -> Iterator[subprocess.Popen[bytes]]:
        """Run Snakemake. None of its local processes outlives the block, or this process. The
        supervisor also holds the lock: no other call starts before all processes have ended."""
        grace = CANCEL_SECONDS if self.profile.remote else 0.0
        # Snakemake's lock and metadata are not used: this lock and `<job>.ended` replace them.
        command = ["--interrupt", sys.executable, "-m", "snakemake", "--snakefile", "Snakefile"]
        command += ["--workflow-profile", str(self.profile.folder), "--keep-going"]
        command += ["--nolock", "--rerun-triggers", "mtime", "--scheduler", "greedy"]
        if not self.profile.remote:
            command += ["--resources", "machine=1"]
        if self.profile.executor == "kubernetes":
            # The plugin assumes no shared file system, and transfers files through this folder.
            command += ["--default-storage-prefix", str(self.folder)]
        environment = {n: v for n, v in os.environ.items() if n != "SNAKEMAKE_PROFILE"}
        with Scratch() as scratch:
            settings = (scratch.folder, environment, grace, self.log)
            process = start_supervised(command, *settings, cwd=self.folder, pass_fds=[lock])
            try:
                yield process
            finally:
                close(process, grace)


@contextmanager
def _lock(outputs: Path, notify: Callable[[str], None]) -> Iterator[int]:
    """Lock the folder and yield the descriptor. Raises SweepError after LOCK_SECONDS."""
    shown, deadline = portable(str(outputs)), time.monotonic() + LOCK_SECONDS
    with (outputs / ".sweep.lock").open("w") as file:
        for attempt in count():
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            if not attempt:
                notify(f"Waiting for another sweep of {shown}, or its remaining processes …")
            if time.monotonic() > deadline:
                raise SweepError([f"another sweep is running in {shown}; wait for its end"])
            time.sleep(0.1)
        yield file.fileno()
