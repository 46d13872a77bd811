"""Why the workers of a repeat exited early: pure functions of their events and exit info.

When one rank fails, its peers report the lost connection or abort, and a launcher returns the
status of the process that it checks first. So the failing rank is identified by the reported
errors, by the traces in the logs, and by the progress of each rank. Clocks of different nodes
are not compared.
"""

import errno
import os
import re
from typing import Any

from perfkit.core.driver.workers import ExitInfo
from perfkit.core.paths import portable
from perfkit.core.results.repeat import Failure, FailureCode
from perfkit.core.results.store import BROKEN, NO_ROOM, Events
from perfkit.report.text.messages import sentence

STALLED_SECONDS = 20.0
"""A rank that writes nothing for this time has stalled; gloo waits for it for 30 seconds."""
LOG_CHARACTERS = 300
ABORTED = ("FatalError", "Traceback (most recent call last)")
"""Text that Paddle's and Python's handlers write to the log of an aborting process."""


class NodeError(Exception):
    """The nodes can't run the measurement; `failure` says why."""

    def __init__(self, reason: Failure) -> None:
        self.failure = reason
        super().__init__(sentence(reason))


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


def is_full(free_bytes: int) -> bool:
    """Whether a disk with this free space has no room for another block."""
    return free_bytes < os.sysconf("SC_PAGE_SIZE")


def finished(events: Events) -> bool:
    """Whether a rank has completed its task."""
    return bool(events) and events[-1]["event"] == "end"


def cause(events: list[Events], nodes: list[str | None], exit_info: ExitInfo) -> Failure:
    """Return why the workers ended. In this order: a specific failure reported by a rank, an
    error outside the workers, a full disk, an I/O error or a lack of memory, the rank that went
    silent, the rank that reported an error.

    By rank: `events`, and `nodes` (names; None with a single node).
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
    outside = _outside_the_ranks(exit_info)
    if outside or (outside := _stalled(events, nodes, exit_info, reported)):
        return outside
    killed = _killed(events, exit_info, reported)
    if reported and not killed:
        return _reported_first(events, nodes, exit_info, reported)
    return _died(events, nodes, exit_info, reported, killed)


def _outside_the_ranks(exit_info: ExitInfo) -> Failure | None:
    """The failure of a node, a disk or the memory, if any."""
    if exit_info.error:
        return exit_info.error
    if is_full(exit_info.free_bytes):
        return failure("disk_full", free_bytes=exit_info.free_bytes)
    # A line of a log may show a failed write, by a quota or limit, on a disk with free bytes.
    for line in (line for log in exit_info.logs.values() for line in log.splitlines()[::-1]):
        found = re.match(r"OSError: \[Errno (\d+)\]", line)
        if found and (number := int(found[1])) in (*NO_ROOM, *BROKEN):
            return failure("disk_full" if number in NO_ROOM else "io_error", detail=line)
    return failure("out_of_memory", killed=True) if exit_info.killed_for_memory else None


def _stalled(
    events: list[Events],
    nodes: list[str | None],
    exit_info: ExitInfo,
    reported: dict[int, Failure],
) -> Failure | None:
    """The failure of a rank that made no progress while another one waited for it in vain."""
    furthest = max(map(_progress, events))
    first = exit_info.exited_first
    for rank in _silent(events, reported):
        behind = _progress(events[rank]) < furthest and first != [rank]
        if behind and exit_info.idle_seconds.get(rank, 0.0) > STALLED_SECONDS:
            others = [other for other in first if other != rank]
            peer = _peer(nodes, reported)
            if others and not peer:
                peer = _place(others[0], nodes, "peer") | {"peer_exited": True}
            return failure("worker_stalled", **_named(rank, events, nodes), **peer)
    return None


def _killed(
    events: list[Events], exit_info: ExitInfo, reported: dict[int, Failure]
) -> list[int]:
    """The ranks that a signal ended: a process that aborts leaves a trace in its log, a killed
    one does not."""
    silent = _silent(events, reported)
    exited = [rank for rank in exit_info.exited_first if rank in silent]
    return [rank for rank in exited if not _aborted(rank, exit_info)]


def _aborted(rank: int, exit_info: ExitInfo) -> bool:
    log = exit_info.logs.get(f"rank{rank}", "")
    return any(sign in log for sign in ABORTED)


def _reported_first(
    events: list[Events],
    nodes: list[str | None],
    exit_info: ExitInfo,
    reported: dict[int, Failure],
) -> Failure:
    """The reported error of the rank with the least progress, the others' being its result; if
    two have the least, both are named."""
    exited = [rank for rank in exit_info.exited_first if rank in reported]
    rank, *others = _least(exited or [*reported], events)
    peers = {other: reported[other] for other in others}
    report = reported[rank]
    return failure(report.code, **report.params, **_peer(nodes, peers))


def _died(
    events: list[Events],
    nodes: list[str | None],
    exit_info: ExitInfo,
    reported: dict[int, Failure],
    killed: list[int],
) -> Failure:
    """The failure of the rank that exited without an error; of those with the least progress,
    if they are several; of any worker, if no rank is known to have exited."""
    aborted = [rank for rank in exit_info.exited_first if _aborted(rank, exit_info)]
    params: dict[str, Any] = {"workers": len(events)}
    if died := killed or aborted:
        ranks = _least(died, events)
        params = _named(ranks[0], events, nodes)
        if len(ranks) > 1:
            names = [node for rank in ranks if (node := nodes[rank])]
            params = {"ranks": ranks} | _step(events[ranks[0]])
            params |= {"nodes": [*dict.fromkeys(names)]} if names else {}
    if peer := _peer(nodes, reported):
        return failure("worker_died", **params, **peer)
    lines = [line for log in exit_info.logs.values() for line in log.splitlines()[-3:]]
    last = " ".join(" ".join(lines).split())[-LOG_CHARACTERS:]
    return failure("worker_died", **params, status=exit_info.status, last_lines=last)


def _silent(events: list[Events], reported: dict[int, Failure]) -> list[int]:
    """The ranks that neither finished nor reported an error."""
    return [r for r, e in enumerate(events) if r not in reported and not finished(e)]


def _least(ranks: list[int], events: list[Events]) -> list[int]:
    """Those of `ranks` that have made the least progress."""
    least = min(_progress(events[rank]) for rank in ranks)
    return [rank for rank in ranks if _progress(events[rank]) == least]


def _named(rank: int, events: list[Events], nodes: list[str | None]) -> dict[str, Any]:
    """Failure parameters that name a rank, its node and its progress."""
    return _place(rank, nodes) | _step(events[rank])


def _peer(nodes: list[str | None], reported: dict[int, Failure]) -> dict[str, Any]:
    """Failure parameters with the first of these reports; none without one."""
    for rank, report in reported.items():
        return _place(rank, nodes, "peer") | {"peer_detail": report.params.get("detail", "")}
    return {}


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
