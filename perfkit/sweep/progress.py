"""Progress of a sweep in the terminal, with the remaining time, estimated from measurements."""

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Self

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from perfkit.core.driver.live import LastLine
from perfkit.core.format import interval, number
from perfkit.core.paths import portable
from perfkit.report.text.terminal import wrapped
from perfkit.sweep.status import JobStatus, State

MEASURED: tuple[State, ...] = ("done", "kept", "failed")
ENDED: tuple[State, ...] = (*MEASURED, "skipped")
NOTEBOOK_SECONDS = 5.0
"""Approximate time of a notebook besides its repeats (docs/figures.md)."""


class SweepProgress:
    """Prints a line for each finished job and, on a terminal, a last line with the number of
    jobs in each state. With `in_turn`, jobs run one after another, and the time left is wall
    time."""

    def __init__(self, console: Console, name: str, *, in_turn: bool) -> None:
        self.name, self.in_turn = name, in_turn
        self.printed: set[str] = set()
        self.live = LastLine(console, transient=True)

    def __enter__(self) -> Self:
        self.live.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.live.stop()

    def notify(self, text: str) -> None:
        self.live.print_above(text)

    def show(self, statuses: list[JobStatus]) -> None:
        for status in statuses:
            if status.state in MEASURED and status.job.digest not in self.printed:
                self.printed.add(status.job.digest)
                count = f"{len(self.printed)}/{len(statuses)}"
                self.notify(f"{count} {status.state:7} {status.job.label}: {_result(status)}")
        line = headline(self.name, statuses, in_turn=self.in_turn)
        self.live.replace(Text(line, no_wrap=True, overflow="ellipsis"))


def headline(name: str, statuses: list[JobStatus], *, in_turn: bool) -> str:
    """The number of jobs in each state, what runs, and the time left."""
    counts = Counter(status.state for status in statuses)
    shown: tuple[State, ...] = (*ENDED, "running")
    words = [f"{counts[state]} {state}" for state in shown if counts[state]]
    text = f"{name}: {', '.join(words) or 'starting'} of {len(statuses)}"
    pending = [status for status in statuses if status.state not in ENDED]
    if not pending:
        return f"{text}; writing the report"
    running = [
        f"{status.job.label} ({repeats_words(status)} left)"
        for status in pending
        if status.state == "running"
    ]
    left = seconds_left(pending, statuses)
    known = [f"about {duration(left)}{'' if in_turn else ' in total'} left"] if left else []
    return "; ".join([text, *known, *running])


def print_failures(console: Console, statuses: list[JobStatus]) -> None:
    """Print the command to run each failed job again, on a line of its own."""
    failed = [status for status in statuses if status.state == "failed"]
    if failed:
        console.print(f"{len(failed)} of {len(statuses)} failed. To run a single job again:")
    for status in failed:
        console.print(Text(f"  {status.job.command}"), soft_wrap=True)


def print_skipped(console: Console, statuses: list[JobStatus]) -> None:
    """Print what can't run here: each reason, and the configurations that it concerns."""
    skipped = [status for status in statuses if status.state == "skipped"]
    if skipped:
        console.print(f"{len(skipped)} of {len(statuses)} can't run here and were skipped:")
    labels: dict[str, list[str]] = defaultdict(list)
    for status in skipped:
        for reason in status.job.missing:
            labels[reason].append(status.job.label)
    for reason, concerned in labels.items():
        console.print(Text(wrapped(reason, "  ")), soft_wrap=True)
        for label in concerned:
            console.print(Text(f"      {label}"), soft_wrap=True)


def planned(statuses: list[JobStatus], *, in_turn: bool) -> Group:
    """List what is done, what would run and how long, and what can't run here and why."""
    runnable = [status for status in statuses if status.state == "waiting"]
    skipped = [status for status in statuses if status.state == "skipped"]
    reasons = list(dict.fromkeys(why for status in skipped for why in status.job.missing))
    results = [_result(status) for status in statuses]
    columns = ["configuration", "would be", *(["result"] if any(results) else [])]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in columns:
        table.add_column(heading, overflow="fold")
    for status, result in zip(statuses, results, strict=True):
        row = [status.job.label, _intention(status, reasons), result]
        table.add_row(*[Text(cell) for cell in row[: len(columns)]])
    lines = [f"{len(runnable)} of {len(statuses)} would run"]
    if seconds := seconds_left(runnable, statuses):
        lines[0] += f", about {duration(seconds)}{'' if in_turn else ' in total'}"
    files = {s.job.sample_file for s in runnable if s.job.sample_file}
    if made := sorted(portable(str(file)) for file in files if not file.exists()):
        lines.append(f"sample data would be generated: {', '.join(made)}")
    if skipped:
        lines.append(f"{len(skipped)} of {len(statuses)} can't run on this machine:")
        lines += [wrapped(f"({k}) {reason}", "  ") for k, reason in enumerate(reasons, 1)]
    return Group(table, *map(Text, lines))


def _intention(status: JobStatus, reasons: list[str]) -> str:
    """What a sweep would do with a job; `reasons` are numbered from 1."""
    if status.state == "kept":
        return "kept"
    if status.state == "skipped":
        numbers = [str(reasons.index(reason) + 1) for reason in status.job.missing]
        return f"skipped ({', '.join(numbers)})"
    return f"{'run again' if status.reason else 'run'}, {repeats_words(status)}"


def _result(status: JobStatus) -> str:
    if status.reason:
        return status.reason
    stored = status.measurement.result.throughput if status.measurement else None
    if not stored:
        return ""
    around = f" ({interval(*stored.interval)})" if stored.interval else ""
    return f"{number(stored.value)}{around} {stored.unit}"


def duration(seconds: float) -> str:
    """Format a duration: 50 s, 12 min, 3 h 20 min."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def seconds_left(pending: Iterable[JobStatus], statuses: Iterable[JobStatus]) -> float | None:
    """Estimate the total seconds of the `pending` jobs from the mean of the repeats of the same
    model and device; None without any."""
    known: dict[tuple[str, str], list[float]] = defaultdict(list)
    for status in statuses:
        if status.measurement:
            result = status.measurement.result
            times = [r.wall_seconds for r in result.complete_repeats if r.wall_seconds]
            known[result.config.model, result.config.device] += times
    total = 0.0
    for status in pending:
        plan, repeats = status.job.plan, repeats_left(status)
        times = known[plan.config.model, plan.config.device]
        if not times:
            return None
        seconds = repeats * statistics.mean(times)
        total += NOTEBOOK_SECONDS + min(seconds, plan.protocol.budget or seconds)
    return total


def repeats_words(status: JobStatus) -> str:
    left = repeats_left(status)
    return f"{left} repeat{'s' * (left != 1)}"


def repeats_left(status: JobStatus) -> int:
    """The largest number of repeats that a job still needs."""
    if not status.measurement:
        return status.job.plan.protocol.repeats
    result = status.measurement.result
    return 0 if result.ended_by else result.protocol.repeats - len(result.complete_repeats)
