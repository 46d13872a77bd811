"""One repeat: starts worker processes, monitors them until they exit, summarizes the result."""

import shutil
import time
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Literal, NamedTuple

from perfkit.core.config import Protocol
from perfkit.core.driver.exit_info import ExitInfo
from perfkit.core.driver.failures import (
    NodeError,
    cause,
    finished,
    timed_out,
    unwritten,
)
from perfkit.core.driver.progress import RepeatsProgress
from perfkit.core.driver.script_failures import ScriptRun, script_failure
from perfkit.core.driver.watch import Watch
from perfkit.core.driver.workers import Launcher, LocalWorkers
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
from perfkit.core.results.summarize import summarize, told_by
from perfkit.core.results.told import Told
from perfkit.core.script_config import AnyConfig, ScriptConfig
from perfkit.core.system.telemetry import Telemetry
from perfkit.core.timing.raw_file import rank_file
from perfkit.core.work import Work, work_of


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
    """What became of a repeat: complete or failed, the effective settings if a model's worker
    reported them, what a script told the timer, and whether the user interrupted it."""

    repeat: Repeat
    effective: Effective | None
    told: Told | None
    was_interrupted: bool


def run_repeat(
    launcher: Launcher,
    store: Store,
    index: int,
    progress: RepeatsProgress,
    samples: int | None = None,
    told: Told | None = None,
) -> RepeatRun:
    """Run repeat `index` of the measurement in `store`, replacing raw files of an earlier try.
    `samples` is the size of the data set; `told` is what a script told in the first repeat,
    None before that."""
    began = datetime.now(UTC).isoformat(timespec="milliseconds")
    effective = None
    was_interrupted = False
    told_now = None
    try:
        shutil.rmtree(store.raw_folder(index), ignore_errors=True)
        make_folder(store.raw_folder(index))
        outcome = _run_workers(launcher, store, index, progress, samples)
        was_interrupted = outcome.ended_by == "interrupt"
        repeat, effective, told_now = _concluded(outcome, launcher, store, index, told)
        if not repeat.failure:
            progress.show(index, launcher.protocol.steps, repeat.throughput, last=True)
    except OSError as error:
        repeat = Repeat(index=index, status="failed", failure=unwritten(error))
    except NodeError as error:
        repeat = Repeat(index=index, status="failed", failure=error.failure)
    repeat = repeat.model_copy(update={"began": began})
    return RepeatRun(repeat, effective, told_now, was_interrupted)


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


def _store_logs(logs: dict[str, str], store: Store, repeat: int) -> Failure | None:
    """Store the logs. A failure is returned, not raised, so as not to hide the workers' own."""
    try:
        make_folder(store.log_folder)
        for name, text in logs.items():
            write_atomically(store.log_file(repeat, name), text)
    except OSError as error:
        return unwritten(error)
    return None


class Concluded(NamedTuple):
    """What follows from the raw events of a repeat."""

    repeat: Repeat
    effective: Effective | None
    told: Told | None


def _concluded(
    outcome: RunOutcome, launcher: Launcher, store: Store, index: int, first_told: Told | None
) -> Concluded:
    """Derive the repeat, and what its ranks reported, from the raw events."""
    effective = told = None
    try:
        events = _events_of_ranks(store.raw_folder(index), launcher.config)
        effective = _effective(events, outcome.exit_info.nccl)
        told = told_by(events[0])
        failure = _why_failed(outcome, launcher, index, events, first_told)
        if failure:
            repeat = Repeat(index=index, status="failed", failure=failure)
            repeat = repeat.model_copy(update={"wall_seconds": outcome.seconds})
        else:
            work = work_of(launcher.config, told)
            repeat = _summarized(outcome, launcher, store, index, events, work)
        # Store only what can be read again.
        repeat = Repeat.model_validate_json(repeat.model_dump_json())
        return Concluded(repeat, effective, told)
    except INVALID_EVENTS as error:
        detail = f"invalid raw events: {error!r}"[:DETAIL_LENGTH]
        failure = WorkerError(detail=portable(detail))
        repeat = Repeat(index=index, status="failed", failure=failure)
        return Concluded(repeat, effective, told)


def _effective(events: list[Events], nccl: Nccl | None) -> Effective | None:
    """Return the effective settings that the first rank to do so has reported, with NCCL's."""
    for event in chain.from_iterable(events):
        if event["event"] == "effective":
            settings = {name: value for name, value in event.items() if name != "event"}
            effective = Effective.model_validate(settings)
            return effective.model_copy(update={"nccl": nccl})
    return None


def _summarized(
    outcome: RunOutcome,
    launcher: Launcher,
    store: Store,
    index: int,
    events: list[Events],
    work: Work,
) -> Repeat:
    """Return the complete repeat with its numbers and the digests of its raw files. Raises
    ValueError if the numbers contradict each other."""
    config, protocol = launcher.config, launcher.protocol
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
    outcome: RunOutcome,
    launcher: Launcher,
    index: int,
    events: list[Events],
    first_told: Told | None,
) -> Failure | None:
    """Return why a repeat failed; None if all ranks finished and their logs are stored, and a
    script did the same in all of them."""
    config = launcher.config
    if outcome.ended_by == "interrupt":
        return Interrupted(repeat=index)
    nodes = [launcher.node_name(rank // config.devices) for rank in range(config.ranks)]
    failure = None
    if isinstance(config, ScriptConfig):
        run = ScriptRun(events, nodes)
        was_too_slow = outcome.ended_by == "timeout"
        failure = script_failure(config, run, index, first_told, was_too_slow=was_too_slow)
    if failure:
        return failure
    if all(finished(rank_events) for rank_events in events):
        # Even after a timeout: only the cleanup of the processes did not finish.
        return outcome.log_error
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
