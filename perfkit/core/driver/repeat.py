"""One repeat: starts worker processes, monitors them until they exit, summarizes the result."""

import shutil
import time
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Literal, NamedTuple

import psutil

from perfkit.core.config import Config, Protocol
from perfkit.core.driver.exit_info import ExitInfo
from perfkit.core.driver.failures import (
    NodeError,
    cause,
    finished,
    timed_out,
    unwritten,
)
from perfkit.core.driver.progress import RepeatsProgress
from perfkit.core.driver.supervised import find_supervisor
from perfkit.core.driver.warmup import Follower, WarmupTest
from perfkit.core.driver.workers import Launcher, LocalWorkers, WorkerGroup
from perfkit.core.paths import portable
from perfkit.core.results.failures import Failure, Interrupted, WorkerError
from perfkit.core.results.repeat import Repeat
from perfkit.core.results.schema import Effective, Nccl
from perfkit.core.results.store import (
    Events,
    ResultError,
    Store,
    make_folder,
    raw_digests,
    read_events,
    read_raw_files,
    write_atomically,
)
from perfkit.core.results.summarize import summarize
from perfkit.core.results.telemetry import SAMPLING_SECONDS
from perfkit.core.script_config import AnyConfig
from perfkit.core.system.telemetry import Telemetry
from perfkit.core.timing.raw_file import rank_file
from perfkit.core.work import work_of


class TaskError(RuntimeError):
    """A task of workers other than a measurement failed; the message says why."""


def perform(config: AnyConfig, protocol: Protocol, task: str, raw: Path) -> list[Events]:
    """Run the workers for `task`, with raw files in the folder `raw`, and return the events by
    rank. Raises TaskError if a worker does not complete the task."""
    raw.mkdir(parents=True)
    with LocalWorkers(config, protocol, raw, f"perfkit-{task}", task=task) as workers:
        in_time = workers.wait(config.timeout)
        workers.end()
        exit_info = workers.exit_info()
    events = _events_of_ranks(raw, config)
    if not in_time:
        raise TaskError(f"{task}: took over {config.timeout} s; -p timeout allows more")
    if not all(finished(rank_events) for rank_events in events):
        failure = cause(events, [None] * config.ranks, exit_info)
        raise TaskError(f"{task}: {failure.line()}")
    return events


INVALID_EVENTS = (LookupError, TypeError, ValueError, ArithmeticError, AttributeError)
"""Errors that forged raw events of a node can cause."""
DETAIL_LENGTH = 600
EndedBy = Literal["timeout", "interrupt"]
"""Why the driver ended the workers."""


class RunOutcome(NamedTuple):
    """How the workers of a repeat ran: why the driver ended them, if it did; their wall time;
    how they exited; why their logs could not be stored."""

    ended_by: EndedBy | None
    seconds: float
    exit_info: ExitInfo
    log_error: Failure | None


class RepeatRun(NamedTuple):
    """What became of a repeat: complete or failed, the effective settings if a worker reported
    them, and whether the user interrupted it."""

    repeat: Repeat
    effective: Effective | None
    was_interrupted: bool


def run_repeat(
    launcher: Launcher,
    store: Store,
    index: int,
    progress: RepeatsProgress,
    samples: int | None = None,
) -> RepeatRun:
    """Run repeat `index` of the measurement in `store`, replacing raw files of an earlier try.
    `samples` is the size of the data set."""
    began = datetime.now(UTC).isoformat(timespec="milliseconds")
    effective = None
    was_interrupted = False
    try:
        shutil.rmtree(store.raw_folder(index), ignore_errors=True)
        make_folder(store.raw_folder(index))
        outcome = _run_workers(launcher, store, index, progress, samples)
        was_interrupted = outcome.ended_by == "interrupt"
        repeat, effective = _concluded(outcome, launcher, store, index)
        if not repeat.failure:
            progress.show(index, launcher.protocol.steps, repeat.throughput, last=True)
    except OSError as error:
        repeat = Repeat(index=index, status="failed", failure=unwritten(error))
    except NodeError as error:
        repeat = Repeat(index=index, status="failed", failure=error.failure)
    repeat = repeat.model_copy(update={"began": began})
    return RepeatRun(repeat, effective, was_interrupted)


def _run_workers(
    launcher: Launcher,
    store: Store,
    index: int,
    progress: RepeatsProgress,
    samples: int | None,
) -> RunOutcome:
    config = launcher.config
    job = f"{store.folder.name}-{index}"
    began = time.monotonic()
    ended_by: EndedBy | None = None
    with (
        launcher.start(index, store.raw_folder(index), job) as workers,
        Telemetry(store.telemetry_file(index), config) as telemetry,
    ):
        watch = Watch(launcher, workers, telemetry, progress, index, samples)
        try:
            if not watch.until_exit(began + config.timeout):
                ended_by = "timeout"
        except KeyboardInterrupt:
            ended_by = "interrupt"
        workers.end(dump_stacks=ended_by == "timeout")
        seconds = time.monotonic() - began
        exit_info = workers.exit_info()
        # Before removal of the scratch folder, which may free space on the same disk.
        log_error = _store_logs(exit_info.logs, store, index)
    return RunOutcome(ended_by, seconds, exit_info, log_error)


