"""Progress as one line, which is replaced on a terminal and in the output of a notebook's cell,
and written now and then to a log.

Nothing here starts a thread or a timer: a line is written only while the caller reports a
state, so that nothing runs beside a measured window.
"""

import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from io import StringIO
from math import inf
from typing import Any, NamedTuple, Self

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

WIDTH = 79
"""Columns of a line in a notebook or a log."""
TERMINAL_SECONDS = 0.5
NOTEBOOK_SECONDS = 1
LOG_SECONDS = 15
"""Shortest time between two lines, by where they are written."""


def round_order(variants: Sequence[Any], repeat: int) -> Sequence[Any]:
    """Return the variants in the order of a round. Every second round is reversed, so that a
    machine that becomes steadily faster or slower favors no variant."""
    return variants[:: 1 if repeat % 2 else -1]


class Row(NamedTuple):
    """A state of some work: what is being done, the completed share, and the estimated seconds
    left, if known. A row without a share is its text alone."""

    text: str
    share: float | None = None
    seconds_left: float | None = None

    @property
    def time_left(self) -> str:
        if self.seconds_left is None:
            return "--:--"
        minutes, seconds = divmod(round(self.seconds_left), 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes:02}:{seconds:02}"

    def __rich__(self) -> Table | Text:
        text = Text(self.text, no_wrap=True, overflow="ellipsis")
        if self.share is None:
            return text
        grid = Table.grid(expand=True, padding=(0, 1, 0, 0))
        grid.add_column()
        grid.add_column(ratio=1)
        grid.add_column(no_wrap=True)
        bar = ProgressBar(total=1, completed=self.share)
        grid.add_row(text, bar, Text(f"{self.time_left} left"))
        return grid

    def __str__(self) -> str:
        if self.share is None:
            return self.text
        written = StringIO()
        console = Console(
            file=written, width=WIDTH, force_terminal=False, force_jupyter=False, no_color=True
        )
        console.print(self)
        return written.getvalue().rstrip()


class Display:
    """Shows the states of some work, but waits between two of them."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.shown_at = -inf

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, state: Row, *, at_once: bool = False) -> None:
        """Show `state` if the last one has been shown long enough, or `at_once`."""
        now = time.monotonic()
        if at_once or now - self.shown_at >= self.shortest_pause(now - self.began):
            self.shown_at = now
            # A terminal that was closed, or a full disk, does not end the work.
            with suppress(OSError):
                self.write(state)

    def shortest_pause(self, elapsed: float) -> float:
        """The seconds between two states after `elapsed` seconds."""
        raise NotImplementedError

    def write(self, state: Row) -> None:
        raise NotImplementedError

    def print(self, text: str) -> None:
        """Print other text, which stays."""
        raise NotImplementedError


class TerminalDisplay(Display):
    def __init__(self, console: Console) -> None:
        super().__init__()
        self.live = Live(console=console, auto_refresh=False)

    def __enter__(self) -> Self:
        with suppress(OSError):
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self.live.stop()

    def shortest_pause(self, elapsed: float) -> float:
        return TERMINAL_SECONDS

    def write(self, state: Row) -> None:
        self.live.update(state, refresh=True)

    def print(self, text: str) -> None:
        self.live.console.print(Text(text), end="", soft_wrap=True)


class NotebookDisplay(Display):
    """Replaces the output of the cell, so that the stored notebook keeps only the last line.
    Papermill's log has all of them: none twice, and fewer in a long measurement."""

    def __init__(self) -> None:
        super().__init__()
        self.shown: tuple[str, float | None] | None = None

    def show(self, state: Row, *, at_once: bool = False) -> None:
        # Not the time left, which changes each time.
        if (state.text, state.share) != self.shown:
            super().show(state, at_once=at_once)

    def shortest_pause(self, elapsed: float) -> float:
        return max(NOTEBOOK_SECONDS, elapsed / 100)

    def write(self, state: Row) -> None:
        from IPython.display import clear_output

        self.shown = (state.text, state.share)
        clear_output(wait=True)
        # Standard output, because notebooks render standard error as a warning. The carriage
        # return tells KernelOutput that this is no other text.
        print(f"\r{state}", flush=True)


class LogDisplay(Display):
    """Writes lines to standard error."""

    def __init__(self) -> None:
        super().__init__()
        self.shown_at = self.began

    def shortest_pause(self, elapsed: float) -> float:
        return max(LOG_SECONDS, elapsed / 20)

    def show(self, state: Row, *, at_once: bool = False) -> None:
        super().show(state)

    def write(self, state: Row) -> None:
        print(state, file=sys.stderr, flush=True)

    def print(self, text: str) -> None:
        print(text, end="", file=sys.stderr, flush=True)


