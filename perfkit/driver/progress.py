"""Progress of a measurement: one line of text, in the notebook and in the terminal."""

import contextlib
import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any, Self, TextIO

from tqdm import tqdm

WIDTH = 79
SECONDS_BETWEEN = 0.5


def line(done: int, total: int, elapsed: float, remaining: float | None, text: str) -> str:
    """The bar with `text`, WIDTH columns wide; times in seconds."""
    left = "--:--" if remaining is None else tqdm.format_interval(remaining)
    return tqdm.format_meter(
        done,
        total,
        elapsed,
        ncols=WIDTH,
        bar_format=f"{text} |{{bar}}| {left} left",
        ascii=True,
    )


def terminal() -> TextIO | None:
    """Where the person who started this can see a line: the terminal, or None without one.

    A notebook's kernel has no terminal of its own, but the papermill that started it has
    one, as its standard error. Not so under a Jupyter server, whose terminal is its log.
    """
    if "JPY_SESSION_NAME" in os.environ:
        return None
    in_kernel = "JPY_PARENT_PID" in os.environ
    path = Path(f"/proc/{os.getppid() if in_kernel else 'self'}/fd/2")
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_NOCTTY)
    except OSError:
        return None
    if os.isatty(descriptor):
        return os.fdopen(descriptor, "w")
    os.close(descriptor)
    return None


ANNOUNCED_BY_PARENT = "PERFKIT_ANNOUNCED_BY_PARENT"
"""The variable that `perfkit run` sets, which prints the last lines itself."""


def announce(text: str) -> None:
    """Write a line to the terminal of the papermill that runs this notebook, if there is one;
    its own bar is redrawn below."""
    if "JPY_PARENT_PID" not in os.environ or ANNOUNCED_BY_PARENT in os.environ:
        return
    if stream := terminal():
        with contextlib.suppress(OSError), stream:
            stream.write(f"\n{text}\n")


def notebook_display() -> Any:
    """A display of this notebook's that can be updated, or None outside a kernel."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    if shell is None or not hasattr(shell, "kernel"):
        return None
    return ipython.display.DisplayHandle()  # type: ignore[union-attr]


@dataclass
class Progress:
    """Shows how far `repeats` of `steps` each are; time left is judged by repeats so far, and
    is at most a `budget` of seconds. Of several `sides`, each makes all repeats, in turn."""

    repeats: int
    steps: int
    unit: str
    budget: int | None = None
    sides: list[str] = field(default_factory=lambda: [""])

    def __enter__(self) -> Self:
        self.terminal = terminal()
        self._write_terminal("\n")
        self.display = notebook_display()
        self.displayed = False
        self.throughputs: dict[str, float | None] = {}
        self.began = time.monotonic()
        self.side = self.sides[0]
        self.finished: dict[str, list[float]] = {side: [] for side in self.sides}
        self.shown_at = -SECONDS_BETWEEN
        return self

    def __exit__(self, *_: object) -> None:
        self._write_terminal("\n")
        if self.terminal:
            self.terminal.close()

    def turn_to(self, side: str) -> None:
        """Show what comes as that of `side`."""
        self.side = side

    def leave(self, side: str) -> None:
        """Expect no more repeats of `side`."""
        self.sides.remove(side)

    def say(self, text: str) -> None:
        """Show `text` for what comes before the first repeat."""
        if time.monotonic() - self.shown_at >= SECONDS_BETWEEN:
            self.shown_at = time.monotonic()
            self._write(f"{text[:WIDTH]:{WIDTH}}")

    def show(
        self,
        repeat: int,
        step: int,
        throughput: float | None,
        repeat_seconds: float,
        *,
        last: bool = False,
    ) -> None:
        """Show that `repeat` has finished `step` steps in `repeat_seconds`."""
        if last:
            self.finished[self.side].append(repeat_seconds)
        now = time.monotonic()
        if not last and now - self.shown_at < SECONDS_BETWEEN:
            return
        self.shown_at = now
        shown = throughput or self.throughputs.get(self.side)
        self.throughputs[self.side] = shown
        rate = f"{shown:.4g} {self.unit}" if shown else f"- {self.unit}"
        text = f"repeat {repeat}/{self.repeats} step {step}/{self.steps} {rate}"
        text = f"{self.side:.24} {text}".lstrip()
        before = (repeat - 1) * len(self.sides) + self.sides.index(self.side)
        done = before * self.steps + step
        total = self.repeats * len(self.sides) * self.steps
        remaining = self._remaining(repeat, step, repeat_seconds)
        if remaining is not None and self.budget:
            remaining = min(remaining, max(0.0, self.budget - (now - self.began)))
        self._write(line(done, total, now - self.began, remaining, text))

    def _remaining(self, repeat: int, step: int, repeat_seconds: float) -> float | None:
        """Seconds left, from the mean repeat of each side so far or, in its first one, from the
        steps of this."""
        means = {side: mean(of) for side in self.sides if (of := self.finished[side])}
        if self.side not in means and step:
            means[self.side] = repeat_seconds * self.steps / step
        if not means:
            return None
        usual = mean(means.values())
        this_one = means.get(self.side, usual) - repeat_seconds
        left = 0.0 if step == self.steps else max(0.0, this_one)
        here = self.sides.index(self.side)
        for position, side in enumerate(self.sides):
            left += (self.repeats - repeat + (position > here)) * means.get(side, usual)
        return left

    def _write_terminal(self, text: str) -> None:
        """Write to the terminal, and do without it once it has been closed."""
        if self.terminal:
            try:
                self.terminal.write(text)
                self.terminal.flush()
            except OSError:
                with contextlib.suppress(OSError):
                    self.terminal.close()
                self.terminal = None

    def _write(self, text: str) -> None:
        self._write_terminal(f"\r{text}")
        if self.display:
            show = self.display.update if self.displayed else self.display.display
            show({"text/plain": text}, raw=True)
            self.displayed = True
