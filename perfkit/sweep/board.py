"""What is seen of a sweep in the terminal."""

from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from perfkit.config import portable
from perfkit.results.store import Measurement
from perfkit.sweep.engine import Standing
from perfkit.sweep.estimate import repeats_left, seconds_left
from perfkit.text.format import number

STATES = ("failed", "running", "done", "waiting")
STYLES = {"failed": "red", "running": "cyan", "done": "green", "waiting": "dim"}
LABEL_WIDTH = 44
FRAME_LINES = 5
"""Lines of the terminal that are not a job's: title, heading, what is left out, the prompt."""


class Board:
    """Shows how it stands: a table that is kept up to date on a terminal, elsewhere a line for
    each job that has ended. Time left counts the jobs one after another if `in_turn`."""

    def __init__(self, console: Console, name: str, *, in_turn: bool) -> None:
        self.console = console
        self.name = name
        self.in_turn = in_turn
        self.told: set[str] = set()
        self.live = Live(console=console, auto_refresh=False) if console.is_terminal else None

    def __enter__(self) -> Self:
        if self.live:
            self.live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.live:
            self.live.stop()

    def say(self, text: str) -> None:
        self.console.print(Text(text))

    def show(self, standings: list[Standing], *, over: bool = False) -> None:
        """Show how it stands; when it is `over`, for the last time."""
        if self.live:
            title = headline(self.name, standings, in_turn=self.in_turn, over=over)
            most = max(3, self.console.height - FRAME_LINES)
            self.live.update(Group(Text(title), *table(standings, most)), refresh=True)
            return
        for one in standings:
            if one.state in ("done", "failed") and one.job.name not in self.told:
                self.told.add(one.job.name)
                count = f"{len(self.told)}/{len(standings)}"
                words = f"{count} {one.state:7} {one.job.label}: {_result(one)}"
                self.console.print(Text(words), soft_wrap=True)


def headline(name: str, standings: list[Standing], *, in_turn: bool, over: bool = False) -> str:
    """How many jobs are in which state, and the time that is left."""
    counts = Counter(one.state for one in standings)
    words = [
        f"{counts[state]} {state}" for state in ("done", "failed", "running") if counts[state]
    ]
    text = f"{name}: {', '.join(words) or 'starting'} of {len(standings)}"
    jobs = [one.job for one in standings if one.state in ("running", "waiting")]
    if not jobs:
        return text if over else f"{text}; writing the report"
    left = seconds_left(jobs, _found(standings))
    if left is None:
        return f"{text}; time left is known after the first repeat"
    return f"{text}; about {duration(left)} of measuring left" + ("" if in_turn else ", in sum")


def table(standings: list[Standing], most: int) -> list[Table | Text]:
    """The jobs that matter now, at most so many: what failed and what runs, then what is done,
    then what waits; in the order of the file."""
    by_state = sorted(standings, key=lambda one: STATES.index(one.state))
    chosen = {one.job.name for one in by_state[:most]}
    shown = Table(box=None, pad_edge=False, header_style="bold", expand=True)
    shown.add_column("configuration", max_width=LABEL_WIDTH, no_wrap=True)
    for heading in ("state", "repeats"):
        shown.add_column(heading, min_width=len("running"), no_wrap=True)
    shown.add_column("result", ratio=1, no_wrap=True)
    for one in standings:
        if one.job.name in chosen:
            left = repeats_left(one.job, _found([one]))
            done = len(one.measurement.result.complete_repeats) if one.measurement else 0
            state = Text(one.state, style=STYLES[one.state])
            shown.add_row(
                Text(one.job.label), state, f"{done}/{done + left}", Text(_result(one))
            )
    hidden = Counter(one.state for one in standings if one.job.name not in chosen)
    more = ", ".join(f"{count} {state}" for state, count in hidden.items())
    return [shown, *([Text(f"and {more}", style="dim")] if more else [])]


def tell_failures(console: Console, standings: list[Standing]) -> None:
    """Print what failed, why, and what to type to try it alone."""
    failed = [one for one in standings if one.state == "failed"]
    console.print(f"{len(failed)} of {len(standings)} failed. To try one alone:")
    for one in failed:
        console.print(Text(f"{one.job.label}: {one.reason}", style="red"))
        # In one line, however long, to be copied.
        console.print(Text(f"  {one.job.command}"), soft_wrap=True)


def planned(standings: list[Standing], *, in_turn: bool) -> Group:
    """What a sweep would run, what is done, and how long it would take."""
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("configuration", "would be", "result"):
        shown.add_column(heading, overflow="fold")
    for one in standings:
        done = one.state == "done"
        left = repeats_left(one.job, _found([one]))
        verb = "run again" if one.state == "failed" else "run"
        state = "left as it is" if done else f"{verb}, {left} repeat{'s' * (left != 1)}"
        shown.add_row(Text(one.job.label), state, Text(_result(one)))
    jobs = [one.job for one in standings if one.state != "done"]
    seconds = seconds_left(jobs, _found(standings))
    time_needed = "unknown until one of its kind is measured"
    if seconds is not None:
        time_needed = f"about {duration(seconds)}" + ("" if in_turn else ", in sum")
    missing = {str(one.sample_file) for one in jobs if one.sample_file}
    made = sorted(portable(file) for file in missing if not Path(file).exists())
    if made:
        time_needed += f"; sample data would be made: {', '.join(made)}"
    count = f"{len(jobs)} of {len(standings)} would run; time: {time_needed}"
    return Group(shown, Text(count if jobs else f"all {len(standings)} are measured already"))


def _found(standings: list[Standing]) -> dict[str, Measurement]:
    return {one.job.name: one.measurement for one in standings if one.measurement}


def _result(one: Standing) -> str:
    if one.state == "failed":
        return one.reason
    stored = one.measurement.result.throughput if one.measurement else None
    return f"{number(stored.value)} {stored.unit}" if stored else ""


def duration(seconds: float) -> str:
    """A time as a person says it: 50 s, 12 min, 3 h 20 min."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"
