"""Progress of a sweep in the terminal, with the remaining time, estimated from measurements."""

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from perfkit.config import portable
from perfkit.request.plan import Plan
from perfkit.results.schema import Result
from perfkit.sweep.engine import JobStatus
from perfkit.text.format import number

STYLES = {"failed": "red", "running": "cyan", "done": "green", "waiting": "dim"}
"""Styles of the states, most important first."""
LABEL_WIDTH = 44
FRAME_LINES = 5
"""Lines of the terminal besides the jobs: title, heading, count of hidden jobs, prompt."""
NOTEBOOK_SECONDS = 5.0
"""Approximate time of a notebook besides its repeats (docs/figures.md)."""
Sample = tuple[float, float]
"""Work of a repeat, and its seconds."""


class Progress:
    """Shows the progress: a live table on a terminal, otherwise a line per finished job. With
    `in_turn`, jobs run one after another, and the time left is wall time."""

    def __init__(self, console: Console, name: str, *, in_turn: bool) -> None:
        self.console = console
        self.name = name
        self.in_turn = in_turn
        self.printed: set[str] = set()
        self.live = Live(console=console, auto_refresh=False) if console.is_terminal else None

    def __enter__(self) -> Self:
        if self.live:
            self.live.start()
        return self

    def __exit__(self, *_error: object) -> None:
        if self.live:
            self.live.stop()

    def notify(self, text: str) -> None:
        self.console.print(Text(text))

    def show(self, statuses: list[JobStatus], *, over: bool = False) -> None:
        """Show the progress, for the last time if the sweep is `over`."""
        if self.live:
            title = headline(self.name, statuses, in_turn=self.in_turn, over=over)
            most = max(3, self.console.height - FRAME_LINES)
            self.live.update(Group(Text(title), *_table(statuses, most)), refresh=True)
            return
        for status in statuses:
            if status.state in ("done", "failed") and status.job.name not in self.printed:
                self.printed.add(status.job.name)
                count = f"{len(self.printed)}/{len(statuses)}"
                words = f"{count} {status.state:7} {status.job.label}: {_result(status)}"
                self.console.print(Text(words), soft_wrap=True)


def headline(name: str, statuses: list[JobStatus], *, in_turn: bool, over: bool = False) -> str:
    """The number of jobs in each state, and the time left."""
    counts = Counter(status.state for status in statuses)
    words = [f"{counts[s]} {s}" for s in ("done", "failed", "running") if counts[s]]
    text = f"{name}: {', '.join(words) or 'starting'} of {len(statuses)}"
    if not counts["running"] + counts["waiting"]:
        return text if over else f"{text}; writing the report"
    left = seconds_left([s for s in statuses if s.state in ("running", "waiting")], statuses)
    if left is None:
        return f"{text}; time left: known after the first repeat"
    return f"{text}; about {duration(left)} of measuring left{'' if in_turn else ' in total'}"


def _table(statuses: list[JobStatus], most: int) -> list[Table | Text]:
    """At most `most` jobs in the order of the file, those of the first STYLES preferred."""
    by_state = sorted(statuses, key=lambda status: [*STYLES].index(status.state))
    chosen = {status.job.name for status in by_state[:most]}
    shown = Table(box=None, pad_edge=False, header_style="bold", expand=True)
    shown.add_column("configuration", max_width=LABEL_WIDTH, no_wrap=True)
    for heading in ("state", "repeats"):
        shown.add_column(heading, min_width=len("running"), no_wrap=True)
    shown.add_column("result", ratio=1, no_wrap=True)
    for status in statuses:
        if status.job.name in chosen:
            done = len(status.measurement.result.complete_repeats) if status.measurement else 0
            repeats = f"{done}/{done + repeats_left(status)}"
            state = Text(status.state, style=STYLES[status.state])
            shown.add_row(Text(status.job.label), state, repeats, Text(_result(status)))
    hidden = Counter(status.state for status in statuses if status.job.name not in chosen)
    more = ", ".join(f"{count} {state}" for state, count in hidden.items())
    return [shown, *([Text(f"and {more}", style="dim")] if more else [])]


