"""Runs each job of a sweep as a Slurm job, by Slurm's own commands; accounting is not needed.

The name of a Slurm job has the digest of the sweep's job. A sweep that follows a killed one
finds the Slurm jobs by their names, and follows them instead of submitting them again.
"""

import os
import shlex
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from perfkit.sweep.jobs import SweepJob
from perfkit.sweep.local import Show, new_log, perfkit_command
from perfkit.sweep.status import JobStatus, StoredResults
from perfkit.sweep.sweep_file import SweepError
from perfkit.timing.rank_process import end_with_parent

PREFIX = "perfkit-"
"""Beginning of the names of the Slurm jobs."""
POLL_SECONDS = 2.0
LATENCY_SECONDS = 10.0
"""Time in which a shared folder shows what the node of an ended job has written."""
IMPOSSIBLE = "Requested node configuration is not available"
"""Slurm's words for a job that no node of the partition can ever run."""
LEAVING = ("COMPLETING", "CANCELLED", "COMPLETED", "FAILED", "NODE_FAIL", "TIMEOUT")
"""States of a Slurm job that has ended or been cancelled, but is still listed."""
WHERE_SLURM_WORKS = "start the sweep where Slurm's commands work, such as a login node"
"""Advice if Slurm does not answer."""


class SlurmError(Exception):
    """A command of Slurm failed; the message is its own."""


class QueuedJob(NamedTuple):
    """A job in Slurm's queue."""

    number: str
    state: str


class Followed(NamedTuple):
    """A Slurm job of this sweep: when it was submitted (nanoseconds, 0 by an earlier call), and
    when it was first missing in the queue (monotonic seconds)."""

    since: int
    missing_at: float | None = None


def run_on_slurm(
    statuses: list[JobStatus],
    stored: StoredResults,
    sbatch_options: list[str],
    most_jobs: int | None,
    show: Show,
    notify: Callable[[str], None],
) -> list[JobStatus]:
    """Submit the waiting jobs, at most `most_jobs` at a time, follow them to their end, and
    return the statuses. On an interrupt or an error, the remaining Slurm jobs are cancelled.
    Raises SweepError if Slurm refuses the first job, as for a wrong option."""
    sweep = SlurmSweep(statuses, stored, sbatch_options, most_jobs, notify)
    show(statuses)
    try:
        while sweep.open_jobs():
            sweep.advance()
            show(sweep.statuses())
            if sweep.open_jobs():
                time.sleep(POLL_SECONDS)
    finally:
        sweep.cancel()
    return sweep.statuses()


class SlurmSweep:
    """The state of each job of a sweep on Slurm."""

    def __init__(
        self,
        statuses: list[JobStatus],
        stored: StoredResults,
        sbatch_options: list[str],
        most_jobs: int | None,
        notify: Callable[[str], None],
    ) -> None:
        self.by_name = {slurm_name(status.job): status for status in statuses}
        self.stored = stored
        self.sbatch_options = sbatch_options
        self.most_jobs = most_jobs
        self.notify = notify
        self.followed: dict[str, Followed] = {}
        self.is_full = False
        """Whether Slurm accepts no further job before one has ended."""
        self.has_submitted = False
        self.is_silent = False
        """Whether Slurm did not answer the last time."""

    def statuses(self) -> list[JobStatus]:
        return [*self.by_name.values()]

    def open_jobs(self) -> list[str]:
        """Return the names of the jobs that wait or run."""
        states = ("waiting", "running")
        return [name for name, status in self.by_name.items() if status.state in states]

    def advance(self) -> None:
        """Submit what can be submitted, and update the statuses."""
        queue = self._queue()
        if queue is None:
            return
        if self.followed.keys() - queue.keys():
            self.stored.list_folders()
        self.stored.refresh()
        for name in self.open_jobs():
            queued = queue.get(name)
            if name not in self.followed and queued and queued.state not in LEAVING:
                # Submitted by an earlier call, which was killed.
                self.followed[name] = Followed(since=0)
            if name in self.followed:
                self._follow(name, queued)
        for name in self.open_jobs():
            if name not in self.followed and name not in queue and self._has_room():
                self._submit(name)

    def _has_room(self) -> bool:
        """Return whether another job may be submitted."""
        if self.is_full:
            return False
        return self.most_jobs is None or len(self.followed) < self.most_jobs

    def _queue(self) -> dict[str, QueuedJob] | None:
        """Return the jobs in Slurm's queue; None if Slurm does not answer for now. Raises
        SweepError if it does not answer before anything is submitted."""
        try:
            queue = queued_jobs()
        except SlurmError as error:
            if not self.followed and not self.has_submitted:
                raise SweepError([f"--slurm: {error}; {WHERE_SLURM_WORKS}"]) from None
            if not self.is_silent:
                self.notify(f"Slurm does not answer, its jobs continue: {error}")
            self.is_silent = True
            return None
        self.is_silent = False
        return queue

    def _follow(self, name: str, queued: QueuedJob | None) -> None:
        """Update the status of a job that has been submitted."""
        job = self.by_name[name].job
        followed = self.followed[name]
        if queued:
            status = self.stored.while_running(job, followed.since)
            is_pending = queued.state == "PENDING"
            if is_pending:
                status = replace(status, state="waiting")
            self.by_name[name] = status
            return
        ended = self.stored.after_run(job, followed.since)
        missing_at = followed.missing_at or time.monotonic()
        is_overdue = time.monotonic() - missing_at > LATENCY_SECONDS
        if ended.state == "done" or is_overdue:
            self.by_name[name] = ended
            del self.followed[name]
            self.is_full = False
        else:
            self.followed[name] = followed._replace(missing_at=missing_at)

    def _submit(self, name: str) -> None:
        """Submit a job, unless another sweep has done so. A job that no node can run fails.
        Raises SweepError if Slurm refuses the first one for another reason."""
        job = self.by_name[name].job
        try:
            if name in queued_jobs():
                return
            since = new_log(job)
            command_output(*sbatch_words(job, self.sbatch_options))
        except SlurmError as error:
            is_impossible = IMPOSSIBLE in str(error)
            if self.followed and not is_impossible:
                self.is_full = True
            elif self.has_submitted or is_impossible:
                self.by_name[name] = JobStatus(job, "failed", reason=str(error))
            else:
                raise SweepError([f"--slurm: {error}"]) from None
        else:
            self.has_submitted = True
            self.followed[name] = Followed(since)

    def cancel(self) -> None:
        """Cancel the Slurm jobs that are still open."""
        names = self.open_jobs()
        if not names:
            return
        try:
            queue = queued_jobs()
            numbers = [queue[name].number for name in names if name in queue]
            if numbers:
                command_output("scancel", *numbers)
        except SlurmError as error:
            if self.followed or self.has_submitted:
                self.notify(f"The Slurm jobs were not cancelled: {error}")


