"""Why the workers of a repeat ended before their time: pure functions on what is known of them.

When one rank fails, its peers report an error of their own, the lost connection, or are aborted
by it; a launcher's status is that of the first process it looks at. So the culprit is looked
for in what ranks reported, how far each one came, and which of them exited first.
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
"""A rank that writes nothing for so long has stalled; gloo waits for it for 30 seconds."""
SAME_SECONDS = 1.0
"""Processes seen to have exited within it may have exited in any order."""
LOG_CHARACTERS = 300
ABORTED = ("FatalError", "Traceback (most recent call last)")
"""What Paddle's or Python's handlers write into the log of a process that aborts."""


class NodeError(Exception):
    """The nodes can't do what was asked of them."""

    def __init__(self, code: FailureCode, **params: Any) -> None:
        self.failure = failure(code, **params)
        super().__init__(sentence(self.failure))


def failure(code: FailureCode, **params: Any) -> Failure:
    """A Failure whose parameters give away no path of this machine."""
    return Failure(
        code, {k: portable(v) if isinstance(v, str) else v for k, v in params.items()}
    )


def unwritten(error: OSError) -> Failure:
    """The driver itself could not write a file, make a folder or start a process."""
    code: FailureCode = "disk_full" if error.errno in NO_ROOM else "io_error"
    if error.errno == errno.ENOMEM:
        code = "out_of_memory"
    return failure(code, detail=str(error))


def finished(events: Events) -> bool:
    """Whether a rank did all that it was started for."""
    return bool(events) and events[-1]["event"] == "end"


def cause(
    events: list[Events],
    nodes: list[str | None],
    exit_info: ExitInfo,
    idle_seconds: list[float],
) -> Failure:
    """What ended the workers: a named cause that one of them reported, an error besides them,
    the machine's want of something, or the rank that went silent first.

    `events`, `nodes` and `idle_seconds` are by rank: its events, the name of its node if there
    are several, and the seconds since its last event.
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
    # What a worker could not write, it says last: there may be free bytes on the disk, but not
    # in the user's share of it, or for that file.
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
    """The rank that stopped without reporting an error; a plain report if there is none."""

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
    # A peer that was aborted, unlike the one that was killed, has its log to show for it.
    logs = {rank: exit_info.logs.get(f"rank{rank}", "") for rank in first}
    aborted = [rank for rank in first if any(sign in logs[rank] for sign in ABORTED)]
    killed = [rank for rank in first if rank in silent and rank not in aborted]
    if not killed and reported:
        return next(iter(reported.values()))
    who = {"workers": len(events)}
    if gone := killed or aborted:
        who = named(min(gone, key=lambda rank: _progress(events[rank])))
    if peer:
        return failure("worker_died", **who, **peer)
    lines = [line for log in exit_info.logs.values() for line in log.splitlines()[-3:]]
    last = " ".join(" ".join(lines).split())[-LOG_CHARACTERS:]
    return failure("worker_died", **who, status=exit_info.status, last_lines=last)


def furthest_behind(events: list[Events], nodes: list[str | None]) -> dict[str, Any]:
    """Parameters of a failure: which rank the others wait for, as far as the raw files tell."""
    least = min(map(_progress, events))
    behind = [rank for rank, e in enumerate(events) if _progress(e) == least]
    if len(behind) == len(events):
        who: dict[str, Any] = {"world_size": len(events)}
    elif len(behind) == 1:
        who = _place(behind[0], nodes)
    else:
        names = dict.fromkeys(node for rank in behind if (node := nodes[rank]))
        who = {"ranks": behind} | ({"nodes": [*names]} if names else {})
    return who | _step(events[behind[0]])


def _place(rank: int, nodes: list[str | None], name: str = "rank") -> dict[str, Any]:
    """The parameters that name a rank and, of several, its node."""
    node = "node" if name == "rank" else f"{name}_node"
    return {name: rank} | ({node: nodes[rank]} if nodes[rank] else {})


def _progress(events: Events) -> tuple[int, int]:
    """How far a rank came: its last step with batches, and its last finished step."""
    begun = [e["step"] for e in events if e["event"] == "batch"]
    done = [e["step"] for e in events if e["event"] == "step"]
    return max(begun, default=0), max(done, default=0)


def _step(events: Events) -> dict[str, int]:
    """The same as parameters of a failure; none if the rank has not even started."""
    begun, done = _progress(events)
    if not events:
        return {}
    return {"step": done} | ({"next_step": begun} if begun > done else {})
