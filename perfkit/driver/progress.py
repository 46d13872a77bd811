"""Progress of a measurement: a bar in a terminal or in a notebook cell's output, lines in a
log."""

import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Self, TextIO

from tqdm import tqdm

WIDTH = 79
SECONDS_BETWEEN = 0.5
LINE_SECONDS = 15
"""Seconds between two lines in a log, or 5 % of the time so far if that is more."""


class Lines:
    """Receives the states of a bar and writes some of them to a log as lines."""

    def __init__(self, log: TextIO) -> None:
        self.log = log
        self.began = self.written = time.monotonic()

    def write(self, text: str) -> None:
        state, now = text.rpartition("\r")[2].strip(), time.monotonic()
        if state and now - self.written >= max(LINE_SECONDS, (now - self.began) / 20):
            self.written = now
            with suppress(OSError):
                print(state, file=self.log, flush=True)

    def flush(self) -> None:
        pass


def round_order(variants: Sequence[Any], repeat: int) -> Sequence[Any]:
    """Return the variants in the order of a round. Every second round is reversed, so that a
    machine that becomes steadily faster or slower favors no variant."""
    return variants[:: 1 if repeat % 2 else -1]


def terminal_or_log() -> TextIO | Lines:
    """Return where a bar writes: standard error or, if that is no terminal, Lines."""
    return sys.stderr if sys.stderr.isatty() else Lines(sys.stderr)


class _Bar(tqdm):
    """A bar whose time left is limited by a budget, in seconds."""

    # No extra thread and no semaphore during the measurement.
    monitor_interval = 0
    _lock = threading.RLock()
    budget: int | None = None

    @property
    def format_dict(self) -> dict[str, Any]:
        shown = super().format_dict
        left, done = None, self.n - self.initial
        if done > 0 and self.total:
            left = shown["elapsed"] * (self.total - self.n) / done
            if self.budget:
                left = min(left, max(0.0, self.budget - shown["elapsed"]))
        shown["left"] = "--:--" if left is None else self.format_interval(left)
        return shown


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
        self.shown = ("", 0)

    def __enter__(self) -> Self:
        ipython = sys.modules.get("IPython")
        self.in_kernel = ipython is not None and hasattr(ipython.get_ipython(), "kernel")
        self.bar = _Bar(
            total=self.repeats * len(self.variants) * self.steps,
            # Notebooks render standard error as a warning.
            file=sys.stdout if self.in_kernel else terminal_or_log(),
            bar_format="{desc} |{bar}| {left} left",
            desc="starting",
            ncols=WIDTH,
            ascii=True,
            miniters=0,
            mininterval=SECONDS_BETWEEN,
        )
        self.bar.budget = self.budget
        return self

    def __exit__(self, *_: object) -> None:
        if self.in_kernel:
            from IPython.display import clear_output

            # Viewers other than JupyterLab show every stored state as a line: keep the last.
            clear_output(wait=True)
        self.bar.close()

    def show_status(self, text: str) -> None:
        """Show `text` before the first repeat."""
        self._show(text, self.bar.n)

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
        known = self.throughputs.get(self.variant)
        # Before the window's first step, the rate is that of the variant's last repeat.
        of = "" if throughput else "last "
        rate = f"{of}{known:.4g} {self.unit}" if known else f"- {self.unit}"
        at = f"step {step}/{self.steps}" if step else "starting"
        at = f"warm-up step {warmup_step}" if warmup_step else at
        text = f"repeat {repeat}/{self.repeats} {at} {rate}"
        order = round_order(self.variants, repeat)
        before = (repeat - 1) * len(order) + order.index(self.variant)
        self.bar.total = self.repeats * len(self.variants) * self.steps
        if not self.throughputs and not step:
            # Repeats of an earlier run do not predict the time left.
            self.bar.initial = self.bar.n = before * self.steps
        self._show(f"{self.variant:.24} {text}".lstrip(), before * self.steps + step, last)

    def _show(self, text: str, done: int, last: bool = False) -> None:
        # papermill prints every state; in a terminal, the time left is kept up to date.
        if self.bar.disable or (self.in_kernel and (text, done) == self.shown):
            return
        if self.in_kernel:
            # The notebook stores every line: update less often in long measurements.
            self.bar.mininterval = max(1.0, self.bar.format_dict["elapsed"] / 100)
        self.bar.set_description_str(text, refresh=False)
        is_shown = self.bar.update(done - self.bar.n)
        if last and not is_shown:
            self.bar.refresh()
        if last or is_shown:
            self.shown = (text, done)
