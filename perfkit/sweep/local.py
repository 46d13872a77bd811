"""Runs jobs on this machine, one after another."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from perfkit.measuring.driver.supervised import close, start_supervised
from perfkit.measuring.system.scratch import Scratch
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
            _run_job(index, statuses, stored, show)
    return statuses


def _run_job(index: int, statuses: list[JobStatus], stored: StoredResults, show: Show) -> None:
    """Run the job at this index and keep its status up to date."""
    job = statuses[index].job
    since = new_log(job)

    def update(status: JobStatus) -> None:
        statuses[index] = status
        show(statuses)

    def poll() -> None:
        if stored.refresh():
            update(stored.while_running(job, since))

    update(JobStatus(job, "running", statuses[index].measurement))
    run_supervised(perfkit_command(job.words), job.log, poll, job.working_folder)
    stored.refresh()
    update(stored.after_run(job, since))


def new_log(job: SweepJob) -> int:
    """Create the job's empty log. Return when, nanoseconds of the disk's clock."""
    # A link is not followed, but replaced.
    job.log.unlink(missing_ok=True)
    job.log.touch()
    return job.log.stat().st_mtime_ns


def perfkit_command(words: list[str]) -> list[str]:
    """Return the command `perfkit WORDS` by this interpreter. It imports nothing from the
    working directory, which may be from elsewhere."""
    return [sys.executable, "-P", "-m", "perfkit.cli", *words]


def run_supervised(
    command: list[str], log: Path, poll: Callable[[], None], folder: Path
) -> None:
    """Run a command in `folder` to its end. None of its processes outlives this call, or this
    process. `poll` is called every POLL_SECONDS."""
    with Scratch() as scratch:
        environment = dict(os.environ)
        process = start_supervised(command, scratch.folder, environment, log=log, cwd=folder)
        try:
            while True:
                try:
                    process.wait(POLL_SECONDS)
                    return
                except subprocess.TimeoutExpired:
                    poll()
        finally:
            close(process)