class Watch:
    """Watches the workers of a repeat: samples the telemetry, ends the warm-up and shows the
    progress. Rank 0 is always on this machine, and ranks step together."""

    def __init__(
        self,
        launcher: Launcher,
        workers: WorkerGroup,
        telemetry: Telemetry,
        progress: RepeatsProgress,
        index: int,
        samples: int | None,
    ) -> None:
        config = launcher.config
        self.workers = workers
        self.telemetry = telemetry
        self.progress = progress
        self.index = index
        self.units_per_sample = work_of(config).units_per_sample * config.ranks
        self.first_rank = Follower(rank_file(workers.raw_folder, 0), launcher.protocol)
        pass_steps = None
        if samples and isinstance(config, Config):
            pass_steps = samples / config.global_batch
        self.warmup = WarmupTest(launcher.protocol, pass_steps)
        self.supervisor: psutil.Process | None = None

    def until_exit(self, deadline: float) -> bool:
        """Watch until the workers exit. Return whether they did so before the deadline."""
        while True:
            has_exited = self.workers.wait(SAMPLING_SECONDS)
            self._look()
            if has_exited:
                return True
            if time.monotonic() > deadline:
                return False

    def _look(self) -> None:
        first = self.first_rank
        first.read_on()
        if first.pid and not self.supervisor:
            self.supervisor = find_supervisor(first.pid)
        self.telemetry.sample(self.supervisor)
        # No test in the window, which it would disturb.
        if first.warmup_step and self.warmup.ends_with(first.step_seconds):
            self.workers.end_warmup()
        throughput = first.samples_per_second * self.units_per_sample
        self.progress.show(
            self.index, first.planned_step, throughput, warmup_step=first.warmup_step
        )


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
    effective = None
    try:
        events = _events_of_ranks(store.raw_folder(index), launcher.config)
        effective = _effective(events, outcome.exit_info.nccl)
        failure = _why_failed(outcome, launcher, index, events)
        if failure:
            repeat = Repeat(index=index, status="failed", failure=failure)
            repeat = repeat.model_copy(update={"wall_seconds": outcome.seconds})
        else:
            repeat = _summarized(outcome, launcher, store, index, events)
        # Store only what can be read again.
        return Repeat.model_validate_json(repeat.model_dump_json()), effective
    except INVALID_EVENTS as error:
        detail = f"invalid raw events: {error!r}"[:DETAIL_LENGTH]
        failure = WorkerError(detail=portable(detail))
        return Repeat(index=index, status="failed", failure=failure), effective


def _effective(events: list[Events], nccl: Nccl | None) -> Effective | None:
    """Return the effective settings that the first rank to do so has reported, with NCCL's."""
    for event in chain.from_iterable(events):
        if event["event"] == "effective":
            settings = {name: value for name, value in event.items() if name != "event"}
            effective = Effective.model_validate(settings)
            return effective.model_copy(update={"nccl": nccl})
    return None


def _summarized(
    outcome: RunOutcome, launcher: Launcher, store: Store, index: int, events: list[Events]
) -> Repeat:
    """Return the complete repeat with its numbers and the digests of its raw files. Raises
    ValueError if the numbers contradict each other."""
    config, protocol = launcher.config, launcher.protocol
    work = work_of(config)
    repeat = summarize(
        index,
        protocol,
        events,
        outcome.seconds,
        _events(store.telemetry_file(index)),
        units=work.units_per_sample,
    )
    repeat.check(work, config.ranks, protocol)
    changes = {
        "raw_files": raw_digests(read_raw_files(store.raw_folder(index))),
        "killed_after_end": outcome.exit_info.killed_after_end,
        "log_bytes_left_out": outcome.exit_info.log_bytes_left_out,
    }
    return repeat.model_copy(update=changes)


def _why_failed(
    outcome: RunOutcome, launcher: Launcher, index: int, events: list[Events]
) -> Failure | None:
    """Return why a repeat failed; None if all ranks finished and their logs are stored."""
    config = launcher.config
    if outcome.ended_by == "interrupt":
        return Interrupted(repeat=index)
    if all(finished(rank_events) for rank_events in events):
        # Even after a timeout: only the cleanup of the processes did not finish.
        return outcome.log_error
    nodes = [launcher.node_name(rank // config.devices) for rank in range(config.ranks)]
    if outcome.ended_by == "timeout":
        return timed_out(index, config.timeout, events, nodes)
    return cause(events, nodes, outcome.exit_info)


def _events_of_ranks(raw_folder: Path, config: AnyConfig) -> list[Events]:
    """Return the raw events by rank; none of a rank whose file can't be read."""
    return [_events(rank_file(raw_folder, rank)) for rank in range(config.ranks)]


def _events(path: Path) -> Events:
    try:
        return read_events(path)
    except (OSError, ResultError):
        return []