def slurm_name(job: SweepJob) -> str:
    return f"{PREFIX}{job.digest}"


def queued_jobs() -> dict[str, QueuedJob]:
    """Return this user's jobs of sweeps in Slurm's queue, by name. Raises SlurmError."""
    user = str(os.getuid())
    lines = command_output("squeue", "--noheader", "--user", user, "--format", "%i %T %j")
    jobs = {}
    for line in lines.splitlines():
        words = line.split(maxsplit=2)
        # The name of another job may be empty or have several lines.
        if len(words) == 3 and words[2].startswith(PREFIX):
            number, state, name = words
            jobs[name] = QueuedJob(number, state)
    return jobs


def sbatch_words(job: SweepJob, sbatch_options: list[str]) -> list[str]:
    """Return the command that submits a job on whole nodes. The user's options come after ours,
    which they override, except for the name, by which the job is found again."""
    config = job.plan.config
    # % starts a replacement in the file's name.
    log = str(job.log).replace("%", "%%")
    words = ["sbatch", "--parsable"]
    words += ["--nodes", str(config.nodes), "--exclusive", "--mem", "0", "--no-requeue"]
    if config.node:
        words += ["--nodelist", config.node]
    if config.accelerated:
        words += ["--gres", f"gpu:{config.gpus}"]
    words += ["--chdir", str(job.working_folder), "--output", log]
    # The notebook runs in the batch step, which has the whole first node, and starts the steps
    # on the others.
    command = shlex.join(perfkit_command(job.words))
    return [*words, *sbatch_options, "--job-name", slurm_name(job), "--wrap", f"exec {command}"]


def command_output(*words: str) -> str:
    """Return the output of a command of Slurm, which ends with this process. Raises
    SlurmError."""
    # Such as SQUEUE_STATES, which would hide jobs from squeue.
    environment = dict(os.environ)
    for name in os.environ:
        if name.startswith("SQUEUE_"):
            del environment[name]
    try:
        done = subprocess.run(
            words,
            check=True,
            capture_output=True,
            text=True,
            # The names of other jobs are any bytes.
            errors="replace",
            env=environment,
            stdin=subprocess.DEVNULL,
            # This process has one thread.
            preexec_fn=end_with_parent,
        )
    except FileNotFoundError:
        raise SlurmError(f"{words[0]} is not installed on this machine") from None
    except subprocess.CalledProcessError as error:
        # Each line of Slurm's begins with the program, which is named once.
        lines = [line.removeprefix(f"{words[0]}: ") for line in error.stderr.splitlines()]
        message = " ".join(" ".join(lines).split()) or f"exit status {error.returncode}"
        raise SlurmError(f"{words[0]}: {message}") from None
    return done.stdout
