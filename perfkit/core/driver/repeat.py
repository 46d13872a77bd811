"""One repeat: starts worker processes, monitors them until they exit, summarizes the result."""

import contextlib
import shutil
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import chain
from math import inf
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import psutil
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from perfkit.core.config import Config, Protocol
from perfkit.core.driver.failures import (
    NodeError,
    cause,
    finished,
    timed_out,
    unwritten,
)
from perfkit.core.driver.progress import Progress
from perfkit.core.driver.workers import ExitInfo, Launcher, LocalWorkers, find_supervisor
from perfkit.core.models import units_per_sample
from perfkit.core.paths import portable
from perfkit.core.results.failures import Failure, Interrupted, WorkerError
from perfkit.core.results.repeat import Repeat
from perfkit.core.results.schema import Effective
from perfkit.core.results.store import (
    Events,
    ResultError,
    Store,
    make_folder,
    rank_file,
    raw_digests,
    read_events,
    read_raw_files,
    write_atomically,
)
from perfkit.core.results.summarize import summarize
from perfkit.core.results.telemetry import SAMPLING_SECONDS
from perfkit.core.system.telemetry import Telemetry


class TaskError(RuntimeError):
    """A task of workers other than a measurement failed; the message says why."""


def perform(config: Config, protocol: Protocol, task: str, raw: Path) -> list[Events]:
    """Run the workers for `task`, with raw files in the folder `raw`, and return the events by
    rank. Raises TaskError if a worker does not complete the task."""
    raw.mkdir(parents=True)
    with LocalWorkers(config, protocol, raw, f"perfkit-{task}", task=task) as workers:
        in_time = workers.wait(config.timeout)
        workers.end()
        exit_info = workers.exit_info()
    events = [_events(rank_file(raw, rank)) for rank in range(config.ranks)]
    if not in_time:
        raise TaskError(f"{task}: took over {config.timeout} s; -p timeout allows more")
    if not all(map(finished, events)):
        failure = cause(events, [None] * config.ranks, exit_info)
        raise TaskError(f"{task}: {failure.line()}")
    return events


INVALID_EVENTS = (LookupError, TypeError, ValueError, ArithmeticError, AttributeError)
"""Errors that forged raw events of a node can cause."""
DETAIL_LENGTH = 600
WARMUP_TEST_SHARE = 0.05
"""Steps between two tests, which take CPU time, as a share of the warm-up so far."""


class RunOutcome(NamedTuple):
    """How the workers of a repeat ran: why the driver ended them, if it did; their wall time;
    how they exited; why their logs could not be stored."""

    ended_by: Literal["timeout", "interrupt"] | None
    seconds: float
    exit_info: ExitInfo
    log_error: Failure | None


def run_repeat(
    launcher: Launcher,
    store: Store,
    index: int,
    progress: Progress,
    samples: int | None = None,
) -> tuple[Repeat, Effective | None, bool]:
    """Run repeat `index` of the measurement in `store`, replacing raw files of an earlier try.
    `samples` is the size of the data set.

    Return the repeat, complete or failed, the effective settings, and whether it was
    interrupted.
    """
    began = datetime.now(UTC).isoformat(timespec="milliseconds")
    effective, interrupted = None, False
    try:
        shutil.rmtree(store.raw_folder(index), ignore_errors=True)
        make_folder(store.raw_folder(index))
        outcome = _run_workers(launcher, store, index, progress, samples)
        interrupted = outcome.ended_by == "interrupt"
        repeat, effective = _concluded(outcome, launcher, store, index)
        if not repeat.failure:
            progress.show(index, launcher.protocol.steps, repeat.throughput, last=True)
    except OSError as error:
        repeat = Repeat(index=index, status="failed", failure=unwritten(error))
    except NodeError as error:
        repeat = Repeat(index=index, status="failed", failure=error.failure)
    return repeat.model_copy(update={"began": began}), effective, interrupted


def _run_workers(
    launcher: Launcher, store: Store, index: int, progress: Progress, samples: int | None
) -> RunOutcome:
    config, protocol = launcher.config, launcher.protocol
    raw_folder, job = store.raw_folder(index), f"{store.folder.name}-{index}"
    units = units_per_sample(config) * config.ranks
    began = time.monotonic()
    warmup = WarmupTest(protocol, samples and samples / config.global_batch)
    ended_by: Literal["timeout", "interrupt"] | None = None
    exited = False
    supervisor: psutil.Process | None = None
    with (
        launcher.start(index, raw_folder, job) as workers,
        Telemetry(store.telemetry_file(index), config) as telemetry,
    ):
        # Rank 0 is always on this machine, and ranks step together.
        first = Follower(rank_file(workers.raw_folder, 0), protocol)
        try:
            while not exited:
                exited = workers.wait(SAMPLING_SECONDS)
                first.read_on()
                if first.pid and not supervisor:
                    supervisor = find_supervisor(first.pid)
                telemetry.sample(supervisor)
                # No test in the window, which it would disturb.
                if first.warmup_step and warmup.ends_with(first.step_seconds):
                    workers.end_warmup()
                so_far, at = first.samples_per_second * units, first.warmup_step
                progress.show(index, first.planned_step, so_far, warmup_step=at)
                if not exited and time.monotonic() - began > config.timeout:
                    ended_by = "timeout"
                    break
        except KeyboardInterrupt:
            ended_by = "interrupt"
        workers.end(dump_stacks=ended_by == "timeout")
        seconds = time.monotonic() - began
        exit_info = workers.exit_info()
        # Before removal of the scratch folder, which may free space on the same disk.
        log_error = _store_logs(exit_info.logs, store, index)
    return RunOutcome(ended_by, seconds, exit_info, log_error)


