"""Runs a whole sweep: one at a time in an outputs folder, sample data, jobs, site."""

import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from perfkit.core.driver.measure import alone
from perfkit.core.request import RequestError
from perfkit.core.results.store import PARTIAL, make_folder, read_file
from perfkit.report.site import write_site
from perfkit.sweep.hosts import run_on_hosts
from perfkit.sweep.jobs import SweepJob, missing
from perfkit.sweep.local import Show, perfkit_command, run_here, run_supervised
from perfkit.sweep.slurm import require_slurm, run_on_slurm
from perfkit.sweep.status import JobStatus, StoredResults, in_state
from perfkit.sweep.sweep_file import SweepError

STALE_SECONDS = 3600.0
"""No write of a file takes this long."""


@dataclass(frozen=True)
class SweepPlace:
    """Where a sweep measures: on this machine, in Slurm jobs with the options of sbatch, or on
    the hosts that are the jobs' nodes. `most_jobs`: how many run, or wait in Slurm's queue, at
    the same time; None: as many as possible."""

    kind: Literal["here", "slurm", "hosts"] = "here"
    sbatch_options: tuple[str, ...] = ()
    most_jobs: int | None = None

    @property
    def elsewhere(self) -> bool:
        """Whether other machines measure."""
        return self.kind != "here"


HERE = SweepPlace()


def statuses_before(jobs: list[SweepJob], *, elsewhere: bool) -> list[JobStatus]:
    """Return the statuses of the jobs before any of them runs."""
    stored = StoredResults(jobs[0].outputs, elsewhere=elsewhere)
    return [stored.before_run(job) for job in jobs]


def run_sweep(
    jobs: list[SweepJob],
    show: Show,
    notify: Callable[[str], None],
    place: SweepPlace = HERE,
) -> list[JobStatus]:
    """Run the unmeasured jobs, show their progress, write the site, and return the statuses.

    Raises SweepError if another sweep is running in the outputs folder, if nothing can run, if
    Slurm does not answer, or if it refuses the first job.
    """
    outputs = jobs[0].outputs
    if not outputs.exists():
        _require_a_start(jobs, place)
    make_folder(outputs / "sweeps")
    with _only_sweep(outputs):
        _remove_partial_files(outputs)
        stored = StoredResults(outputs, elsewhere=place.elsewhere)
        statuses = [stored.before_run(job) for job in jobs]
        if len(in_state(statuses, "skipped")) == len(statuses):
            raise _nothing_runs(jobs)
        _make_samples(in_state(statuses, "waiting"), notify)
        statuses = _run(statuses, stored, place, show, notify)
        for reason in write_site(outputs, lambda _part: None)[1]:
            notify(f"left out: {reason}")
        return statuses


def _require_a_start(jobs: list[SweepJob], place: SweepPlace) -> None:
    """Raise SweepError, before a folder is made, if no job can start; none is kept either."""
    if place.kind == "slurm":
        require_slurm()
    if all(job.missing for job in jobs):
        raise _nothing_runs(jobs)


def _nothing_runs(jobs: list[SweepJob]) -> SweepError:
    return SweepError([f"nothing can run here: {reason}" for reason in missing(jobs)])


def _run(
    statuses: list[JobStatus],
    stored: StoredResults,
    place: SweepPlace,
    show: Show,
    notify: Callable[[str], None],
) -> list[JobStatus]:
    """Run the waiting jobs at their place. Return the statuses at the end."""
    match place.kind:
        case "here":
            return run_here(statuses, stored, show)
        case "hosts":
            return run_on_hosts(statuses, stored, place.most_jobs, show)
        case "slurm":
            options = [*place.sbatch_options]
            return run_on_slurm(statuses, stored, options, place.most_jobs, show, notify)


@contextmanager
def _only_sweep(outputs: Path) -> Iterator[None]:
    """Hold the lock of the outputs folder, which ends with this process however it ends. Raises
    SweepError if another sweep holds it or the file system has no locks, and OSError if the
    lock is a link."""
    taken = f"another sweep is running in {outputs}; wait for its end"
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(alone(outputs / ".sweep.lock", taken))
        except RequestError as error:
            raise SweepError(error.problems) from None
        yield


def _remove_partial_files(outputs: Path) -> None:
    """Remove what killed writers left under `outputs`, as far as possible."""
    with contextlib.suppress(OSError):
        for path in outputs.rglob(f".*{PARTIAL}"):
            if time.time() - path.lstat().st_mtime > STALE_SECONDS:
                path.unlink()


def _make_samples(waiting: list[JobStatus], notify: Callable[[str], None]) -> None:
    """Make the sample data of these jobs that doesn't exist. Raises SweepError."""
    for status in waiting:
        job = status.job
        file = job.sample_file
        if not file or file.exists():
            continue
        notify(f"Creating sample data: {file.parent}")
        log = job.outputs / "sweeps" / "samples.log"
        log.unlink(missing_ok=True)
        command = perfkit_command(["samples", *job.sample_options])
        if run_supervised(command, log, lambda: None):
            reason = " ".join(read_file(log).decode(errors="replace").split())
            raise SweepError([f"sample data: {reason}"])
