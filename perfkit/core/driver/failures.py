"""Why the workers of a repeat exited early: pure functions of their events and exit info.

When one rank fails, its peers report the lost connection or abort, and a launcher returns the
status of the process that it checks first. So the failing rank is identified by the reported
errors, by the traces in the logs, and by the progress of each rank. Clocks of different nodes
are not compared.
"""

import errno
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from perfkit.core.driver.exit_info import ExitInfo
from perfkit.core.results.failures import (
    Failure,
    IoFailure,
    OutOfMemory,
    RankFailure,
    Timeout,
    WorkerDied,
    WorkerError,
    WorkerStalled,
)
from perfkit.core.results.store import Events
from perfkit.timing.failure import portable
from perfkit.timing.raw_file import UNWRITABLE

STALLED_SECONDS = 20.0
"""A rank that writes nothing for this time has stalled; gloo waits for it for 30 seconds."""
LOG_CHARACTERS = 300
LAST_LINES = 3
ABORTED = ("FatalError", "Traceback (most recent call last)")
"""Text that Paddle's and Python's handlers write to the log of an aborting process."""
OS_ERROR = re.compile(r"OSError: \[Errno (\d+)\]")
"""Beginning of the line of a log that shows an error of the operating system."""


class NodeError(Exception):
    """The nodes can't run the measurement; `failure` says why."""

    def __init__(self, failure: Failure) -> None:
        self.failure = failure
        super().__init__(failure.text())


def unwritten(error: OSError) -> RankFailure:
    """Return the failure of a driver that could not write a file or start a process."""
    detail = portable(str(error))
    if error.errno == errno.ENOMEM:
        return OutOfMemory(detail=detail)
    return IoFailure(detail=detail)


def finished(events: Events) -> bool:
    """Return whether a rank has completed its task."""
    return bool(events) and events[-1]["event"] == "end"


@dataclass(frozen=True, order=True)
class RankProgress:
    """How far a rank came; the one with the earlier last batch is behind."""

    begun: int
    """the last step whose batch has arrived"""
    done: int
    """the last completed step"""
    has_started: bool = field(compare=False)
    """whether the rank has written any event"""

    @classmethod
    def of(cls, events: Events) -> "RankProgress":
        begun = [event["step"] for event in events if event["event"] == "batch"]
        done = [event["step"] for event in events if event["event"] == "step"]
        return cls(max(begun, default=0), max(done, default=0), bool(events))

    @property
    def fields(self) -> dict[str, Any]:
        """Return the fields of a failure that say how far the rank came."""
        if not self.has_started:
            return {}
        next_step = self.begun if self.begun > self.done else None
        return {"step": self.done, "next_step": next_step}


@dataclass(frozen=True)
class EndedRun:
    """The ranks of a repeat that has ended, by their numbers: their events, the names of their
    nodes (None with a single node), and the errors that they reported."""

    events: list[Events]
    nodes: list[str | None]
    exit_info: ExitInfo
    reports: dict[int, RankFailure]

    def progress(self, rank: int) -> RankProgress:
        return RankProgress.of(self.events[rank])

    def silent(self) -> list[int]:
        """Return the ranks that neither finished nor reported an error."""
        ranks = []
        for rank, events in enumerate(self.events):
            if rank not in self.reports and not finished(events):
                ranks.append(rank)
        return ranks

    def has_aborted(self, rank: int) -> bool:
        """Return whether the rank's log has the trace of an abort. A process that a signal
        killed leaves none."""
        log = self.exit_info.logs.get(f"rank{rank}", "")
        return any(sign in log for sign in ABORTED)

    def killed(self) -> list[int]:
        """Return the ranks that a signal ended."""
        silent = self.silent()
        exited = [rank for rank in self.exit_info.exited_first if rank in silent]
        return [rank for rank in exited if not self.has_aborted(rank)]

    def aborted(self) -> list[int]:
        return [rank for rank in self.exit_info.exited_first if self.has_aborted(rank)]

    def furthest_behind(self, ranks: Iterable[int]) -> list[int]:
        """Return those of `ranks` that have made the least progress."""
        progress = {rank: self.progress(rank) for rank in ranks}
        least = min(progress.values())
        return [rank for rank, reached in progress.items() if reached == least]


def cause(events: list[Events], nodes: list[str | None], exit_info: ExitInfo) -> Failure:
    """Return why the workers ended. In this order: a specific failure reported by a rank, an
    error outside the workers, an I/O error or a lack of memory, the rank that went silent, the
    rank that reported an error.

    `events` and `nodes` (names; None with a single node) are by rank. Raises ValueError for an
    event that is not a failure of a rank.
    """
    reports = _reports(events, nodes)
    for report in reports.values():
        if not isinstance(report, WorkerError):
            return report
    run = EndedRun(events, nodes, exit_info, reports)
    failure = _outside_the_ranks(exit_info) or _stalled(run)
    if failure:
        return failure
    killed = run.killed()
    if reports and not killed:
        return _reported_first(run)
    return _died(run, killed or run.aborted())


