"""One repeat: fresh worker processes, watched to their end, and what came of them."""

import contextlib
import json
import shutil
import time
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple

import psutil

from perfkit.driver.failures import cause, failure, finished, furthest_behind, unwritten
from perfkit.driver.progress import Progress
from perfkit.driver.workers import ExitInfo, Launcher, find_supervisor
from perfkit.results.schema import Effective, Failure, Repeat
from perfkit.results.store import (
    Events,
    ResultError,
    Store,
    read_events,
    write_atomically,
)
from perfkit.results.summarize import summarize
from perfkit.system.telemetry import Telemetry

POLL_SECONDS = 0.5


class RunOutcome(NamedTuple):
    """What was seen of the workers of a repeat from their start to their end: why the driver
    ended them, if it did; how long they took; by rank, the seconds since its last event; what
    kept their logs from being stored."""

    ended_by: Literal["timeout", "interrupt"] | None
    seconds: float
    idle_seconds: list[float]
    exit_info: ExitInfo
    log_error: Failure | None


def run_repeat(
    launcher: Launcher, store: Store, index: int, progress: Progress
) -> tuple[Repeat, Effective | None, bool]:
    """Run repeat `index` of the measurement in `store`: the repeat, whatever happens, what the
    training really did, and whether it was interrupted.

    Raw files of an earlier try at it are replaced.
    """
    began = datetime.now(UTC).isoformat(timespec="milliseconds")
    effective, interrupted = None, False
    try:
        shutil.rmtree(store.raw_folder(index), ignore_errors=True)
        store.raw_folder(index).mkdir(parents=True)
        outcome = _run_workers(launcher, store, index, progress)
        interrupted = outcome.ended_by == "interrupt"
        ranks = range(launcher.config.ranks)
        events = [_events(store.rank_file(index, rank)) for rank in ranks]
        effective = _effective(events)
        if why := _why_failed(outcome, launcher, index, events):
            seconds = outcome.seconds
            repeat = Repeat(index=index, status="failed", failure=why, wall_seconds=seconds)
        else:
            telemetry = _events(store.telemetry_file(index))
            repeat = summarize(index, launcher.protocol, events, outcome.seconds, telemetry)
            progress.show(index, launcher.protocol.steps, repeat.throughput, last=True)
    except OSError as error:
        repeat = Repeat(index=index, status="failed", failure=unwritten(error))
    return repeat.model_copy(update={"began": began}), effective, interrupted


def _run_workers(
    launcher: Launcher, store: Store, index: int, progress: Progress
) -> RunOutcome:
    config = launcher.config
    began = time.monotonic()
    ranks = [
        Follower(store.rank_file(index, rank), launcher.protocol.warmup_steps)
        for rank in range(config.ranks)
    ]
    ended_by: Literal["timeout", "interrupt"] | None = None
    exited = False
    supervisor: psutil.Process | None = None
    with (
        launcher.start(
            index, store.raw_folder(index), f"{store.folder.name}-{index}"
        ) as workers,
        Telemetry(store.telemetry_file(index), config) as telemetry,
    ):
        try:
            while not exited:
                exited = workers.wait(POLL_SECONDS)
                for rank in ranks:
                    rank.read_on()
                # Rank 0 is on this machine, also of several nodes.
                if ranks[0].pid and not supervisor:
                    supervisor = find_supervisor(ranks[0].pid)
                telemetry.sample(supervisor)
                so_far = ranks[0].throughput and ranks[0].throughput * config.ranks
                progress.show(index, ranks[0].step, so_far)
                if not exited and time.monotonic() - began > config.timeout:
                    ended_by = "timeout"
                    break
        except KeyboardInterrupt:
            ended_by = "interrupt"
        # Before the end, which takes its time.
        idle_seconds = [time.monotonic() - rank.moved_at for rank in ranks]
        workers.end(dump_stacks=ended_by == "timeout")
        seconds = time.monotonic() - began
        exit_info = workers.exit_info()
        # Before the scratch folder goes, which may lie on the same disk.
        log_error = _store_logs(exit_info.logs, store, index)
    return RunOutcome(ended_by, seconds, idle_seconds, exit_info, log_error)


def _why_failed(
    outcome: RunOutcome, launcher: Launcher, index: int, events: list[Events]
) -> Failure | None:
    """None if all ranks came to their end and their logs are stored."""
    config = launcher.config
    if outcome.ended_by == "interrupt":
        return failure("interrupted", repeat=index)
    if all(map(finished, events)):
        # After a time-out, only the processes' own clearing up did not come to its end.
        return outcome.log_error
    nodes = [launcher.node_name(rank // config.devices) for rank in range(config.ranks)]
    if outcome.ended_by == "timeout":
        behind = furthest_behind(events, nodes) if config.ranks > 1 else {}
        return failure("timeout", repeat=index, seconds=config.timeout, **behind)
    return cause(events, nodes, outcome.exit_info, outcome.idle_seconds)


def _store_logs(logs: dict[str, str], store: Store, repeat: int) -> Failure | None:
    """What kept the logs from being stored: not raised, for it must not hide what they would
    have explained."""
    try:
        store.log_folder.mkdir(exist_ok=True)
        for name, text in logs.items():
            write_atomically(store.log_file(repeat, name), text)
    except OSError as error:
        return unwritten(error)
    return None


def _effective(events: list[Events]) -> Effective | None:
    for event in chain.from_iterable(events):
        if event["event"] == "effective":
            return Effective.model_validate({k: v for k, v in event.items() if k != "event"})
    return None


def _events(path: Path) -> Events:
    try:
        return read_events(path)
    except (OSError, ResultError):
        return []


class Follower:
    """Follows the steps of one rank as they are written, reading each line once."""

    def __init__(self, path: Path, warmup_steps: int) -> None:
        self.path = path
        self.warmup_steps = warmup_steps
        self.offset = 0
        self.pid: int | None = None
        self.step = 0
        self.samples = 0
        self.seconds = 0.0
        self.moved_at = time.monotonic()

    def read_on(self) -> None:
        """Take in the lines that have come since the last call."""
        if not self.path.exists():
            return
        with self.path.open("rb") as stream:
            stream.seek(self.offset)
            for line in stream:
                if not line.endswith(b"\n"):
                    return
                self.offset += len(line)
                self.moved_at = time.monotonic()
                # Of another node it may be anything; the whole file is judged at the end.
                with contextlib.suppress(ValueError, KeyError, TypeError):
                    self._take(json.loads(line))

    def _take(self, event: dict[str, Any]) -> None:
        if event["event"] == "start":
            self.pid = int(event["pid"])
        elif event["event"] == "step":
            self.step = event["step"]
            if self.step > self.warmup_steps:
                self.samples += event["samples"]
                self.seconds += event["seconds"]

    @property
    def throughput(self) -> float | None:
        """Samples of this rank per second of its window so far."""
        return self.samples / self.seconds if self.seconds else None
