"""Progress of a sweep in the terminal, with the remaining time, estimated from measurements."""

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Self

from perfkit.measuring.driver.progress import display
from perfkit.measuring.format import amount, interval, number
from perfkit.report.terminal import echo, tabulated, wrapped
from perfkit.sweep.jobs import missing
from perfkit.sweep.status import JobStatus, State, in_state

MEASURED: tuple[State, ...] = ("done", "kept", "failed")
ENDED: tuple[State, ...] = (*MEASURED, "skipped")
NOTEBOOK_SECONDS = 5.0
"""Approximate time of a notebook besides its repeats (docs/figures.md)."""


class SweepProgress:
    """Prints a line for each finished job, and shows the number of jobs in each state. With
    `in_turn`, jobs run one after another, and the time left is wall time."""

    def __init__(self, name: str, *, in_turn: bool) -> None:
        self.name, self.in_turn = name, in_turn
        self.printed: set[str] = set()
        self.display = display()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.display.close()

    def notify(self, text: str) -> None:
        self.display.print(text)

    def show(self, statuses: list[JobStatus]) -> None:
        for status in statuses:
            if status.state in MEASURED and status.job.digest not in self.printed:
                self.printed.add(status.job.digest)
                count = f"{len(self.printed)}/{len(statuses)}"
                self.notify(f"{count} {status.state:7} {status.job.label}: {_result(status)}")
        self.display.show(headline(self.name, statuses, in_turn=self.in_turn))


def headline(name: str, statuses: list[JobStatus], *, in_turn: bool) -> str:
    """Return the number of jobs in each state, what runs, and the time left."""
    counts = Counter(status.state for status in statuses)
    states: tuple[State, ...] = (*ENDED, "running")
    numbers = [f"{counts[state]} {state}" for state in states if counts[state]]
    summary = f"{name}: {', '.join(numbers) or '0 done'} of {len(statuses)}"
    pending = [status for status in statuses if status.state not in ENDED]
    if not pending:
        return f"{summary}; writing the report"
    parts = [summary]
    seconds = seconds_left(pending, statuses)
    if seconds:
        parts.append(f"{about(seconds, in_turn=in_turn)} left")
    for status in in_state(pending, "running"):
        parts.append(f"{status.job.label} ({repeats_words(status)} left)")
    return "; ".join(parts)


def about(seconds: float, *, in_turn: bool) -> str:
    """Return an estimated time as text; of jobs that run side by side, it is a sum."""
    text = f"about {duration(seconds)}"
    return text if in_turn else f"{text} in total"


def print_failures(statuses: list[JobStatus]) -> None:
    """Print the command to run each failed job again, on a line of its own, after the node on
    which to run it, if it has one: elsewhere it would measure another machine by this name."""
    failed = in_state(statuses, "failed")
    if failed:
        count = f"{len(failed)} of {len(statuses)}"
        echo(f"{count} failed. To run a single job again:", err=True)
    for status in failed:
        node = status.job.plan.config.node
        where = f"on {node}: " if node else ""
        echo(f"  {where}{status.job.command}", err=True)


def print_skipped(statuses: list[JobStatus]) -> None:
    """Print what can't run here: each reason, and the configurations that it concerns."""
    skipped = in_state(statuses, "skipped")
    if skipped:
        count = f"{len(skipped)} of {len(statuses)}"
        echo(f"{count} can't run here and were skipped:", err=True)
    labels: dict[str, list[str]] = defaultdict(list)
    for status in skipped:
        for reason in status.job.missing:
            labels[reason].append(status.job.label)
    for reason, concerned in labels.items():
        echo(wrapped(reason, "  "), err=True)
        for label in concerned:
            echo(f"      {label}", err=True)


def planned(statuses: list[JobStatus], *, in_turn: bool, width: int) -> str:
    """Return what is done, what would run and how long, and what can't run here and why; the
    table has at most `width` characters."""
    runnable = in_state(statuses, "waiting")
    skipped = in_state(statuses, "skipped")
    reasons = missing(status.job for status in skipped)
    lines = _intentions(statuses, reasons, width)
    lines.append(_would_run(runnable, statuses, in_turn=in_turn))
    if skipped:
        lines.append(f"{len(skipped)} of {len(statuses)} can't run on this machine:")
        for number, reason in enumerate(reasons, 1):
            lines.append(wrapped(f"({number}) {reason}", "  "))
    return "\n".join(lines)


def _would_run(runnable: list[JobStatus], statuses: list[JobStatus], *, in_turn: bool) -> str:
    line = f"{len(runnable)} of {len(statuses)} would run"
    seconds = seconds_left(runnable, statuses)
    return f"{line}, {about(seconds, in_turn=in_turn)}" if seconds else line


def _intentions(statuses: list[JobStatus], reasons: list[str], width: int) -> list[str]:
    """Return a table of what a sweep would do with each job; its results, if there are any."""
    results = [_result(status) for status in statuses]
    headings = ["configuration", "would be"]
    if any(results):
        headings.append("result")
    rows = []
    for status, result in zip(statuses, results, strict=True):
        cells = [status.job.label, _intention(status, reasons), result]
        rows.append(cells[: len(headings)])
    return tabulated(rows, headings, left=headings, wrap=headings, width=width)


def _intention(status: JobStatus, reasons: list[str]) -> str:
    """Return what a sweep would do with a job; `reasons` are numbered from 1."""
    if status.state == "kept":
        return "kept"
    if status.state == "skipped":
        numbers = [str(reasons.index(reason) + 1) for reason in status.job.missing]
        return f"skipped ({', '.join(numbers)})"
    has_failed = bool(status.reason)
    return f"{'run again' if has_failed else 'run'}, {repeats_words(status)}"


def _result(status: JobStatus) -> str:
    if status.reason:
        return status.reason
    throughput = status.measurement.result.throughput if status.measurement else None
    if not throughput:
        return ""
    text = number(throughput.value)
    if throughput.interval:
        text += f" ({interval(*throughput.interval)})"
    return f"{text} {throughput.unit}"


def duration(seconds: float) -> str:
    """Format a duration: 50 s, 12 min, 3 h 20 min."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def seconds_left(pending: Iterable[JobStatus], statuses: Iterable[JobStatus]) -> float | None:
    """Estimate the total seconds of the `pending` jobs from the mean of the repeats of the same
    model and device; None without any."""
    times_of = _seconds_of_repeats(statuses)
    total = 0.0
    for status in pending:
        config, protocol = status.job.plan.config, status.job.plan.protocol
        times = times_of[config.work.name, config.device]
        if not times:
            return None
        seconds = repeats_left(status) * statistics.mean(times)
        if protocol.budget:
            seconds = min(seconds, protocol.budget)
        total += NOTEBOOK_SECONDS + seconds
    return total


def _seconds_of_repeats(statuses: Iterable[JobStatus]) -> dict[tuple[str, str], list[float]]:
    """Return model and device -> wall time of each complete repeat."""
    times: dict[tuple[str, str], list[float]] = defaultdict(list)
    for status in statuses:
        if status.measurement:
            result = status.measurement.result
            work = result.work.name, result.config.device
            for repeat in result.complete_repeats:
                if repeat.wall_seconds:
                    times[work].append(repeat.wall_seconds)
    return times


def repeats_words(status: JobStatus) -> str:
    left = repeats_left(status)
    return amount(left, "repeat")


def repeats_left(status: JobStatus) -> int:
    """Return the largest number of repeats that a job still needs."""
    if not status.measurement:
        return status.job.plan.protocol.repeats
    result = status.measurement.result
    if result.ended_by:
        return 0
    return result.protocol.repeats - len(result.complete_repeats)
