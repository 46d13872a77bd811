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
from perfkit.report.site import write_site
from perfkit.request import suggest
from perfkit.results.store import (
    PARTIAL,
    Measurement,
    folders,
    make_folder,
    read_file,
    write_atomically,
)
from perfkit.sweep.jobs import Job, for_snakemake, measured, written
from perfkit.sweep.matrix import SweepError, load_yaml
from perfkit.system.scratch import Scratch
from perfkit.text.messages import coded

WORKFLOW = ROOT / "workflow"
POLL_SECONDS = 1.0
CANCEL_SECONDS = 20.0
"""Time to cancel jobs on other machines before Snakemake itself is killed."""
LOCK_SECONDS = CANCEL_SECONDS + ENDING_SECONDS
"""After this time, the processes of a killed call have ended."""
CANCELLED_SECONDS = 120
STALE_SECONDS = 3600.0
"""No write of a file takes this long."""
JOB_FILES = ("{}.ended", "{}.log", "{}.ipynb", ".{}.ipynb")
REASON_LENGTH = 300
LAST_LINES = 8

State = Literal["waiting", "running", "kept", "done", "failed"]


@dataclass(frozen=True)
class Profile:
    """A Snakemake profile: its folder, and the executor that runs the jobs."""

    folder: Path
    executor: str

    @property
    def remote(self) -> bool:
        """Whether the jobs run on other machines."""
        return self.executor != "local"

    @classmethod
    def named(cls, name: str) -> "Profile":
        """Read the profile `name` of workflow/profiles, or a folder. Raises SweepError."""
        own = WORKFLOW / "profiles"
        folder = own / name if (own / name).is_dir() else Path(name).resolve()
        if not (folder / "config.yaml").is_file():
            known = sorted(path.name for path in own.iterdir())
            allowed = f"allowed: {', '.join(known)}, or a folder with a config.yaml"
            raise SweepError([f"--profile: {name!r}: {allowed}{suggest(name, known)}"])
        settings = load_yaml(folder / "config.yaml")
        if not isinstance(settings, dict):
            raise SweepError([f"{folder / 'config.yaml'}: has no settings"])
        return cls(folder, str(settings.get("executor", "local")))


@dataclass(frozen=True)
class JobStatus:
    """The state of a job, its measurement and the reason for its failure."""

    job: Job
    state: State
    measurement: Measurement | None
    reason: str = ""