def print_failures(console: Console, statuses: list[JobStatus]) -> None:
    """Print the failed jobs with the reason and the command to run each."""
    failed = [status for status in statuses if status.state == "failed"]
    console.print(f"{len(failed)} of {len(statuses)} failed. To run a single job again:")
    for status in failed:
        console.print(Text(f"{status.job.label}: {status.reason}", style="red"))
        # On one line, to be copied.
        console.print(Text(f"  {status.job.command}"), soft_wrap=True)


def planned(statuses: list[JobStatus], *, in_turn: bool) -> Group:
    """List what is done, what would run and how long, and what can't run here and why."""
    pending = [status for status in statuses if status.state != "done"]
    refused = [status for status in pending if status.job.missing]
    reasons = list(dict.fromkeys(status.job.missing for status in refused))
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("configuration", "would be", "result"):
        shown.add_column(heading, overflow="fold")
    for status in statuses:
        left = repeats_left(status)
        verb = "run again" if status.state == "failed" else "run"
        state = f"{verb}, {left} repeat{'s' * (left != 1)}"
        if status.state == "done":
            state = "kept"
        elif status.job.missing:
            state = f"refused here ({reasons.index(status.job.missing) + 1})"
        shown.add_row(Text(status.job.label), state, Text(_result(status)))
    runnable = [status for status in pending if not status.job.missing]
    lines = []
    if not pending:
        lines.append(f"all {len(statuses)} are already measured")
    elif runnable:
        seconds = seconds_left(runnable, statuses)
        time_needed = "unknown before a measurement of the same model and device"
        if seconds is not None:
            time_needed = f"about {duration(seconds)}{'' if in_turn else ' in total'}"
        files = {s.job.sample_file for s in runnable if s.job.sample_file}
        if made := sorted(portable(str(file)) for file in files if not file.exists()):
            time_needed += f"; sample data would be generated: {', '.join(made)}"
        lines.append(f"{len(runnable)} of {len(statuses)} would run; time: {time_needed}")
    if refused:
        lines.append(f"{len(refused)} of {len(statuses)} can't run on this machine:")
        lines += [f"({k}) {reason}" for k, reason in enumerate(reasons, 1)]
    return Group(shown, *map(Text, lines))


def _result(status: JobStatus) -> str:
    if status.state == "failed":
        return status.reason
    stored = status.measurement.result.throughput if status.measurement else None
    return f"{number(stored.value)} {stored.unit}" if stored else ""


def duration(seconds: float) -> str:
    """Format a duration: 50 s, 12 min, 3 h 20 min."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def seconds_left(pending: Iterable[JobStatus], statuses: Iterable[JobStatus]) -> float | None:
    """Estimate the total seconds of the `pending` jobs; None without similar measurements."""
    known: dict[tuple[str, str], list[Sample]] = defaultdict(list)
    for status in statuses:
        if status.measurement:
            result = status.measurement.result
            times = [r.wall_seconds for r in result.complete_repeats if r.wall_seconds]
            known[result.config.model, result.config.device] += [
                (_work(result), seconds) for seconds in times
            ]
    total = 0.0
    for status in pending:
        plan, repeats = status.job.plan, repeats_left(status)
        samples = known[plan.config.model, plan.config.device]
        if repeats and not samples:
            return None
        if repeats:
            seconds = repeats * predicted(_work(plan), samples)
            total += NOTEBOOK_SECONDS + min(seconds, plan.protocol.budget or seconds)
    return total


def repeats_left(status: JobStatus) -> int:
    """The largest number of repeats that a job still needs."""
    if not status.measurement:
        return status.job.plan.protocol.repeats
    result = status.measurement.result
    return 0 if result.ended_by else result.protocol.repeats - len(result.complete_repeats)


def predicted(work: float, samples: list[Sample]) -> float:
    """Seconds for `work` by linear regression; the mean if the samples show no growth."""
    mean = statistics.mean(seconds for _work, seconds in samples)
    if len({work for work, _seconds in samples}) == 1:
        return mean
    slope, start = statistics.linear_regression(*zip(*samples, strict=True))
    return max(0.0, start) + slope * work if slope > 0 else mean


def _work(source: Plan | Result) -> float:
    """Pixels or tokens of a rank in a repeat."""
    size = source.config.sample_size ** (2 if source.config.image_size else 1)
    return float(source.config.samples_per_step * source.protocol.steps * size)
