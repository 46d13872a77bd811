"""Why the workers of a repeat exited early: pure functions of their events and exit info.

When one rank fails, its peers report the lost connection or abort, and a launcher returns the
status of the process that it checks first. So the failing rank is identified by the reported
errors, by the traces in the logs, and by the progress of each rank.
"""

import errno
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

from perfkit.measuring.driver.exit_info import ExitInfo
from perfkit.measuring.driver.logs import last_lines
from perfkit.measuring.results.failures import Failure
from perfkit.measuring.results.store import Events
from perfkit.timing.failure import WORKER_ERROR, portable
from perfkit.timing.raw_file import UNWRITABLE

ABORTED = ("FatalError", "Traceback (most recent call last)")
"""Text that Paddle's and Python's handlers write to the log of an aborting process."""
DISK_ERROR = re.compile(rf"^OSError: \[Errno ({'|'.join(map(str, UNWRITABLE))})\] .*", re.M)
"""Line of the log of a rank that could not write its raw events."""


class NodeError(Exception):
    """The nodes can't run the measurement; `failure` says why."""

    def __init__(self, failure: Failure) -> None:
        self.failure = failure
        super().__init__(failure.reason)


def unwritten(error: OSError) -> Failure:
    """Return the failure of a driver that could not write a file or start a process."""
    code = "out_of_memory" if error.errno == errno.ENOMEM else "io_error"
    return Failure(code=code, reason=portable(str(error)))


def finished(events: Events) -> bool:
    """Return whether a rank has completed its task."""
    return bool(events) and events[-1]["event"] == "end"


class Progress(NamedTuple):
    """How far a rank came: the last step whose batch has arrived, and the last completed one.
    Of two ranks, the one with the earlier batch is behind."""

    batch: int
    step: int


class Report(NamedTuple):
    """The error that a rank reported, `at` a time by its node's clock."""

    rank: int
    at: float
    code: str
    message: str


@dataclass(frozen=True)
class EndedRun:
    """The ranks of a repeat that has ended, by their numbers: their events, and the names of
    their nodes (None with a single node)."""

    events: Sequence[Events]
    nodes: Sequence[str | None]
    exit_info: ExitInfo

    def name(self, rank: int) -> str:
        """Return the name of a rank and, if there are several nodes, of its node."""
        node = self.nodes[rank]
        return f"rank {rank} on {node}" if node else f"rank {rank}"

    def names(self, ranks: Sequence[int]) -> str:
        """Return the name of one rank, or the numbers of several."""
        if len(ranks) == 1:
            return self.name(ranks[0])
        return f"ranks {', '.join(map(str, ranks))}"

    def progress(self, rank: int) -> Progress:
        events = self.events[rank]
        batches = [event["step"] for event in events if event["event"] == "batch"]
        steps = [event["step"] for event in events if event["event"] in ("step", "print")]
        return Progress(max(batches, default=0), max(steps, default=0))

    def furthest_behind(self, ranks: Iterable[int]) -> list[int]:
        """Return those of `ranks` that have made the least progress."""
        progress = {rank: self.progress(rank) for rank in ranks}
        least = min(progress.values())
        return [rank for rank, reached in progress.items() if reached == least]

    def reports(self) -> list[Report]:
        """Return the errors that ranks have reported, the earliest first."""
        reports = []
        for rank, events in enumerate(self.events):
            for event in events:
                if event["event"] == "failure":
                    report = Report(rank, event["at"], event["code"], event["message"])
                    reports.append(report)
        return sorted(reports, key=attrgetter("at"))

    def silent(self) -> list[int]:
        """Return the ranks that neither finished nor reported an error."""
        reported = {report.rank for report in self.reports()}
        ranks = []
        for rank, events in enumerate(self.events):
            if rank not in reported and not finished(events):
                ranks.append(rank)
        return ranks

    def has_aborted(self, rank: int) -> bool:
        """Return whether the rank's log has the trace of an abort. A process that a signal
        killed leaves none."""
        log = self.exit_info.logs.get(f"rank{rank}", "")
        return any(sign in log for sign in ABORTED)

    def failure(self, code: str, reason: str, rank: int | None = None) -> Failure:
        """Return a failure with the last lines of the rank's log."""
        node = None if rank is None else self.nodes[rank]
        log = last_lines(self._log(rank))
        return Failure(code=code, reason=reason, rank=rank, node=node, log=log)

    def reported(self, report: Report) -> Failure:
        reason = f"{self.name(report.rank)}: {report.message}"
        return self.failure(report.code, reason, report.rank)

    def _log(self, rank: int | None) -> str:
        """Return the log of a rank; without any, the launchers' logs, in which a single rank
        writes, too."""
        logs = self.exit_info.logs
        of_launchers = [text for name, text in logs.items() if not name.startswith("rank")]
        return logs.get(f"rank{rank}") or "\n".join(of_launchers)


