"""One repeat: fresh worker processes, watched to their end, and what came of them."""

import errno
import json
import os
import shutil
import time
from itertools import chain
from pathlib import Path
from typing import Any, Self
from typing import Protocol as Interface

from perfkit.config import Config, Protocol, portable
from perfkit.launch import Ending, Workers
from perfkit.progress import Progress
from perfkit.results import (
    Effective,
    Failure,
    FailureCode,
    NodeSeen,
    Rank,
    Repeat,
    ResultError,
    StepSeconds,
    raw_file,
    read_events,
)
from perfkit.statistics import summary

POLL_SECONDS = 0.5
STALLED_SECONDS = 20.0
"""A rank that writes nothing for so long has stalled; gloo waits for it for 30 seconds."""
SAME_SECONDS = 1.0
"""Processes seen to be gone within it may have gone in any order."""
LAST_WORDS = ("FatalError", "Traceback (most recent call last)")
"""What Paddle's or Python's handlers write into the log of a process that aborts."""
Events = list[dict[str, Any]]


class Started(Interface):
    """The workers of one repeat, wherever they are: launch.Workers or nodes.RemoteWorkers."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...
    def wait(self, seconds: float) -> int | None: ...
    def write_stacks(self) -> None: ...
    def end(self) -> None: ...
    def logs(self) -> dict[str, str]: ...
    def ending(self) -> Ending: ...

    @property
    def trouble(self) -> Failure | None: ...


class Crew(Interface):
    """What starts workers: OneNode here, or nodes.Nodes."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...
    def gather(self, waiting: Any) -> list[NodeSeen]: ...
    def name(self, node: int) -> str: ...
    def start(self, repeat: int, raw_folder: Path, job: str) -> Started: ...

    result: str | None


class OneNode:
    """This machine alone."""

    result: str | None = None

    def __init__(self, config: Config, protocol: Protocol) -> None:
        self.config = config
        self.protocol = protocol

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def gather(self, _waiting: Any) -> list[NodeSeen]:
        return []

    def name(self, _node: int) -> str:
        return ""

    def start(self, _repeat: int, raw_folder: Path, job: str) -> Workers:
        return Workers(self.config, self.protocol, raw_folder, job)


def run_repeat(
    crew: Crew, config: Config, protocol: Protocol, folder: Path, index: int, progress: Progress
) -> tuple[Repeat, Effective | None]:
    """Run repeat `index` of the measurement in `folder`; whatever happens becomes a Repeat.

    Raw files of an earlier try at it are replaced.
    """
    try:
        return _run_repeat(crew, config, protocol, folder, index, progress)
    except OSError as error:
        # The driver itself could not make a folder or start a process.
        code: FailureCode = "disk_full" if error.errno == errno.ENOSPC else "worker_error"
        return Repeat(index=index, status="failed", failure=failure(code, str(error))), None


def _run_repeat(
    crew: Crew, config: Config, protocol: Protocol, folder: Path, index: int, progress: Progress
) -> tuple[Repeat, Effective | None]:
    raw_folder = raw_file(folder, index, 0).parent
    shutil.rmtree(raw_folder, ignore_errors=True)
    raw_folder.mkdir(parents=True)
    began = time.monotonic()
    ranks = [
        Follower(raw_file(folder, index, r), protocol.warmup_steps) for r in range(config.ranks)
    ]
    ended: Failure | None = None
    status: int | None = None
    with crew.start(index, raw_folder, f"{folder.name}-{index}") as workers:
        try:
            while status is None:
                status = workers.wait(POLL_SECONDS)
                seconds = time.monotonic() - began
                for rank in ranks:
                    rank.read_on()
                so_far = ranks[0].throughput and ranks[0].throughput * config.ranks
                progress.show(index, ranks[0].step, so_far, seconds)
                if status is None and seconds > config.timeout:
                    ended = failure("time_out", f"repeat {index} took over {config.timeout} s")
                    workers.write_stacks()
                    break
        except KeyboardInterrupt:
            ended = failure("interrupted", f"interrupted during repeat {index}")
        # Before the end, which takes its time.
        quiet = [time.monotonic() - rank.moved_at for rank in ranks]
        workers.end()
        seconds = time.monotonic() - began
        trouble = workers.trouble
        # Before the scratch folder goes, which may lie on the same disk.
        ending = workers.ending()
        logs = workers.logs()
        _store_logs(logs, folder / "logs", index)
    events = [_events(raw_file(folder, index, rank)) for rank in range(config.ranks)]
    whole = all(e and e[-1]["event"] == "end" for e in events)
    names = [_rank_name(crew, config, rank) for rank in range(config.ranks)]
    if whole and (trouble or (ended and ended.code == "time_out")):
        # All was measured; only the processes' own clearing up did not come to its end.
        ended = trouble = None
    elif ended and ended.code == "time_out" and config.ranks > 1:
        ended = failure("time_out", f"{ended.message}; {_furthest_behind(events, names)}")
    if not whole and not ended:
        ended = _cause(events, names, ending, quiet, logs, trouble)
    effective = _effective(events)
    if ended:
        return Repeat(
            index=index, status="failed", failure=ended, wall_seconds=seconds
        ), effective
    repeat = _complete(index, protocol, events, seconds)
    progress.show(index, protocol.steps, repeat.throughput, seconds, last=True)
    return repeat, effective


def _store_logs(logs: dict[str, str], folder: Path, repeat: int) -> None:
    try:
        folder.mkdir(exist_ok=True)
        for name, text in logs.items():
            (folder / f"{repeat}-{name}.log").write_text(text)
    except OSError:
        # A full disk must not hide what the logs would have explained.
        return


