"""One repeat: fresh worker processes, watched to their end, and what came of them."""

import errno
import json
import os
import shutil
import time
from itertools import chain
from pathlib import Path
from typing import Any

from perfkit.config import Config, Protocol, portable
from perfkit.launch import Workers
from perfkit.progress import Progress
from perfkit.results import (
    Effective,
    Failure,
    FailureCode,
    Rank,
    Repeat,
    ResultError,
    StepSeconds,
    raw_file,
    read_events,
)
from perfkit.statistics import summary

POLL_SECONDS = 0.5


def run_repeat(
    config: Config, protocol: Protocol, folder: Path, index: int, progress: Progress
) -> tuple[Repeat, Effective | None]:
    """Run repeat `index` of the measurement in `folder`; whatever happens becomes a Repeat.

    Raw files of an earlier try at it are replaced.
    """
    try:
        return _run_repeat(config, protocol, folder, index, progress)
    except OSError as error:
        # The driver itself could not make a folder or start a process.
        code: FailureCode = "disk_full" if error.errno == errno.ENOSPC else "worker_error"
        return Repeat(index=index, status="failed", failure=failure(code, str(error))), None


def _run_repeat(
    config: Config, protocol: Protocol, folder: Path, index: int, progress: Progress
) -> tuple[Repeat, Effective | None]:
    raw_folder = raw_file(folder, index, 0).parent
    shutil.rmtree(raw_folder, ignore_errors=True)
    raw_folder.mkdir(parents=True)
    began, killed_before = time.monotonic(), _killed_for_memory()
    rank0 = Follower(raw_file(folder, index, 0), protocol.warmup_steps)
    ended: Failure | None = None
    status: int | None = None
    with Workers(config, folder, index) as workers:
        try:
            while status is None:
                status = workers.wait(POLL_SECONDS)
                seconds = time.monotonic() - began
                rank0.read_on()
                so_far = rank0.throughput and rank0.throughput * config.ranks
                progress.show(index, rank0.step, so_far, seconds)
                if status is None and seconds > config.timeout:
                    ended = failure("time_out", f"repeat {index} took over {config.timeout} s")
                    break
        except KeyboardInterrupt:
            ended = failure("interrupted", f"interrupted during repeat {index}")
        workers.end()
        seconds = time.monotonic() - began
        # Before the scratch folder goes, which may lie on the same disk.
        free_bytes = shutil.disk_usage(folder).free
        try:
            last_lines = workers.collect_logs(folder / "logs", index)
        except OSError as error:
            last_lines = str(error)
    events = [_events(raw_file(folder, index, rank)) for rank in range(config.ranks)]
    whole = all(e and e[-1]["event"] == "end" for e in events)
    if whole and ended and ended.code == "time_out":
        # All was measured; only the processes' own clearing up did not come to its end.
        ended = None
    if not whole and not ended:
        ended = _reported(events) or _unexplained(free_bytes, killed_before, status, last_lines)
    effective = _effective(events)
    if ended:
        return Repeat(
            index=index, status="failed", failure=ended, wall_seconds=seconds
        ), effective
    repeat = _complete(index, protocol, events, seconds)
    progress.show(index, protocol.steps, repeat.throughput, seconds, last=True)
    return repeat, effective


def _complete(
    index: int, protocol: Protocol, events: list[list[dict[str, Any]]], seconds: float
) -> Repeat:
    """The numbers of a repeat whose ranks all came to their end."""
    ranks, steps = [], []
    for rank, rank_events in enumerate(events):
        by_kind: dict[str, Any] = {event["event"]: event for event in rank_events}
        in_window = [
            event
            for event in rank_events
            if event["event"] == "step" and event["step"] > protocol.warmup_steps
        ]
        steps += [event["seconds"] for event in in_window]
        ranks.append(
            Rank(
                rank=rank,
                samples=by_kind["window"]["samples"],
                window_seconds=by_kind["window"]["seconds"],
                data_wait_seconds=sum(event["data_wait_seconds"] for event in in_window),
                memory_bytes=by_kind["end"]["memory_bytes"],
            )
        )
    losses = [event["value"] for event in events[0] if event["event"] == "loss"]
    slowest = max(rank.window_seconds for rank in ranks)
    return Repeat(
        index=index,
        status="complete",
        throughput=sum(rank.samples for rank in ranks) / slowest,
        step_seconds=StepSeconds(**summary(steps)),
        data_wait_share=sum(r.data_wait_seconds for r in ranks)
        / sum(r.window_seconds for r in ranks),
        loss_first=losses[0],
        loss_last=losses[-1],
        ranks=ranks,
        wall_seconds=seconds,
    )


def _effective(events: list[list[dict[str, Any]]]) -> Effective | None:
    for event in chain.from_iterable(events):
        if event["event"] == "effective":
            return Effective.model_validate({k: v for k, v in event.items() if k != "event"})
    return None


def _events(path: Path) -> list[dict[str, Any]]:
    try:
        return read_events(path)
    except (OSError, ResultError):
        return []


def _reported(events: list[list[dict[str, Any]]]) -> Failure | None:
    """The failure that a worker itself reported.

    When one rank fails, its peers may report an error of their own, the lost connection: a
    named cause comes before a plain `worker_error`.
    """
    reported = [
        failure(event["code"], f"rank {rank}: {event['message']}")
        for rank, rank_events in enumerate(events)
        for event in rank_events
        if event["event"] == "failure"
    ]
    return min(reported, key=lambda f: f.code == "worker_error", default=None)


def _unexplained(
    free_bytes: int, killed_before: int, status: int | None, last_lines: str
) -> Failure:
    """What ended workers that could not say so themselves."""
    if free_bytes < os.sysconf("SC_PAGE_SIZE"):
        return failure("disk_full", "no space left where the results are written")
    if _killed_for_memory() > killed_before:
        return failure("out_of_memory", "the kernel killed a worker for want of memory")
    last = " ".join(last_lines.split())[-300:]
    return failure(
        "worker_killed",
        f"a worker ended without a word (the launcher's status: {status}); last lines: {last}",
    )


def _killed_for_memory() -> int:
    """How many processes the kernel has killed for want of memory since it started."""
    for line in Path("/proc/vmstat").read_text().splitlines():
        if line.startswith("oom_kill "):
            return int(line.split()[1])
    return 0


def failure(code: FailureCode, message: str) -> Failure:
    """A Failure whose message gives away no path of this machine."""
    return Failure(code=code, message=portable(message))


class Follower:
    """Follows the steps of one rank as they are written, reading each line once."""

    def __init__(self, path: Path, warmup_steps: int) -> None:
        self.path = path
        self.warmup_steps = warmup_steps
        self.offset = 0
        self.step = 0
        self.samples = 0
        self.seconds = 0.0

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
                event = json.loads(line)
                if event["event"] == "step":
                    self.step = event["step"]
                    if self.step > self.warmup_steps:
                        self.samples += event["samples"]
                        self.seconds += event["seconds"]

    @property
    def throughput(self) -> float | None:
        """Samples of this rank per second of its window so far."""
        return self.samples / self.seconds if self.seconds else None
