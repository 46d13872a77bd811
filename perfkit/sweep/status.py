"""The state of each job, from the stored measurements."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from rich.text import Text

from perfkit.measuring.config import Config
from perfkit.measuring.format import plain, shortened
from perfkit.measuring.request.requirements import read_environment
from perfkit.measuring.results.base import Reading
from perfkit.measuring.results.identity import measurement_id
from perfkit.measuring.results.store import Measurement, ResultError, Store, folders
from perfkit.measuring.system.software import InterpreterError
from perfkit.sweep.jobs import SweepJob, work

REASON_LENGTH = 300
REASON_LINES = 8
NEVER = 2**63
"""Later than any file was written, nanoseconds."""

State = Literal["waiting", "running", "kept", "done", "failed", "skipped"]


@dataclass(frozen=True)
class JobStatus:
    """The state of a job, its measurement and the reason for its failure.

    `kept`: measured by an earlier call; `skipped`: this machine can't run it.
    """

    job: SweepJob
    state: State
    measurement: Measurement | None = None
    reason: str = ""


def in_state(statuses: Iterable[JobStatus], *states: State) -> list[JobStatus]:
    """Return the statuses of the jobs in one of these states."""
    return [status for status in statuses if status.state in states]


class Stored(NamedTuple):
    """A stored measurement, when its result was last written (nanoseconds), and its `work`."""

    measurement: Measurement
    written: int
    work: str


class StoredResults:
    """The measurements under an outputs folder that belong to jobs of a sweep.

    The measurement of a job on this machine is that of the current environment and data. The
    environment of a Slurm job is unknown: its newest measurement counts.
    """

    def __init__(self, outputs: Path, *, elsewhere: bool = False) -> None:
        self.outputs = outputs
        self.elsewhere = elsewhere
        self.by_folder: dict[Path, Stored | None] = {}
        self.environments: dict[tuple[str, Path | None, str], dict[str, Reading]] = {}
        self.refresh()

    def refresh(self) -> bool:
        """Read the results that were written since the last call. Return whether there are
        any."""
        before, self.by_folder = self.by_folder, {}
        for folder in folders(self.outputs):
            stored = before.get(folder)
            if not stored or stored.written != written(folder):
                stored = _read(folder)
            self.by_folder[folder] = stored
        return self.by_folder != before

    def list_folders(self) -> None:
        """Have the next `refresh` see what other machines have written: NFS remembers for up to
        a minute what a file was, unless its folder is listed."""
        for folder in self.by_folder:
            with suppress(OSError):
                list(folder.iterdir())

    def same_work(self, job: SweepJob) -> list[Stored]:
        """Return the measurements of the job's configuration in any environment, the newest
        first."""
        wanted = work(job.plan)
        same = [each for each in self.by_folder.values() if each and each.work == wanted]
        return sorted(same, key=lambda stored: stored.written, reverse=True)

    def of(self, job: SweepJob, since: int = NEVER) -> Measurement | None:
        """Return the job's measurement, complete or not. If there is no complete one, the
        newest that was written `since` then (nanoseconds) counts, even with another
        environment: code or packages may have changed while the sweep was running."""
        same = self.same_work(job)
        if self.elsewhere:
            return same[0].measurement if same else None
        continued = (each.measurement for each in same if self._continues(job, each))
        newest = next(continued, None)
        if newest and newest.result.status == "complete":
            return newest
        if same and same[0].written >= since:
            return same[0].measurement
        return newest

    def _continues(self, job: SweepJob, stored: Stored) -> bool:
        """Return whether the job would continue this measurement on this machine now."""
        config, protocol = job.plan.config, job.plan.protocol
        try:
            environment = self._environment(config)
        except InterpreterError:
            return False
        data_sha256 = config.work.data_sha256
        identifier = measurement_id(config, protocol, environment, data_sha256)
        return identifier == stored.measurement.result.id

    def _environment(self, config: Config) -> dict[str, Reading]:
        """Return the environment at the first call. Raises InterpreterError."""
        key = config.framework, config.work.data_folder, config.interpreter
        if key not in self.environments:
            self.environments[key] = read_environment(*key)
        return self.environments[key]

    def before_run(self, job: SweepJob) -> JobStatus:
        """Return the state of a job that this call has not run."""
        measurement = self.of(job)
        if measurement and measurement.result.status == "complete":
            return JobStatus(job, "kept", measurement)
        if job.missing:
            return JobStatus(job, "skipped", measurement)
        reason = ""
        if measurement and measurement.result.failure:
            reason = shortened(measurement.result.failure.line(), REASON_LENGTH)
        return JobStatus(job, "waiting", measurement, reason)

    def while_running(self, job: SweepJob, since: int) -> JobStatus:
        return JobStatus(job, "running", self.of(job, since))

    def after_run(self, job: SweepJob, since: int) -> JobStatus:
        """Return the state of a job whose processes have ended; they ran `since` then."""
        measurement = self.of(job, since)
        if measurement and measurement.result.status == "complete":
            return JobStatus(job, "done", measurement)
        reason = ""
        if measurement and written(measurement.folder) >= since and measurement.result.failure:
            reason = measurement.result.failure.line()
        reason = reason or _last_lines(job.log)
        return JobStatus(job, "failed", measurement, shortened(reason, REASON_LENGTH))


def written(folder: Path) -> int:
    """Return when the folder's result was last written, nanoseconds; 0 without a result."""
    try:
        return Store(folder).result_file.stat().st_mtime_ns
    except OSError:
        return 0


def _read(folder: Path) -> Stored | None:
    # A write after this line is read at the next call.
    when = written(folder)
    try:
        measurement = Measurement.read(folder)
    except ResultError:
        return None
    return Stored(measurement, when, work(measurement.result))


def _last_lines(log: Path) -> str:
    """Return why a job left no result: the end of its log."""
    try:
        printed = log.read_text(errors="replace")
        # from_ansi leaves out what a \r would overwrite.
        text = Text.from_ansi(printed).plain
    except OSError:
        text = ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    end = plain(" ".join(lines[-REASON_LINES:]))
    return end or f"it left no result and no message in {log}"
