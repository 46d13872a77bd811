"""Progress of a measurement, or of other work, as one line: what it says, and how often. In a
log it is a new line now and then; on a terminal and in a notebook, live.py draws it.

Nothing starts a thread or a timer: a line is written only while the caller reports a state, so
that nothing runs beside a measured window.
"""

import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from math import inf
from typing import Any, NamedTuple, Self

from perfkit.measuring.format import number

LOG_SECONDS = 15
"""Seconds between two lines in a log, or 5 % of the time so far if that is more."""


def round_order(variants: Sequence[Any], repeat: int) -> Sequence[Any]:
    """Return the variants in the order of a round. Every second round is reversed, so that a
    machine that becomes steadily faster or slower favors no variant."""
    return variants[:: 1 if repeat % 2 else -1]


class ProgressLine(NamedTuple):
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

    def __str__(self) -> str:
        if self.share is None:
            return self.text
        return f"{self.text}, {self.share:.0%}, {self.time_left} left"


class Display(ABC):
    """Shows the states of some work, but waits between two of them."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.shown_at = -inf

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def show(self, state: ProgressLine, *, at_once: bool = False) -> None:
        """Show `state` if the last one has been shown long enough, or `at_once`."""
        now = time.monotonic()
        if at_once or now - self.shown_at >= self.shortest_pause(now - self.began):
            self.shown_at = now
            # A terminal that was closed, or a full disk, does not end the work.
            with suppress(OSError):
                self.write(state)

    @abstractmethod
    def shortest_pause(self, elapsed: float) -> float:
        """Return the seconds between two states after `elapsed` seconds."""

    @abstractmethod
    def write(self, state: ProgressLine) -> None:
        """Replace what is shown by `state`, or add it to a log."""

    @abstractmethod
    def print(self, text: str) -> None:
        """Print other text, which stays."""


class LogDisplay(Display):
    """Writes lines to standard error."""

    def __init__(self) -> None:
        super().__init__()
        self.shown_at = self.began

    def shortest_pause(self, elapsed: float) -> float:
        return max(LOG_SECONDS, elapsed / 20)

    def show(self, state: ProgressLine, *, at_once: bool = False) -> None:
        super().show(state)

    def write(self, state: ProgressLine) -> None:
        print(state, file=sys.stderr, flush=True)

    def print(self, text: str) -> None:
        print(text, end="", file=sys.stderr, flush=True)


def display() -> Display:
    """Return the display for where this process writes."""
    ipython = sys.modules.get("IPython")
    if ipython is not None and hasattr(ipython.get_ipython(), "kernel"):
        from perfkit.measuring.driver.live import NotebookDisplay

        return NotebookDisplay()
    # Not rich's own test, which takes FORCE_COLOR in a CI for a terminal.
    if sys.stderr.isatty() and os.environ.get("TERM") not in ("dumb", "unknown"):
        from perfkit.measuring.driver.live import TerminalDisplay

        return TerminalDisplay()
    return LogDisplay()


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
        self.display.show(ProgressLine(self.label, share, left), at_once=share == 1)


class RepeatsProgress:
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
        self.row = ProgressLine("starting", 0.0)

    def __enter__(self) -> Self:
        self.began = time.monotonic()
        self.display = display()
        self.display.__enter__()
        self._show("starting")
        return self

    def __exit__(self, *_: object) -> None:
        self.display.show(self.row, at_once=True)
        self.display.__exit__()

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
        """Return the variant's throughput; before the window's first step, that of its last
        repeat."""
        throughput = self.throughputs.get(self.variant)
        if throughput is None:
            return f"- {self.unit}"
        last = "" if has_window_begun else "last "
        return f"{last}{number(throughput)} {self.unit}"

    def _show(self, text: str, *, at_once: bool = False) -> None:
        self.row = ProgressLine(text, self.share, self._seconds_left())
        self.display.show(self.row, at_once=at_once)

    def _seconds_left(self) -> float | None:
        elapsed = time.monotonic() - self.began
        share_of_this_run = self.share - self.share_before
        if share_of_this_run <= 0:
            return None
        left = elapsed * (1 - self.share) / share_of_this_run
        return min(left, max(0.0, self.budget - elapsed)) if self.budget else left