def display() -> Display:
    """Return the display for where this process writes."""
    ipython = sys.modules.get("IPython")
    if ipython is not None and hasattr(ipython.get_ipython(), "kernel"):
        return NotebookDisplay()
    # Not the console's own test, which takes FORCE_COLOR in a CI for a terminal.
    if sys.stderr.isatty():
        console = Console(stderr=True, force_jupyter=False, highlight=False)
        if not console.is_dumb_terminal:
            return TerminalDisplay(console)
    return LogDisplay()


class KernelOutput:
    """A file for the standard output of a notebook's kernel: shows the states of a
    NotebookDisplay in this process's display, and prints other text."""

    def __enter__(self) -> Self:
        self.display = display()
        self.display.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.display.__exit__()

    def write(self, text: str) -> None:
        printed, mark, state = text.rpartition("\r")
        if not mark:
            printed, state = text, ""
        if printed.strip():
            self.display.print(printed)
        if state.strip():
            self.display.show(Row(state.strip()), at_once=True)

    def flush(self) -> None:
        pass


class Bar:
    """Shows how much of `total` is done."""

    def __init__(self, label: str, total: int) -> None:
        self.label, self.total, self.done = label, total, 0

    def __enter__(self) -> Self:
        self.began = time.monotonic()
        self.display = display()
        self.display.__enter__()
        self.advance(0)
        return self

    def __exit__(self, *_: object) -> None:
        self.display.__exit__()

    def advance(self, count: int) -> None:
        self.done += count
        share = self.done / self.total if self.total else 1.0
        seconds = time.monotonic() - self.began
        left = seconds * (1 - share) / share if share else None
        self.display.show(Row(self.label, share, left), at_once=share == 1)


class Progress:
    """Shows the progress of `repeats` with `steps` each, which all `variants` run interleaved.
    The time left is estimated from the completed steps, at most `budget` seconds."""

    def __init__(
        self,
        repeats: int,
        steps: int,
        unit: str,
        budget: int | None = None,
        variants: list[str] | None = None,
    ) -> None:
        self.repeats, self.steps, self.unit = repeats, steps, unit
        self.budget = budget
        self.variants = variants or [""]
        self.variant = self.variants[0]
        self.throughputs: dict[str, float] = {}
        self.share = self.share_before = 0.0
        self.row = Row("starting", 0.0)

    def __enter__(self) -> Self:
        self.began = time.monotonic()
        self.display = display()
        self.display.__enter__()
        self.show_status("starting")
        return self

    def __exit__(self, *_: object) -> None:
        self.display.show(self.row, at_once=True)
        self.display.__exit__()

    def show_status(self, text: str) -> None:
        """Show `text` before the first repeat."""
        self._show(text)

    def show(
        self,
        repeat: int,
        step: int,
        throughput: float | None,
        *,
        warmup_step: int = 0,
        last: bool = False,
    ) -> None:
        """Show `step` finished steps of `repeat`, or `warmup_step` steps of a warm-up without a
        fixed length; with `last`, at once."""
        if throughput:
            self.throughputs[self.variant] = throughput
        order = round_order(self.variants, repeat)
        repeats_before = (repeat - 1) * len(order) + order.index(self.variant)
        steps_done = repeats_before * self.steps + step
        steps_of_all = self.repeats * len(self.variants) * self.steps
        # A variant that makes no more repeats takes its finished steps along.
        self.share = max(self.share, steps_done / steps_of_all)
        if not self.throughputs and not step:
            # Repeats of an earlier run do not predict the time left.
            self.share_before = self.share
        at = f"step {step}/{self.steps}" if step else "starting"
        if warmup_step:
            at = f"warm-up step {warmup_step}"
        rate = self._rate(has_window_begun=bool(throughput))
        text = f"repeat {repeat}/{self.repeats} {at} {rate}"
        self._show(f"{self.variant:.24} {text}".lstrip(), at_once=last)

    def _rate(self, *, has_window_begun: bool) -> str:
        """The variant's throughput; before the window's first step, that of its last repeat."""
        throughput = self.throughputs.get(self.variant)
        if throughput is None:
            return f"- {self.unit}"
        last = "" if has_window_begun else "last "
        return f"{last}{throughput:.4g} {self.unit}"

    def _show(self, text: str, *, at_once: bool = False) -> None:
        self.row = Row(text, self.share, self._seconds_left())
        self.display.show(self.row, at_once=at_once)

    def _seconds_left(self) -> float | None:
        elapsed = time.monotonic() - self.began
        share_of_this_run = self.share - self.share_before
        if share_of_this_run <= 0:
            return None
        left = elapsed * (1 - self.share) / share_of_this_run
        return min(left, max(0.0, self.budget - elapsed)) if self.budget else left