def _store_logs(logs: dict[str, str], store: Store, repeat: int) -> Failure | None:
    """Store the logs. A failure is returned, not raised, so as not to hide the workers' own."""
    try:
        make_folder(store.log_folder)
        for name, text in logs.items():
            write_atomically(store.log_file(repeat, name), text)
    except OSError as error:
        return unwritten(error)
    return None


def _concluded(
    outcome: RunOutcome, launcher: Launcher, store: Store, index: int
) -> tuple[Repeat, Effective | None]:
    """Derive the repeat and the effective settings from the raw events."""
    config, seconds, effective = launcher.config, outcome.seconds, None
    try:
        events = [_events(store.rank_file(index, rank)) for rank in range(config.ranks)]
        for event in chain.from_iterable(events):
            if event["event"] == "effective":
                fields = {name: value for name, value in event.items() if name != "event"}
                effective = Effective.model_validate(fields)
                break
        if why := _why_failed(outcome, launcher, index, events):
            repeat = Repeat(index=index, status="failed", failure=why, wall_seconds=seconds)
        else:
            telemetry, units = _events(store.telemetry_file(index)), units_per_sample(config)
            repeat = summarize(
                index, launcher.protocol, events, seconds, telemetry, units=units
            )
            repeat.check(config, launcher.protocol)
            files = raw_digests(read_raw_files(store.raw_folder(index)))
            repeat = repeat.model_copy(update={"raw_files": files})
        # Store only what can be read again.
        return Repeat.model_validate_json(repeat.model_dump_json()), effective
    except INVALID_EVENTS as error:
        detail = portable(f"invalid raw events: {error!r}"[:DETAIL_LENGTH])
        why = WorkerError(detail=detail)
        return Repeat(index=index, status="failed", failure=why), effective


def _why_failed(
    outcome: RunOutcome, launcher: Launcher, index: int, events: list[Events]
) -> Failure | None:
    """Return why a repeat failed; None if all ranks finished and their logs are stored."""
    config = launcher.config
    if outcome.ended_by == "interrupt":
        return Interrupted(repeat=index)
    if all(map(finished, events)):
        # Even after a timeout: only the cleanup of the processes did not finish.
        return outcome.log_error
    nodes = [launcher.node_name(rank // config.devices) for rank in range(config.ranks)]
    if outcome.ended_by == "timeout":
        return timed_out(index, config.timeout, events, nodes)
    return cause(events, nodes, outcome.exit_info)


def _events(path: Path) -> Events:
    try:
        return read_events(path)
    except (OSError, ResultError):
        return []


class WarmupTest:
    """Tests at intervals whether a warm-up without a fixed length is over. `pass_steps` is the
    number of steps of a pass through the data set, ignored above the warm-up's limit."""

    def __init__(self, protocol: Protocol, pass_steps: float | None) -> None:
        self.measured_steps = protocol.measured_steps
        limit = protocol.warmup_limit
        self.pass_steps = pass_steps if limit and pass_steps and pass_steps <= limit else None
        self.next: float = inf if limit is None else 1

    def ends_with(self, step_seconds: Sequence[float]) -> bool:
        """Whether the warm-up is over after these steps; true once."""
        count = len(step_seconds)
        if count < self.next:
            return False
        self.next = (1 + WARMUP_TEST_SHARE) * count
        # Imported here, since SciPy takes half a second.
        from perfkit.core.steady import is_warmed_up

        if not is_warmed_up(step_seconds, self.measured_steps, self.pass_steps):
            return False
        self.next = inf
        return True


Count = Annotated[int, Field(ge=0, le=10**9)]


class RankEvent(BaseModel):
    """The fields of raw events that show a rank's progress."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)
    event: str
    pid: Count = 0
    step: Count = 0
    steps: Count = 0
    samples: Count = 0
    seconds: Annotated[float, Field(ge=0, le=1e9)] = 0.0


class Follower:
    """Reads a rank's raw file while it is written, each line once."""

    def __init__(self, path: Path, protocol: Protocol) -> None:
        self.path = path
        self.protocol = protocol
        auto = protocol.warmup_limit is not None
        self.warmup_steps: float = inf if auto else protocol.warmup_steps
        self.step_seconds: list[float] = []
        self.offset = self.pid = self.step = self.samples = 0
        self.seconds = 0.0

    def read_on(self) -> None:
        """Read the lines written since the last call."""
        if not self.path.exists():
            return
        with self.path.open("rb") as stream:
            stream.seek(self.offset)
            for line in stream:
                if not line.endswith(b"\n"):
                    return
                self.offset += len(line)
                # The whole file is validated at the end.
                with contextlib.suppress(ValidationError):
                    self._apply(RankEvent.model_validate_json(line))

    def _apply(self, event: RankEvent) -> None:
        if event.event == "start":
            self.pid = event.pid
        elif event.event == "warmup":
            self.warmup_steps = event.steps
        elif event.event == "step":
            self.step = event.step
            self.step_seconds.append(event.seconds)
            if self.step > self.warmup_steps:
                self.samples += event.samples
                self.seconds += event.seconds

    @property
    def warmup_step(self) -> int:
        """The last step of a warm-up without a fixed length; 0 once it is over."""
        return self.step if self.warmup_steps == inf else 0

    @property
    def planned_step(self) -> int:
        """The last step in the protocol's count, which has the shortest possible warm-up."""
        if self.warmup_steps == inf:
            return 0
        return max(0, self.step - int(self.warmup_steps) + self.protocol.warmup_steps)

    @property
    def samples_per_second(self) -> float:
        """This rank's throughput in the window so far; 0 before its first step."""
        return self.samples / self.seconds if self.seconds else 0.0
