"""Counts the steps of a log while it is written, and parts its prints into warm-up and
window."""

from math import isfinite, nan
from typing import NamedTuple

from perfkit.audit import general
from perfkit.audit.formats import LogFormat
from perfkit.audit.numbers import number_or_nan
from perfkit.audit.reader import Lines, known_format
from perfkit.timing.job import Job
from perfkit.timing.warmup import WARMUP_SHARE

FEWEST_PRINTS = 5
"""Prints of a window, at least."""
GROWTH = 1.2
"""Growth of the log after which its format is tested again."""


class Print(NamedTuple):
    """The steps up to `last` of which a line tells."""

    last: int
    steps: int
    seconds: float
    line: int
    samples: int = 0
    """those of all devices, once the whole log is read"""
    loss: float = nan
    """NaN without one"""


class Part:
    """The warm-up or the window: the first prints with these steps and seconds together."""

    def __init__(self, steps: int, seconds: float, prints: int) -> None:
        self.needed = (steps, seconds, prints)
        self.prints: list[Print] = []
        self.steps, self.seconds = 0, 0.0

    def add(self, each: Print) -> None:
        self.prints.append(each)
        self.steps += each.steps
        self.seconds += each.seconds

    @property
    def is_covered(self) -> bool:
        steps, seconds, prints = self.needed
        has_steps = self.steps >= steps and self.seconds >= seconds
        return has_steps and len(self.prints) >= prints


class Parts:
    """The prints of warm-up and window, as a job wants them."""

    def __init__(self, job: Job) -> None:
        seconds = job.measured_seconds
        self.warmup = Part(job.warmup_steps, WARMUP_SHARE * seconds, 1)
        self.window = Part(job.measured_steps, seconds, FEWEST_PRINTS)

    def add(self, each: Print) -> None:
        if not self.window.is_covered:
            part = self.window if self.warmup.is_covered else self.warmup
            part.add(each)


class PrintCount:
    """The steps that the lines so far tell of, by arrival. The first print covers an unknown
    number of steps and counts as none."""

    def __init__(self, job: Job) -> None:
        self.parts = Parts(job)
        self.is_enough = False
        """Whether a print has followed warm-up and window, so that their lines are whole."""
        self.count = self.steps = 0
        self.lines: Lines = []
        self.form: LogFormat | None = None
        self.next_test = 1.0
        self.printed_step: float | None = None
        self.last_at: float | None = None

    def add(self, line: str, at: float) -> Print | None:
        """Take a line, and return its print if it tells of further steps."""
        self.count += 1
        if not self.parts.warmup.is_covered:
            self._recognize(line)
        steps = self._steps_of(line)
        if steps is None:
            return None
        self.steps += steps
        seconds = 0.0 if self.last_at is None else at - self.last_at
        self.last_at = at
        new = Print(self.steps, steps, seconds, self.count)
        self.is_enough = self.parts.window.is_covered
        self.parts.add(new)
        return new

    def _recognize(self, line: str) -> None:
        self.lines.append((self.count, line))
        if self.count < self.next_test:
            return
        self.next_test = GROWTH * self.count
        self.form = known_format(self.lines)
        if not self.form or self.form.is_bar:
            self.form = general.format_of(self.lines, are_timed=True) or self.form

    def _steps_of(self, line: str) -> int | None:
        """Return the steps since the print before; None if the line is no further print."""
        match = self.form.match(line) if self.form else None
        if not self.form or not match:
            return None
        if "step" not in self.form.line.groupindex:
            return 0 if self.last_at is None else 1
        step = number_or_nan(match["step"])
        if not isfinite(step):
            return None
        before, self.printed_step = self.printed_step, step
        if before is None:
            return 0
        if step < before:
            # A new epoch: what is between the two does not count.
            self.last_at = None
            return 0
        # Ranks and bars may print a step again.
        return int(step - before) or None
