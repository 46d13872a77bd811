"""Runs jobs on this machine, one after another."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from perfkit.core.driver.supervised import close, start_supervised
from perfkit.core.paths import ROOT
from perfkit.core.system.scratch import Scratch
from perfkit.sweep.jobs import SweepJob
from perfkit.sweep.status import JobStatus, StoredResults

POLL_SECONDS = 1.0
Show = Callable[[list[JobStatus]], None]


def run_here(statuses: list[JobStatus], stored: StoredResults, show: Show) -> list[JobStatus]:
    """Run the waiting jobs and show their progress. Return the statuses at the end."""
    statuses = list(statuses)
    show(statuses)
    for index, status in enumerate(statuses):
        if status.state == "waiting":
            job = status.job
            since = new_log(job)

            def show_progress(
                index: int = index, job: SweepJob = job, since: int = since
            ) -> None:
                if stored.refresh():
                    statuses[index] = stored.while_running(job, since)
                    show(statuses)

            statuses[index] = JobStatus(job, "running", status.measurement)
            show(statuses)
            run_supervised(perfkit_command(job.words), job.log, show_progress)
            stored.refresh()
            statuses[index] = stored.after_run(job, since)
            show(statuses)
    return statuses


def new_log(job: SweepJob) -> int:
    """Create the job's empty log. Return when, nanoseconds of the disk's clock."""
    # A link is not followed, but replaced.
    job.log.unlink(missing_ok=True)
    job.log.touch()
    return job.log.stat().st_mtime_ns


def perfkit_command(words: list[str]) -> list[str]:
    """The command `perfkit WORDS` by this interpreter. It imports nothing from the working
    directory, which may be from elsewhere."""
    return [sys.executable, "-P", "-m", "perfkit.cli", *words]


def run_supervised(command: list[str], log: Path, poll: Callable[[], None]) -> int:
    """Run a command to its end, and return its exit status. None of its processes outlives this
    call, or this process. `poll` is called every POLL_SECONDS."""
    with Scratch() as scratch:
        environment = dict(os.environ)
        process = start_supervised(command, scratch.folder, environment, log=log, cwd=ROOT)
        try:
            while True:
                try:
                    return process.wait(POLL_SECONDS)
                except subprocess.TimeoutExpired:
                    poll()
        finally:
            close(process)