class Engine:
    """One sweep: its jobs, their folder of outputs and Snakemake's profile.

    Raises SweepError if `name`, that of the parameters file, can't name a folder."""

    def __init__(self, name: str, jobs: list[Job], profile: Profile) -> None:
        if name in (".", ".."):
            raise SweepError([f"FILE: {name!r} can't name the sweep's folder; rename the file"])
        self.jobs = jobs
        self.outputs = resolved_path(jobs[0].plan.config.outputs_dir)
        self.profile = profile
        self.folder = self.outputs / "sweeps" / name
        self.log = self.folder / "snakemake.log"
        self.began: int | None = None
        """Modification time of a file written when `run` began, nanoseconds."""

    def statuses(self, *, over: bool = False) -> list[JobStatus]:
        """The status of each job; if the sweep is `over`, no job runs or waits."""
        remote = self.profile.remote
        found = measured(self.jobs, self.outputs, remote=remote, began=self.began)
        return [self._status(job, found.get(job.name), over) for job in self.jobs]

    def _status(self, job: Job, found: Measurement | None, over: bool) -> JobStatus:
        is_new = found and self.began and written(found.folder) >= self.began
        if found and found.result.status == "complete":
            return JobStatus(job, "done" if is_new else "kept", found)
        if over or (self.folder / f"{job.name}.ended").exists():
            failure = found and found.result.failure
            # Without a new result, the failure is that of an earlier call.
            reason = coded(failure) if failure and (is_new or not self.began) else ""
            return JobStatus(job, "failed", found, _on_one_line(reason or self._reason(job)))
        started = (self.folder / f"{job.name}.log").exists()
        return JobStatus(job, "running" if started else "waiting", found)

    def _reason(self, job: Job) -> str:
        """Why a job left no result, from its log or the executor's log. Untrusted text."""
        log = self.folder / f"{job.name}.log"
        text = Text.from_ansi(_text(log) if log.exists() else "").plain
        if lines := [line.strip() for line in text.split("\n") if line.strip()]:
            return lines[-1]
        logs = sorted(self.folder.glob(f".snakemake/slurm_logs/rule_run/{job.name}/*.log"))
        return f"the job did not finish; see {(logs or [self.log])[-1]}"

    def run(
        self, show: Callable[[list[JobStatus]], None], notify: Callable[[str], None]
    ) -> list[JobStatus]:
        """Run the unmeasured jobs, show their progress, write the site, return the statuses.
        Raises SweepError if another sweep is running here or Snakemake can't start."""
        make_folder(self.folder)
        with _lock(self.outputs, notify) as lock:
            if self.profile.executor == "slurm":
                _cancel_slurm_jobs(self.folder)
            if left := [s.job for s in self.statuses() if s.state != "kept"]:
                self._prepare(left)
                with self._snakemake(lock) as process:
                    self._follow(process, show)
                begun = any((self.folder / f"{job.name}.log").exists() for job in left)
                if process.returncode and not begun:
                    problem = "Snakemake exited before starting a job:"
                    raise SweepError([problem, *_text(self.log).splitlines()[-LAST_LINES:]])
            statuses = self.statuses(over=True)
            show(statuses)
            for reason in write_site(self.outputs, lambda _part: None)[1]:
                notify(f"left out: {reason}")
            return statuses

    def _prepare(self, left: list[Job]) -> None:
        """Remove outdated files, and write Snakemake's input."""
        self._remove_partial_files()
        # Another file of this name may have its jobs' files here, too.
        records = self.folder / ".snakemake"
        if records.is_symlink():
            records.unlink()
        shutil.rmtree(records, ignore_errors=True)
        own = [self.folder / name.format(job.name) for job in left for name in JOB_FILES]
        for path in (*own, self.log):
            path.unlink(missing_ok=True)
        # Kubernetes only gets the files that its plugin uploads, which excludes sample data.
        makes_samples = self.profile.executor != "kubernetes"
        content = for_snakemake(left, makes_samples=makes_samples)
        write_atomically(self.folder / "jobs.json", json.dumps(content, indent=1))
        self.began = (self.folder / "jobs.json").stat().st_mtime_ns
        # Beside jobs.json: without a shared file system, Snakemake uploads this folder.
        write_atomically(self.folder / "Snakefile", (WORKFLOW / "Snakefile").read_text("utf-8"))

    def _remove_partial_files(self) -> None:
        """Remove what killed writers left under `outputs`, as far as possible."""
        with contextlib.suppress(OSError):
            for path in self.outputs.rglob(f".*{PARTIAL}"):
                if time.time() - path.lstat().st_mtime > STALE_SECONDS:
                    path.unlink()

    def _follow(
        self, process: subprocess.Popen[bytes], show: Callable[[list[JobStatus]], None]
    ) -> None:
        """Show the progress until Snakemake exits, with little work while nothing changes."""
        before: object = None
        while process.poll() is None:
            files = {*self.folder.glob("*.log"), *self.folder.glob("*.ended")}
            state = files, [(folder, written(folder)) for folder in folders(self.outputs)]
            if state != before:
                show(self.statuses())
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
        # Notebooks are started by Snakemake's own process, not by another Snakemake.
        command += ["--force-use-threads"]
        if not self.profile.remote:
            command += ["--resources", "machine=1"]
        if self.profile.executor == "kubernetes":
            # The plugin assumes no shared file system, and transfers files through this folder.
            command += ["--default-storage-prefix", str(self.folder)]
        environment = {n: v for n, v in os.environ.items() if n != "SNAKEMAKE_PROFILE"}
        # The working directory may be from elsewhere: no module is imported from it.
        environment["PYTHONSAFEPATH"] = "1"
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
    # Links in a folder from elsewhere are not followed, and a pipe is not waited for.
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
    with os.fdopen(os.open(outputs / ".sweep.lock", flags, 0o644), "wb", 0) as file:
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


def _cancel_slurm_jobs(folder: Path) -> None:
    """Cancel the Slurm jobs of an earlier, killed call in `folder` and wait for their end.
    Raises SweepError."""

    def slurm(*words: str) -> str:
        try:
            return subprocess.run(words, check=True, capture_output=True, text=True).stdout
        except (OSError, subprocess.CalledProcessError) as error:
            reason = getattr(error, "stderr", None) or error
            raise SweepError([f"--profile: Slurm does not respond: {reason}"]) from None

    for _second in range(CANCELLED_SECONDS):
        listed = slurm("squeue", "--noheader", "--user", str(os.getuid()), "--format", "%A %Z")
        pairs = (line.split(maxsplit=1) for line in listed.splitlines())
        jobs = [job for job, where in pairs if Path(where).resolve() == folder.resolve()]
        if not jobs:
            return
        slurm("scancel", *jobs)
        time.sleep(1.0)
    raise SweepError([f"Slurm has not cancelled jobs of an earlier call: {', '.join(jobs)}"])


def _text(log: Path) -> str:
    return read_file(log).decode(errors="replace")


def _on_one_line(text: str) -> str:
    return portable("".join(filter(str.isprintable, text)))[:REASON_LENGTH]
