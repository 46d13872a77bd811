"""Snakemake over workflow/Snakefile: started, watched, stopped, cleaned up after.

What has been measured is in `outputs/<id>/` and nowhere else. The folder of a sweep,
`outputs/sweeps/<name>/`, holds what Snakemake needs and what the jobs said; each call derives
it anew from the results, so that after a kill there is nothing to unlock or to believe.
"""

import contextlib
import fcntl
import json
import os
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
from perfkit.driver.workers import ENDING_SECONDS, close
from perfkit.report.index import write_index
from perfkit.report.site import write_site
from perfkit.results.store import PARTIAL, RESULT, Measurement, write_atomically
from perfkit.sweep.file import SweepError
from perfkit.sweep.jobs import Job, for_snakemake, measured, written
from perfkit.sweep.profile import Profile, cancel_slurm_jobs, find_kubernetes
from perfkit.text.messages import coded

SNAKEFILE = ROOT / "workflow" / "Snakefile"
POLL_SECONDS = 1.0
CANCEL_SECONDS = 20.0
"""Time to cancel what runs on other machines before Snakemake itself is killed."""
LOCK_SECONDS = CANCEL_SECONDS + ENDING_SECONDS
"""What an earlier call started is gone by then, had that been killed."""
STALE_SECONDS = 60.0
REASON_LENGTH = 300
SAID_LINES = 8


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
        self.earlier: dict[Path, int] = {}

    def measured(self) -> dict[str, Measurement]:
        return measured(self.jobs, self.outputs, elsewhere=self.profile.elsewhere)

    def standings(self, *, over: bool = False) -> list[Standing]:
        """How it stands with each job; when all is `over`, nothing runs or waits any more."""
        ended = {job.name: self._status(job) for job in self.jobs}
        found = self.measured()
        succeeded = [job.name for job in self.jobs if ended[job.name] == "0"]
        if not all(_is_done(found.get(name)) for name in succeeded):
            # Measured just now in another environment: something here was changed meanwhile.
            found = measured(self.jobs, self.outputs, elsewhere=True) | {
                name: one for name, one in found.items() if _is_done(one)
            }
        return [
            self._standing(job, found.get(job.name), over or ended[job.name] is not None)
            for job in self.jobs
        ]

    def run(
        self, show: Callable[[list[Standing]], None], say: Callable[[str], None]
    ) -> list[Standing]:
        """Run what is not measured yet, showing how it stands as it goes, and write the site;
        how it stands at the end. Raises SweepError if another sweep is at work here, or
        Snakemake can't start."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with _lock(self.outputs, say) as lock:
            self._prepare()
            with self._snakemake(lock) as process:
                self._follow(process, show)
            standings = self.standings(over=True)
            if process.returncode:
                if not any((self.folder / f"{job.name}.log").exists() for job in self.jobs):
                    said = self.log.read_text(errors="replace").splitlines()[-SAID_LINES:]
                    raise SweepError(["Snakemake ended before it began a job:", *said])
                # It leaves the last rule out if a job was killed where it ran.
                write_site(self.outputs, lambda _part: None)
            return standings

    def _follow(
        self, process: subprocess.Popen[bytes], show: Callable[[list[Standing]], None]
    ) -> None:
        """Show how it stands until Snakemake has ended: with little work as long as nothing
        changes, since a measurement is going on."""
        files: list[tuple[str, float]] = []
        failed = 0
        while process.poll() is None:
            before, files = files, self._files()
            if files != before:
                standings = self.standings()
                show(standings)
                # What is done has written the index itself.
                failed_before, failed = failed, sum(one.state == "failed" for one in standings)
                if failed > failed_before:
                    # A page that can't be written is no reason to end what runs.
                    with contextlib.suppress(OSError):
                        write_index(self.outputs)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(POLL_SECONDS)

    def _files(self) -> list[tuple[str, float]]:
        """The files that standings are derived from, each with when it was written last."""
        found = []
        for path in (*self.outputs.glob(f"*/{RESULT}"), *self.folder.glob("*.*")):
            with contextlib.suppress(FileNotFoundError):
                found.append((str(path), path.stat().st_mtime if path.suffix == ".json" else 0))
        return sorted(found)

    def _status(self, job: Job) -> str | None:
        """The exit status of its notebook; None if that has not come to its end."""
        path = self.folder / f"{job.name}.ended"
        return path.read_text().strip() if path.exists() else None

    def _standing(self, job: Job, found: Measurement | None, ended: bool) -> Standing:
        if found and _is_done(found):
            return Standing(job, "done", found)
        if ended:
            reason = "".join(filter(str.isprintable, self._reason(job, found)))
            return Standing(job, "failed", found, portable(reason)[:REASON_LENGTH])
        started = (self.folder / f"{job.name}.log").exists()
        return Standing(job, "running" if started else "waiting", found)

    def _reason(self, job: Job, found: Measurement | None) -> str:
        """Why it failed: what its result says, what its notebook said last, or else the log
        of who was to run it. Text from elsewhere."""
        failure = found.result.failure if found else None
        if found and failure and written(found.folder) != self.earlier.get(found.folder):
            return coded(failure)
        log = self.folder / f"{job.name}.log"
        said = Text.from_ansi(log.read_text(errors="replace")).plain if log.exists() else ""
        if words := [line.strip() for line in said.split("\n") if line.strip()]:
            return words[-1]
        logs = sorted(self.folder.glob(f".snakemake/slurm_logs/rule_run/{job.name}/*.log"))
        return f"its job did not come to its end; see {_shown((logs or [self.log])[-1])}"

    def _prepare(self) -> None:
        """Leave of earlier calls what is true now, and nothing else."""
        shutil.rmtree(self.folder / ".snakemake", ignore_errors=True)
        if self.profile.executor == "slurm":
            cancel_slurm_jobs(self.folder)
        if self.profile.executor == "kubernetes":
            find_kubernetes()
        _remove_half_written(self.outputs)
        for notebook in self.folder.glob(".*.ipynb"):
            notebook.unlink()
        # The site is written by each call: it has what was measured besides, too.
        (self.folder / "site.written").unlink(missing_ok=True)
        found = self.measured()
        self.earlier = {one.folder: written(one.folder) for one in found.values()}
        for job in self.jobs:
            ended = self.folder / f"{job.name}.ended"
            if _is_done(found.get(job.name)):
                if not ended.exists():
                    write_atomically(ended, "0\n")
            else:
                ended.unlink(missing_ok=True)
                (self.folder / f"{job.name}.log").unlink(missing_ok=True)
        # Nothing here is shared with Kubernetes but what its plugin passes on: no sample data.
        makes_samples = self.profile.executor != "kubernetes"
        told = for_snakemake(self.jobs, self.outputs, makes_samples=makes_samples)
        write_atomically(self.folder / "jobs.json", json.dumps(told, indent=1))
        # Beside what it reads: where nothing is shared, Snakemake sends on what lies here.
        write_atomically(self.folder / "Snakefile", SNAKEFILE.read_text("utf-8"))

    @contextmanager
    def _snakemake(self, lock: int) -> Iterator[subprocess.Popen[bytes]]:
        """Snakemake at work; nothing that it started here outlives the block, or this process.

        The supervisor holds the lock too: until all is gone, no other call begins.
        """
        scratch = tempfile.mkdtemp(prefix="perfkit-sweep-")
        grace = str(CANCEL_SECONDS if self.profile.elsewhere else 0)
        command = [sys.executable, "-m", "perfkit.driver.supervisor"]
        command += [scratch, grace, "--interrupt"]
        command += [sys.executable, "-m", "snakemake", "--snakefile", "Snakefile"]
        command += ["--workflow-profile", str(self.profile.folder), "--keep-going"]
        # Its own records are thrown away: the lock is ours, and a job is done if it has ended.
        command += ["--nolock", "--rerun-triggers", "mtime", "--scheduler", "greedy"]
        if not self.profile.elsewhere:
            command += ["--resources", "machine=1"]
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


def _is_done(found: Measurement | None) -> bool:
    return found is not None and found.result.status == "complete"


@contextmanager
def _lock(outputs: Path, say: Callable[[str], None]) -> Iterator[int]:
    """The lock of the folder, as a descriptor. Raises SweepError if it can't be had."""
    descriptor = os.open(outputs / ".sweep.lock", os.O_RDWR | os.O_CREAT, 0o644)
    deadline = None
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if deadline is None:
                    deadline = time.monotonic() + LOCK_SECONDS
                    say(f"Waiting for another sweep of {_shown(outputs)}, or what it left …")
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
    for depth in ("", "*/", "sweeps/*/"):
        for path in outputs.glob(f"{depth}.*{PARTIAL}"):
            with contextlib.suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > STALE_SECONDS:
                    path.unlink()


def _shown(path: Path) -> Any:
    return path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