def cause(run: EndedRun) -> Failure:
    """Return why the workers ended. In this order: a specific failure reported by a rank, an
    error outside the workers, an I/O error or a lack of memory, the rank that stalled, the rank
    that was killed, the first rank that reported an error."""
    reports = run.reports()
    for report in reports:
        if report.code != WORKER_ERROR:
            return run.reported(report)
    failure = _outside_the_ranks(run) or _stalled(run)
    if failure:
        return failure
    silent, exited_first = run.silent(), run.exit_info.exited_first
    aborted = [rank for rank in exited_first if run.has_aborted(rank)]
    killed = [rank for rank in exited_first if rank in silent and rank not in aborted]
    if reports and not killed:
        return run.reported(reports[0])
    return _died(run, killed or aborted)


def _outside_the_ranks(run: EndedRun) -> Failure | None:
    """Return the failure of a node, a disk or the memory, if there is one."""
    exit_info = run.exit_info
    if exit_info.error:
        return exit_info.error
    for log in exit_info.logs.values():
        if found := DISK_ERROR.search(log):
            return run.failure("io_error", found[0])
    if exit_info.killed_for_memory:
        reason = "the kernel killed a worker because memory ran out"
        return run.failure("out_of_memory", reason)
    return None


def _stalled(run: EndedRun) -> Failure | None:
    """Return the failure of a rank that made no progress while another one waited for it in
    vain."""
    silent = run.silent()
    furthest = max(run.progress(rank) for rank in range(len(run.events)))
    stalled = []
    for rank in run.exit_info.idle:
        if rank in silent and run.progress(rank) < furthest:
            stalled.append(rank)
    if not stalled:
        return None
    rank = run.furthest_behind(stalled)[0]
    reason = f"{run.name(rank)} stalled after step {run.progress(rank).step}"
    return run.failure("worker_stalled", reason, rank)


def _died(run: EndedRun, died: list[int]) -> Failure:
    """Return the failure of the rank that exited without an error: of those that `died`, the
    one with the least progress, or several; any worker, if no rank is known to have exited."""
    status = f"the launcher's exit status was {run.exit_info.status}"
    if not died:
        reason = f"one of {len(run.events)} workers exited without reporting an error; {status}"
        return run.failure("worker_died", reason)
    behind = run.furthest_behind(died)
    who = run.names(behind)
    if len(behind) > 1:
        who = f"one of the {who}"
    step = run.progress(behind[0]).step
    reason = f"{who} exited without reporting an error after step {step}; {status}"
    return run.failure("worker_died", reason, _only(behind))


def timed_out(run: EndedRun, repeat: int, seconds: int, sign: str) -> Failure:
    """Return the failure of a repeat that took over `seconds`. It names the ranks with the
    least progress in the raw files, if there are several ranks. `sign` is what a step is known
    by."""
    reason = f"repeat {repeat} took over {seconds} s"
    ranks = range(len(run.events))
    behind = run.furthest_behind(ranks)
    step = run.progress(behind[0]).step
    if not any(run.progress(rank).step for rank in ranks):
        reason += f" without {sign}"
    if len(behind) < len(ranks):
        reason += f"; furthest behind: {run.names(behind)} after step {step}"
    elif len(ranks) > 1:
        reason += f"; all {len(ranks)} ranks stopped after step {step}; the logs show where"
    return run.failure("timeout", reason, _only(behind))


def _only(ranks: list[int]) -> int | None:
    """Return the rank, if it is only one."""
    return ranks[0] if len(ranks) == 1 else None
