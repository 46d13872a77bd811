"""Runs a whole sweep: one at a time in an outputs folder, jobs, site."""

import contextlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from perfkit.measuring.driver.measure import alone
from perfkit.measuring.format import plain
from perfkit.report.site import write_site
from perfkit.sweep.jobs import SweepJob, missing
from perfkit.sweep.local import Show, run_here
from perfkit.sweep.slurm import run_on_slurm
from perfkit.sweep.status import JobStatus, StoredResults, in_state
from perfkit.sweep.sweep_file import SweepError

LOCK = ".sweep.lock"
"""Name of the lock of an outputs folder."""


class SlurmOptions(NamedTuple):
    """How a sweep submits Slurm jobs: the options of sbatch, and how many run, or wait in
    Slurm's queue, at the same time; None: as many as possible."""

    sbatch: list[str]
    most_jobs: int | None


def statuses_before(jobs: list[SweepJob], *, elsewhere: bool) -> list[JobStatus]:
    """Return the statuses of the jobs before any of them runs."""
    stored = StoredResults(jobs[0].outputs, elsewhere=elsewhere)
    return [stored.before_run(job) for job in jobs]


def run_sweep(
    jobs: list[SweepJob],
    show: Show,
    notify: Callable[[str], None],
    slurm: SlurmOptions | None = None,
) -> list[JobStatus]:
    """Run the unmeasured jobs on this machine or, with `slurm`, as Slurm jobs. Show their
    progress, write the site, and return the statuses.

    Raises RequestError if another sweep is running in the outputs folder, if nothing can run,
    if Slurm does not answer, or if it refuses the first job.
    """
    outputs = jobs[0].outputs
    is_new = not outputs.exists()
    (outputs / "sweeps").mkdir(parents=True, exist_ok=True)
    taken = f"another sweep is running in {outputs}; wait for its end"
    with alone(outputs / LOCK, taken), _removed_if_refused(outputs, is_new=is_new):
        stored = StoredResults(outputs, elsewhere=slurm is not None)
        statuses = [stored.before_run(job) for job in jobs]
        if len(in_state(statuses, "skipped")) == len(statuses):
            raise SweepError([f"nothing can run here: {reason}" for reason in missing(jobs)])
        if slurm is None:
            statuses = run_here(statuses, stored, show)
        else:
            statuses = run_on_slurm(
                statuses, stored, slurm.sbatch, slurm.most_jobs, show, notify
            )
        for reason in write_site(outputs, lambda _part: None)[1]:
            notify(plain(f"left out: {reason}"))
        return statuses


@contextmanager
def _removed_if_refused(outputs: Path, *, is_new: bool) -> Iterator[None]:
    """Remove an outputs folder that is new, with its lock, if nothing was started in it."""
    try:
        yield
    except SweepError:
        if is_new:
            for log in (outputs / "sweeps").iterdir():
                log.unlink()
            (outputs / LOCK).unlink(missing_ok=True)
            # On NFS, the open lock keeps the folder from being empty.
            with contextlib.suppress(OSError):
                (outputs / "sweeps").rmdir()
                outputs.rmdir()
        raise
