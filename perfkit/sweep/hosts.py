"""Runs the jobs of a fleet on its hosts over ssh: one at a time on each, several hosts at once.

This process holds the standard input of each ssh open. When it ends, even by kill -9, or ssh
does, the supervisor on the host sees its own standard input close and ends the job there.
"""

import contextlib
import subprocess
import time
from collections.abc import Iterator
from typing import NamedTuple

from perfkit.core.driver.programs import CLOSING_SECONDS, ssh_command, start_program
from perfkit.core.driver.supervised import PYTHON, SUPERVISOR
from perfkit.core.script_config import ScriptConfig
from perfkit.sweep.jobs import SweepJob
from perfkit.sweep.local import Show, new_log, perfkit_command
from perfkit.sweep.status import JobStatus, StoredResults

POLL_SECONDS = 1.0
LATENCY_SECONDS = 10.0
"""Time in which a shared folder shows what the host of an ended job has written."""
NOTEBOOK_SECONDS = 600
"""Time limit of a job besides its repeats."""


class RunningJob(NamedTuple):
    """A job on its host: the ssh process, and when it was started, nanoseconds of the disk's
    clock."""

    process: subprocess.Popen[bytes]
    since: int

    def close(self) -> None:
        """Have the job end, and wait for it for a limited time."""
        assert self.process.stdin
        self.process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(CLOSING_SECONDS)
        self.process.kill()
        self.process.wait()


def run_on_hosts(
    statuses: list[JobStatus], stored: StoredResults, most_jobs: int | None, show: Show
) -> list[JobStatus]:
    """Run the waiting jobs, each on its node, at most `most_jobs` at a time, and show their
    progress. Return the statuses at the end."""
    sweep = HostSweep(statuses, stored, most_jobs)
    show(sweep.statuses)
    try:
        while sweep.advance():
            show(sweep.statuses)
            time.sleep(POLL_SECONDS)
    finally:
        sweep.close()
    show(sweep.statuses)
    return sweep.statuses


class HostSweep:
    """The state of each job of a sweep on hosts; `running` is by the job's index."""

    def __init__(
        self, statuses: list[JobStatus], stored: StoredResults, most_jobs: int | None
    ) -> None:
        self.statuses = [*statuses]
        self.stored = stored
        self.most_jobs = most_jobs or len(statuses)
        self.running: dict[int, RunningJob] = {}

    def advance(self) -> bool:
        """Start what can be started, and update the statuses. Return whether a job is left."""
        self.stored.refresh()
        for index, running in [*self.running.items()]:
            self._follow(index, running)
        for index in self._startable():
            self._start(index)
        return bool(self.running)

    def _startable(self) -> Iterator[int]:
        """Yield the indices of jobs to start now: on idle hosts, in order."""
        busy = {self.statuses[index].job.plan.config.node for index in self.running}
        for index, status in enumerate(self.statuses):
            node = status.job.plan.config.node
            if len(self.running) >= self.most_jobs:
                return
            if status.state == "waiting" and node not in busy:
                busy.add(node)
                yield index

    def _start(self, index: int) -> None:
        job = self.statuses[index].job
        since = new_log(job)
        process = start_program(host_command(job), job.log)
        self.running[index] = RunningJob(process, since)
        self.statuses[index] = self.stored.while_running(job, since)

    def _follow(self, index: int, running: RunningJob) -> None:
        """Update the status of a started job."""
        job = self.statuses[index].job
        if running.process.poll() is None:
            self.statuses[index] = self.stored.while_running(job, running.since)
            return
        del self.running[index]
        running.close()
        self.statuses[index] = self._after_run(job, running)

    def _after_run(self, job: SweepJob, running: RunningJob) -> JobStatus:
        """Return the status of a job that has ended, once its result is visible here."""
        deadline = time.monotonic() + LATENCY_SECONDS
        while True:
            status = self.stored.after_run(job, running.since)
            is_expected = running.process.returncode == 0 and status.state != "done"
            if not is_expected or time.monotonic() > deadline:
                return status
            time.sleep(POLL_SECONDS)
            self.stored.list_folders()
            self.stored.refresh()

    def close(self) -> None:
        """End the jobs that are still running."""
        for running in self.running.values():
            running.close()


def host_command(job: SweepJob) -> list[str]:
    """Return the command of ssh that runs a job on its node and leaves nothing behind there."""
    plan = job.plan
    limit = plan.config.timeout * plan.protocol.repeats + NOTEBOOK_SECONDS
    supervisor = [*PYTHON, "-m", SUPERVISOR, "-", str(limit)]
    in_folder = []
    if isinstance(plan.config, ScriptConfig):
        # ssh begins in the home folder.
        in_folder = ["env", "--chdir", str(job.working_folder)]
    command = [*supervisor, *in_folder, *perfkit_command(job.words)]
    return ssh_command(plan.config.node, command)
