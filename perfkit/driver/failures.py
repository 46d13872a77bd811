"""Why the workers of a repeat exited early: pure functions of their events and exit info.

When one rank fails, its peers report the lost connection or abort, and a launcher returns the
status of the process that it checks first. So the failing rank is identified by the reported
errors, the progress of each rank, and the order of their exits.
"""

import errno
import os
import re
from typing import Any

from perfkit.config import portable
from perfkit.driver.workers import ExitInfo
from perfkit.results.schema import Failure, FailureCode
from perfkit.results.store import BROKEN, NO_ROOM, Events
from perfkit.text.messages import sentence

STALLED_SECONDS = 20.0
"""A rank that writes nothing for this time has stalled; gloo waits for it for 30 seconds."""
SAME_SECONDS = 1.0
"""The order of exits seen within this time is unknown."""
LOG_CHARACTERS = 300
ABORTED = ("FatalError", "Traceback (most recent call last)")
"""Text that Paddle's and Python's handlers write to the log of an aborting process."""


class NodeError(Exception):
    """The nodes can't run the measurement."""

    def __init__(self, code: FailureCode, **params: Any) -> None:
        self.failure = failure(code, **params)
        super().__init__(sentence(self.failure))


def failure(code: FailureCode, **params: Any) -> Failure:
    """A Failure whose parameters contain no home or checkout path."""
    return Failure(
        code, {k: portable(v) if isinstance(v, str) else v for k, v in params.items()}
    )


def unwritten(error: OSError) -> Failure:
    """The Failure of a driver that could not write a file or start a process."""
    code: FailureCode = "disk_full" if error.errno in NO_ROOM else "io_error"
    if error.errno == errno.ENOMEM:
        code = "out_of_memory"
    return failure(code, detail=str(error))


def finished(events: Events) -> bool:
    """Whether a rank has completed its task."""
    return bool(events) and events[-1]["event"] == "end"


def cause(
    events: list[Events],
    nodes: list[str | None],
    exit_info: ExitInfo,
    idle_seconds: list[float],
) -> Failure:
    """Return why the workers ended. In this order: a specific failure reported by a rank, an
    error outside the workers, a full disk, an I/O error or a lack of memory, the rank that went
    silent first.

    By rank: `events`, `nodes` (names; None with a single node), and `idle_seconds` since its
    last event.
    """
    reported = {
        rank: failure(event["code"], **event["params"] | _place(rank, nodes))
        for rank, rank_events in enumerate(events)
        for event in rank_events
        if event["event"] == "failure"
    }
    for report in reported.values():
        if report.code != "worker_error":
            return report
    if exit_info.error:
        return exit_info.error
    if exit_info.free_bytes < os.sysconf("SC_PAGE_SIZE"):
        return failure("disk_full", free_bytes=exit_info.free_bytes)
    # A line of a log may show a failed write, by a quota or limit, on a disk with free bytes.
    for line in (line for log in exit_info.logs.values() for line in log.splitlines()[::-1]):
        found = re.match(r"OSError: \[Errno (\d+)\]", line)
        if found and (number := int(found[1])) in (*NO_ROOM, *BROKEN):
            return failure("disk_full" if number in NO_ROOM else "io_error", detail=line)
    if exit_info.killed_for_memory:
        return failure("out_of_memory", killed=True)
    return _silent(events, nodes, exit_info, idle_seconds, reported)


def _silent(
    events: list[Events],
    nodes: list[str | None],
    exit_info: ExitInfo,
    idle_seconds: list[float],
    reported: dict[int, Failure],
) -> Failure:
    """The failure of the first rank that stopped silently, or the first reported error."""

    def named(rank: int) -> dict[str, Any]:
        return _place(rank, nodes) | _step(events[rank])

    silent = [r for r, e in enumerate(events) if r not in reported and not finished(e)]
    earliest = min(exit_info.exited_at.values(), default=0.0)
    first = [r for r, at in exit_info.exited_at.items() if at - earliest < SAME_SECONDS]
    peer: dict[str, Any] = {}
    for rank, report in [*reported.items()][:1]:
        peer = _place(rank, nodes, "peer") | {"peer_detail": report.params.get("detail", "")}
    furthest = max(map(_progress, events))
    for rank in silent:
        behind = _progress(events[rank]) < furthest and first != [rank]
        if behind and idle_seconds[rank] > STALLED_SECONDS:
            exited = [other for other in first if other != rank]
            if exited and not peer:
                peer = _place(exited[0], nodes, "peer") | {"peer_exited": True}
            return failure("worker_stalled", **named(rank), **peer)
    # An aborted peer leaves a trace in its log, a killed rank does not.
    logs = {rank: exit_info.logs.get(f"rank{rank}", "") for rank in first}
    aborted = [rank for rank in first if any(sign in logs[rank] for sign in ABORTED)]
    killed = [rank for rank in first if rank in silent and rank not in aborted]
    if not killed and reported:
        return next(iter(reported.values()))
    params: dict[str, Any] = {"workers": len(events)}
    if died := killed or aborted:
        params = named(min(died, key=lambda rank: _progress(events[rank])))
    if peer:
        return failure("worker_died", **params, **peer)
    lines = [line for log in exit_info.logs.values() for line in log.splitlines()[-3:]]
    last = " ".join(" ".join(lines).split())[-LOG_CHARACTERS:]
    return failure("worker_died", **params, status=exit_info.status, last_lines=last)


def furthest_behind(events: list[Events], nodes: list[str | None]) -> dict[str, Any]:
    """Failure parameters that name the ranks with the least progress in the raw files."""
    least = min(map(_progress, events))
    behind = [rank for rank, e in enumerate(events) if _progress(e) == least]
    if len(behind) == len(events):
        params: dict[str, Any] = {"world_size": len(events)}
    elif len(behind) == 1:
        params = _place(behind[0], nodes)
    else:
        names = dict.fromkeys(node for rank in behind if (node := nodes[rank]))
        params = {"ranks": behind} | ({"nodes": [*names]} if names else {})
    return params | _step(events[behind[0]])


def _place(rank: int, nodes: list[str | None], name: str = "rank") -> dict[str, Any]:
    """Failure parameters that name a rank and, with several nodes, its node."""
    node = "node" if name == "rank" else f"{name}_node"
    return {name: rank} | ({node: nodes[rank]} if nodes[rank] else {})


def _progress(events: Events) -> tuple[int, int]:
    """Return a rank's last step with batches and its last finished step."""
    begun = [e["step"] for e in events if e["event"] == "batch"]
    done = [e["step"] for e in events if e["event"] == "step"]
    return max(begun, default=0), max(done, default=0)


def _step(events: Events) -> dict[str, int]:
    """Failure parameters with a rank's progress; none before its start."""
    begun, done = _progress(events)
    if not events:
        return {}
    return {"step": done} | ({"next_step": begun} if begun > done else {})
