"""Why the workers of a repeat ended before their time: pure functions on what is known of them.

When one rank fails, its peers report an error of their own, the lost connection, or are aborted
by it; a launcher's status is that of the first process it looks at. So the culprit is looked
for in what ranks reported, how far each one came, and which of them was gone first.
"""

import os

from perfkit.config import portable
from perfkit.driver.workers import ExitInfo
from perfkit.results.schema import Failure, FailureCode
from perfkit.results.store import NO_ROOM, Events

STALLED_SECONDS = 20.0
"""A rank that writes nothing for so long has stalled; gloo waits for it for 30 seconds."""
SAME_SECONDS = 1.0
"""Processes seen to be gone within it may have gone in any order."""
LAST_WORDS = ("FatalError", "Traceback (most recent call last)")
"""What Paddle's or Python's handlers write into the log of a process that aborts."""


def failure(code: FailureCode, message: str) -> Failure:
    """A Failure whose message gives away no path of this machine."""
    return Failure(code, {"detail": portable(message)})


def unwritten(error: OSError) -> Failure:
    """The driver itself could not write a file, make a folder or start a process."""
    code: FailureCode = "disk_full" if error.errno in NO_ROOM else "worker_error"
    return failure(code, str(error))


def finished(events: Events) -> bool:
    """Whether a rank did all that it was started for."""
    return bool(events) and events[-1]["event"] == "end"


def cause(
    events: list[Events],
    names: list[str],
    exit_info: ExitInfo,
    idle_seconds: list[float],
) -> Failure:
    """What ended the workers: a named cause that one of them reported, an error besides them,
    the machine's want of something, or the rank that went silent first.

    `names` and `idle_seconds` are by rank: how people call it, and the seconds since its last
    event.
    """
    reported = {
        rank: failure(event["code"], f"{names[rank]}: {event['params']['detail']}")
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
        return failure("disk_full", "no space left where the results are written")
    if line := _no_room(exit_info.logs):
        return failure("disk_full", line)
    if exit_info.killed_for_memory:
        return failure("out_of_memory", "the kernel killed a worker for want of memory")
    return _silent(events, names, exit_info, idle_seconds, reported)


def _no_room(logs: dict[str, str]) -> str | None:
    """Where a process says last that it had no room to write, which may be so where there are
    free bytes, too: for another file, or in the user's share of the disk."""
    signs = tuple(f"OSError: [Errno {number}]" for number in NO_ROOM)
    lines = [line for log in logs.values() for line in log.splitlines()]
    return next((line for line in reversed(lines) if line.startswith(signs)), None)


def _silent(
    events: list[Events],
    names: list[str],
    exit_info: ExitInfo,
    idle_seconds: list[float],
    reported: dict[int, Failure],
) -> Failure:
    """The rank that stopped without a word; a plain report if there is none."""
    speechless = [
        rank for rank, e in enumerate(events) if rank not in reported and not finished(e)
    ]
    first = min(exit_info.exited_at.values(), default=0.0)
    gone = [rank for rank, at in exit_info.exited_at.items() if at - first < SAME_SECONDS]
    reports = [report.params["detail"] for report in reported.values()]
    stalled = [
        rank
        for rank in _behind(events)
        if rank in speechless and gone != [rank] and idle_seconds[rank] > STALLED_SECONDS
    ]
    if stalled:
        reports += [f"{names[r]} ended without a word" for r in gone if r != stalled[0]]
        told = f"{names[stalled[0]]} did not go on after {_where(events[stalled[0]])}"
        return failure("worker_stalled", "; then ".join([told, *reports[:1]]))
    # A peer that was aborted, unlike the one that was killed, has its log to show for it.
    aborted = [
        r for r in gone if any(w in exit_info.logs.get(f"rank{r}", "") for w in LAST_WORDS)
    ]
    killed = [rank for rank in gone if rank in speechless and rank not in aborted]
    if not killed and reported:
        return next(iter(reported.values()))
    killed = sorted(killed or aborted, key=lambda rank: _progressed(events[rank]))
    who, where = (names[killed[0]], _where(events[killed[0]])) if killed else ("a worker", "")
    last_lines = [line for log in exit_info.logs.values() for line in log.splitlines()[-3:]]
    last = " ".join(" ".join(last_lines).split())[-300:]
    reports = reports or [f"the launcher's status was {exit_info.status}; last lines: {last}"]
    told = f"{who} ended without a word" + (f" after {where}" if where else "")
    return failure("worker_died", f"{told}; {reports[0]}")


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


def furthest_behind(events: list[Events], names: list[str]) -> str:
    """Which rank the others wait for, as far as the raw files tell."""
    least = min(map(_progressed, events))
    behind = [names[rank] for rank, e in enumerate(events) if _progressed(e) == least]
    if len(behind) == len(events):
        return f"all ranks came to {_where(events[0])}; the logs show where each one was"
    first = names.index(behind[0])
    return f"furthest behind: {', '.join(behind)}, after {_where(events[first])}"
