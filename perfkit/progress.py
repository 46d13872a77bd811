"""Progress of a measurement: one line of text, in the notebook and in the terminal."""

import contextlib
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
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
    is at most a `budget` of seconds."""

    repeats: int
    steps: int
    unit: str
    budget: int | None = None

    def __enter__(self) -> Self:
        self.terminal = terminal()
        self._write_terminal("\n")
        self.display = notebook_display()
        self.displayed = False
        self.throughput: float | None = None
        self.began = time.monotonic()
        self.finished_repeats: list[float] = []
        self.shown_at = -SECONDS_BETWEEN
        return self

    def __exit__(self, *_: object) -> None:
        self._write_terminal("\n")
        if self.terminal:
            self.terminal.close()

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
            self.finished_repeats.append(repeat_seconds)
        now = time.monotonic()
        if not last and now - self.shown_at < SECONDS_BETWEEN:
            return
        self.shown_at = now
        self.throughput = throughput or self.throughput
        rate = f"{self.throughput:.4g} {self.unit}" if self.throughput else f"- {self.unit}"
        text = f"repeat {repeat}/{self.repeats} step {step}/{self.steps} {rate}"
        done = (repeat - 1) * self.steps + step
        total = self.repeats * self.steps
        remaining = self._remaining(repeat, step, repeat_seconds)
        if remaining is not None and self.budget:
            remaining = min(remaining, max(0.0, self.budget - (now - self.began)))
        self._write(line(done, total, now - self.began, remaining, text))

    def _remaining(self, repeat: int, step: int, repeat_seconds: float) -> float | None:
        """Seconds left, from the mean repeat so far or, in the first one, from its steps."""
        after_this = self.repeats - repeat
        if self.finished_repeats:
            mean = sum(self.finished_repeats) / len(self.finished_repeats)
            this_one = 0.0 if step == self.steps else max(0.0, mean - repeat_seconds)
            return this_one + after_this * mean
        if not step:
            return None
        whole = repeat_seconds * self.steps / step
        return whole - repeat_seconds + after_this * whole

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
