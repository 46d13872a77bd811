"""One repeat: fresh worker processes, watched to their end, and what came of them."""

import contextlib
import json
import shutil
import time
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from perfkit.config import Config, Protocol
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

    ended: Failure | None
    seconds: float
    idle_seconds: list[float]
    exit_info: ExitInfo
    log_error: Failure | None


def run_repeat(
    launcher: Launcher,
    config: Config,
    protocol: Protocol,
    folder: Path,
    index: int,
    progress: Progress,
) -> tuple[Repeat, Effective | None]:
    """Run repeat `index` of the measurement in `folder`; whatever happens becomes a Repeat.

    Raw files of an earlier try at it are replaced.
    """
    began = datetime.now(UTC).isoformat(timespec="milliseconds")
    try:
        repeat, effective = _run_repeat(launcher, config, protocol, folder, index, progress)
    except OSError as error:
        repeat = Repeat(index=index, status="failed", failure=unwritten(error))
        effective = None
    return repeat.model_copy(update={"began": began}), effective


def _run_repeat(
    launcher: Launcher,
    config: Config,
    protocol: Protocol,
    folder: Path,
    index: int,
    progress: Progress,
) -> tuple[Repeat, Effective | None]:
    store = Store(folder)
    raw_folder = store.raw_folder(index)
    shutil.rmtree(raw_folder, ignore_errors=True)
    raw_folder.mkdir(parents=True)
    outcome = _watched(launcher, config, protocol, folder, index, progress)
    events = [_events(store.rank_file(index, rank)) for rank in range(config.ranks)]
    effective = _effective(events)
    if why := _why_failed(outcome, launcher, config, events):
        failed = Repeat(index=index, status="failed", failure=why, wall_seconds=outcome.seconds)
        return failed, effective
    telemetry = _events(store.telemetry_file(index))
    repeat = summarize(index, protocol, events, outcome.seconds, telemetry)
    progress.show(index, protocol.steps, repeat.throughput, outcome.seconds, last=True)
    return repeat, effective


def _watched(
    launcher: Launcher,
    config: Config,
    protocol: Protocol,
    folder: Path,
    index: int,
    progress: Progress,
) -> RunOutcome:
    began = time.monotonic()
    store = Store(folder)
    raw_files = [store.rank_file(index, rank) for rank in range(config.ranks)]
    ranks = [Follower(path, protocol.warmup_steps) for path in raw_files]
    ended: Failure | None = None
    exited = False
    supervisor: psutil.Process | None = None
    with (
        launcher.start(index, store.raw_folder(index), f"{folder.name}-{index}") as workers,
        Telemetry(store.telemetry_file(index), config) as telemetry,
    ):
        try:
            while not exited:
                exited = workers.wait(POLL_SECONDS)
                seconds = time.monotonic() - began
                for rank in ranks:
                    rank.read_on()
                # Rank 0 is on this machine, also of several nodes.
                if ranks[0].pid and not supervisor:
                    supervisor = find_supervisor(ranks[0].pid)
                telemetry.sample(supervisor)
                so_far = ranks[0].throughput and ranks[0].throughput * config.ranks
                progress.show(index, ranks[0].step, so_far, seconds)
                if not exited and seconds > config.timeout:
                    ended = failure("timeout", f"repeat {index} took over {config.timeout} s")
                    workers.dump_stacks()
                    break
        except KeyboardInterrupt:
            ended = failure("interrupted", f"interrupted during repeat {index}")
        # Before the end, which takes its time.
        idle_seconds = [time.monotonic() - rank.moved_at for rank in ranks]
        workers.end()
        seconds = time.monotonic() - began
        exit_info = workers.exit_info()
        # Before the scratch folder goes, which may lie on the same disk.
        log_error = _store_logs(exit_info.logs, store, index)
    return RunOutcome(ended, seconds, idle_seconds, exit_info, log_error)


def _why_failed(
    outcome: RunOutcome, launcher: Launcher, config: Config, events: list[Events]
) -> Failure | None:
    """None if all ranks came to their end and their logs are stored."""
    names = [_rank_name(launcher, config, rank) for rank in range(config.ranks)]
    late = outcome.ended is not None and outcome.ended.code == "timeout"
    if all(map(finished, events)):
        # After a time-out, only the processes' own clearing up did not come to its end.
        return outcome.log_error if late else outcome.ended or outcome.log_error
    if not outcome.ended:
        return cause(events, names, outcome.exit_info, outcome.idle_seconds)
    if late and config.ranks > 1:
        behind = furthest_behind(events, names)
        return failure("timeout", f"{outcome.ended.params['detail']}; {behind}")
    return outcome.ended


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


def _rank_name(launcher: Launcher, config: Config, rank: int) -> str:
    node = launcher.node_name(rank // config.devices)
    return f"rank {rank} on {node}" if node else f"rank {rank}"


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
