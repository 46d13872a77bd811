"""Progress of a measurement, or of other work, on one line: a terminal and a notebook replace
it, a log gets a new one now and then.

Nothing starts a thread or a timer: a line is written only while the caller reports a state, so
that nothing runs beside a measured window.
"""

import shutil
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from math import inf
from typing import Any, Self

from perfkit.measuring.format import number


def round_order(variants: Sequence[Any], repeat: int) -> Sequence[Any]:
    """Return the variants in the order of a round. Every second round is reversed, so that a
    machine that becomes steadily faster or slower favors no variant."""
    return variants[:: 1 if repeat % 2 else -1]


class Display:
    """Shows the newest state of some work: writes it to a log, unless it wrote another one
    within `seconds` or within a `share` of the time so far."""

    seconds = 15.0
    share = 0.05

    def __init__(self) -> None:
        self.began = self.shown_at = time.monotonic()
        self.newest = self.shown = ""

    def show(self, state: str) -> None:
        self.newest = state
        now = time.monotonic()
        pause = max(self.seconds, self.share * (now - self.began))
        if now - self.shown_at >= pause:
            self.shown_at = now
            self.show_newest()

    def show_newest(self) -> None:
        """Show the newest state, unless it is shown already."""
        if self.newest != self.shown:
            self.shown = self.newest
            self.draw(self.newest)

    def close(self) -> None:
        """End the display."""

    def draw(self, state: str) -> None:
        self.print(state)

    def print(self, line: str) -> None:
        """Print a line, which stays."""
        self.write(f"{line}\n")

    def write(self, text: str) -> None:
        # A terminal that was closed, or a full disk, does not end the work.
        with suppress(OSError):
            sys.stderr.write(text)
            sys.stderr.flush()


class TerminalDisplay(Display):
    """Keeps the newest state as the last line of a terminal."""

    seconds, share = 0.5, 0.0

    def __init__(self) -> None:
        super().__init__()
        self.shown_at = -inf

    def close(self) -> None:
        self.show_newest()
        if self.shown:
            self.write("\n")

    def draw(self, state: str) -> None:
        width = shutil.get_terminal_size().columns - 1
        self.write(f"\r{state[:width]:{width}}")

    def print(self, line: str) -> None:
        width = shutil.get_terminal_size().columns - 1
        self.write(f"\r{line:{width}}\n")
        if self.shown:
            self.draw(self.shown)


class NotebookDisplay(Display):
    """Replaces the output of the cell, so that the stored notebook keeps only the newest state.
    Papermill's log has all that are drawn: fewer in a long measurement."""

    seconds, share = 1.0, 0.01

    def __init__(self) -> None:
        super().__init__()
        self.shown_at = -inf

    def close(self) -> None:
        self.show_newest()

    def draw(self, state: str) -> None:
        from IPython.display import clear_output

        clear_output(wait=True)
        # The carriage return tells KernelOutput that this is no other text.
        self.print(f"\r{state}")

    def write(self, text: str) -> None:
        # Not to standard error, which notebooks show as a warning.
        print(text, end="", flush=True)


def display() -> Display:
    """Return the display for where this process writes."""
    ipython = sys.modules.get("IPython")
    if ipython is not None and hasattr(ipython.get_ipython(), "kernel"):
        return NotebookDisplay()
    return TerminalDisplay() if sys.stderr.isatty() else Display()


class KernelOutput:
    """A file for the standard output of a notebook's kernel: shows the states of its
    NotebookDisplay in this process's display, and prints other text."""

    def __enter__(self) -> Self:
        self.display = display()
        return self

    def __exit__(self, *_: object) -> None:
        self.display.close()

    def write(self, text: str) -> None:
        for line in text.split("\n"):
            if line.startswith("\r"):
                self.display.show(line.strip())
            elif line:
                self.display.print(line)

    def flush(self) -> None:
        pass


class Progress:
    """Shows a state of some work, its completed share and the time left, which is estimated
    from this share and is at most `budget` seconds."""

    def __init__(self, label: str, budget: int | None = None) -> None:
        self.label, self.budget = label, budget
        self.share = self.share_before = 0.0

    def __enter__(self) -> Self:
        self.began = time.monotonic()
        self.display = display()
        self.update(self.label, 0.0)
        return self

    def __exit__(self, *_: object) -> None:
        self.display.close()

    def update(self, text: str, share: float) -> None:
        self.share = share
        self.display.show(f"{text}, {share:.0%}, {self._time_left()} left")

    def _time_left(self) -> str:
        elapsed = time.monotonic() - self.began
        share_of_this_run = self.share - self.share_before
        if share_of_this_run <= 0:
            return "-:--:--"
        seconds = elapsed * (1 - self.share) / share_of_this_run
        if self.budget:
            seconds = min(seconds, max(0.0, self.budget - elapsed))
        return str(timedelta(seconds=round(seconds)))


class Bar(Progress):
    """Shows how much of `total` is done."""

    def __init__(self, label: str, total: int) -> None:
        super().__init__(label)
        self.total, self.done = total, 0

    def advance(self, count: int) -> None:
        self.done += count
        self.update(self.label, self.done / self.total if self.total else 1.0)


class RepeatsProgress(Progress):
    """Shows the progress of `repeats` with `steps` each, which all `variants` run interleaved.
    The time left is estimated from the completed steps."""

    def __init__(
        self,
        repeats: int,
        steps: int,
        unit: str,
        budget: int | None = None,
        variants: list[str] | None = None,
    ) -> None:
        super().__init__("starting", budget)
        self.repeats, self.steps, self.unit = repeats, steps, unit
        self.variants = variants or [""]
        self.variant = self.variants[0]
        self.rates: dict[str, str] = {}

    def show(self, repeat: int, step: int, throughput: float | None, state: str = "") -> None:
        """Show `step` finished steps of `repeat` in the protocol's count, by default in words,
        or the `state` of the repeat in others."""
        if throughput:
            self.rates[self.variant] = f"{number(throughput)} {self.unit}"
        order = round_order(self.variants, repeat)
        repeats_before = (repeat - 1) * len(order) + order.index(self.variant)
        steps_done = repeats_before * self.steps + step
        steps_of_all = self.repeats * len(self.variants) * self.steps
        # A variant that makes no more repeats takes its finished steps along.
        share = max(self.share, steps_done / steps_of_all)
        if not self.rates and not step:
            # Repeats of an earlier run do not predict the time left.
            self.share_before = share
        at = state or (f"step {step}/{self.steps}" if step else "starting")
        rate = self._rate(has_window_begun=bool(throughput))
        text = f"{self.variant:.24} repeat {repeat}/{self.repeats} {at} {rate}"
        self.update(text.lstrip(), share)

    def _rate(self, *, has_window_begun: bool) -> str:
        """Return the variant's throughput; before the window's first step, that of its last
        repeat."""
        rate = self.rates.get(self.variant)
        if rate is None:
            return f"- {self.unit}"
        return rate if has_window_begun else f"last {rate}"