def _reports(events: list[Events], nodes: list[str | None]) -> dict[int, RankFailure]:
    """Return the failure that each rank reported, if it did."""
    reports = {}
    for rank, rank_events in enumerate(events):
        for event in rank_events:
            if event["event"] == "failure":
                fields = {**event["params"], "rank": rank, "node": nodes[rank]}
                stored = {"code": event["code"], "params": fields}
                reports[rank] = RankFailure.model_validate(stored)
    return reports


def _outside_the_ranks(exit_info: ExitInfo) -> Failure | None:
    """Return the failure of a node, a disk or the memory, if there is one."""
    if exit_info.error:
        return exit_info.error
    for log in exit_info.logs.values():
        failure = _failed_write(log)
        if failure:
            return failure
    return OutOfMemory(killed=True) if exit_info.killed_for_memory else None


def _failed_write(log: str) -> IoFailure | None:
    """Return the failure of the last write that a log shows as failed."""
    for line in reversed(log.splitlines()):
        error = OS_ERROR.match(line)
        if error and int(error[1]) in UNWRITABLE:
            return IoFailure(detail=line)
    return None


def _stalled(run: EndedRun) -> WorkerStalled | None:
    """Return the failure of a rank that made no progress while another one waited for it in
    vain."""
    exited_first = run.exit_info.exited_first
    furthest = max(RankProgress.of(events) for events in run.events)
    for rank in run.silent():
        progress = run.progress(rank)
        is_behind = progress < furthest and exited_first != [rank]
        if is_behind and run.exit_info.idle_seconds.get(rank, 0.0) > STALLED_SECONDS:
            peer = _peer(run, run.reports)
            others = [other for other in exited_first if other != rank]
            if others and not peer:
                peer = {"peer": others[0], "peer_node": run.nodes[others[0]]}
                peer |= {"peer_exited": True}
            node = run.nodes[rank]
            return WorkerStalled(rank=rank, node=node, **progress.fields, **peer)
    return None


def _reported_first(run: EndedRun) -> RankFailure:
    """Return the error reported by the rank with the least progress; the others' errors are its
    result. If two ranks have the least, both are named."""
    exited = [rank for rank in run.exit_info.exited_first if rank in run.reports]
    rank, *others = run.furthest_behind(exited or run.reports)
    return run.reports[rank].model_copy(update=_peer(run, others))


def _died(run: EndedRun, died: list[int]) -> WorkerDied:
    """Return the failure of the rank that exited without an error: of those that `died`, the
    one with the least progress, or several; any worker, if no rank is known to have exited."""
    fields: dict[str, Any] = {"workers": len(run.events)}
    if died:
        ranks = run.furthest_behind(died)
        fields = _names(ranks, run.nodes) | run.progress(ranks[0]).fields
    peer = _peer(run, run.reports)
    if peer:
        return WorkerDied(**fields, **peer)
    status = run.exit_info.status
    return WorkerDied(**fields, status=status, last_lines=_last_lines(run.exit_info.logs))


def _last_lines(logs: dict[str, str]) -> str:
    """Return the last lines of all logs on one line."""
    words = []
    for log in logs.values():
        for line in log.splitlines()[-LAST_LINES:]:
            words += line.split()
    return " ".join(words)[-LOG_CHARACTERS:]


def _peer(run: EndedRun, ranks: Iterable[int]) -> dict[str, Any]:
    """Return the fields of a failure that name the first of these ranks, which have reported
    errors, and its error; none without a rank."""
    for rank in ranks:
        detail = run.reports[rank].detail
        return {"peer": rank, "peer_node": run.nodes[rank], "peer_detail": detail}
    return {}


def _names(ranks: list[int], nodes: list[str | None]) -> dict[str, Any]:
    """Return the fields of a failure that name one rank or several, and their nodes."""
    if len(ranks) == 1:
        return {"rank": ranks[0], "node": nodes[ranks[0]]}
    names = [nodes[rank] for rank in ranks if nodes[rank]]
    return {"ranks": ranks, "nodes": [*dict.fromkeys(names)] or None}


def timed_out(
    repeat: int, seconds: int, events: list[Events], nodes: list[str | None]
) -> Timeout:
    """Return the failure of a repeat that took over `seconds`. It names the ranks with the
    least progress in the raw files, if there are several ranks."""
    if len(events) == 1:
        return Timeout(repeat=repeat, seconds=seconds)
    progress = [RankProgress.of(rank_events) for rank_events in events]
    least = min(progress)
    behind = [rank for rank, reached in enumerate(progress) if reached == least]
    if len(behind) == len(events):
        names: dict[str, Any] = {"world_size": len(events)}
    else:
        names = _names(behind, nodes)
    return Timeout(repeat=repeat, seconds=seconds, **names, **progress[behind[0]].fields)