def _rank_name(crew: Crew, config: Config, rank: int) -> str:
    node = crew.name(rank // config.devices)
    return f"rank {rank} on {node}" if node else f"rank {rank}"


def _complete(index: int, protocol: Protocol, events: list[Events], seconds: float) -> Repeat:
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
                alone_seconds=by_kind["end"].get("alone_seconds"),
            )
        )
    losses = [event["value"] for event in events[0] if event["event"] == "loss"]
    slowest = max(rank.window_seconds for rank in ranks)
    alone = [rank.alone_seconds or 0.0 for rank in ranks]
    last = events[0][-1]
    return Repeat(
        index=index,
        status="complete",
        throughput=sum(rank.samples for rank in ranks) / slowest,
        steps_per_second=protocol.measured_steps / slowest,
        step_seconds=StepSeconds(**summary(steps)),
        data_wait_share=sum(r.data_wait_seconds for r in ranks)
        / sum(r.window_seconds for r in ranks),
        loss_first=losses[0],
        loss_last=losses[-1],
        skipped_steps=last["skipped_steps"],
        loss_scale=last["loss_scale"],
        straggler=alone.index(max(alone)) if len(ranks) > 1 else None,
        ranks=ranks,
        wall_seconds=seconds,
    )


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


def _cause(
    events: list[Events],
    names: list[str],
    ending: Ending,
    quiet: list[float],
    logs: dict[str, str],
    trouble: Failure | None,
) -> Failure:
    """What ended the workers: what they reported, or else which of them went silent first.

    When one rank fails, its peers report an error of their own, the lost connection, or are
    aborted by it. So a named cause comes before a plain `worker_error`, and a rank that stopped
    without a word before those that complain. `quiet`: seconds since each rank's last event.
    """
    reported = {
        rank: failure(event["code"], f"{names[rank]}: {event['message']}")
        for rank, rank_events in enumerate(events)
        for event in rank_events
        if event["event"] == "failure"
    }
    for report in reported.values():
        if report.code != "worker_error":
            return report
    if trouble:
        return trouble
    if ending.free_bytes < os.sysconf("SC_PAGE_SIZE"):
        return failure("disk_full", "no space left where the results are written")
    if ending.killed_for_memory:
        return failure("out_of_memory", "the kernel killed a worker for want of memory")
    return _silent(events, names, ending, quiet, logs, reported)


def _silent(
    events: list[Events],
    names: list[str],
    ending: Ending,
    quiet: list[float],
    logs: dict[str, str],
    reported: dict[int, Failure],
) -> Failure:
    """The rank that stopped without a word; a plain report if there is none."""
    whole = [rank for rank, e in enumerate(events) if e and e[-1]["event"] == "end"]
    speechless = [rank for rank in range(len(events)) if rank not in [*reported, *whole]]
    first = min(ending.gone.values(), default=0.0)
    gone = [rank for rank, at in ending.gone.items() if at - first < SAME_SECONDS]
    reports = [report.message for report in reported.values()]
    stalled = [
        rank
        for rank in _behind(events)
        if rank in speechless and rank not in gone and quiet[rank] > STALLED_SECONDS
    ]
    if stalled:
        reports += [f"{names[rank]} ended without a word" for rank in gone]
        told = f"{names[stalled[0]]} did not go on after {_where(events[stalled[0]])}"
        return failure("worker_stalled", "; then ".join([told, *reports[:1]]))
    # A peer that was aborted, unlike the one that was killed, has its log to show for it.
    aborted = [r for r in gone if any(w in logs.get(f"rank{r}", "") for w in LAST_WORDS)]
    killed = [rank for rank in gone if rank in speechless and rank not in aborted]
    if not killed and reported:
        return next(iter(reported.values()))
    killed = sorted(killed or aborted, key=lambda rank: _progressed(events[rank]))
    who, where = (names[killed[0]], _where(events[killed[0]])) if killed else ("a worker", "")
    last = " ".join(ending.last_lines.split())[-300:]
    reports = reports or [f"the launcher's status was {ending.status}; last lines: {last}"]
    told = f"{who} ended without a word" + (f" after {where}" if where else "")
    return failure("worker_killed", f"{told}; {reports[0]}")


def _progressed(events: Events) -> tuple[int, int]:
    """How far a rank came: its last step with batches, and its last finished step."""
    begun = [e["step"] for e in events if e["event"] == "batch"]
    done = [e["step"] for e in events if e["event"] == "step"]
    return max(begun, default=0), max(done, default=0)


def _behind(events: list[Events]) -> list[int]:
    """The ranks that came less far than another one."""
    furthest = max(map(_progressed, events))
    return [rank for rank, e in enumerate(events) if _progressed(e) < furthest]


def _where(events: Events) -> str:
    begun, done = _progressed(events)
    if not events:
        return "being started"
    return f"step {done}" + (f", with the batch of step {begun}" if begun > done else "")


def _furthest_behind(events: list[Events], names: list[str]) -> str:
    """Which rank the others wait for, as far as the raw files tell."""
    least = min(map(_progressed, events))
    behind = [names[rank] for rank, e in enumerate(events) if _progressed(e) == least]
    if len(behind) == len(events):
        return f"all ranks came to {_where(events[0])}; the logs show where each one was"
    first = names.index(behind[0])
    return f"furthest behind: {', '.join(behind)}, after {_where(events[first])}"


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
