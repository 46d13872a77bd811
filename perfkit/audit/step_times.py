"""The seconds of a step, by the log's printed times or by its lines' clock."""

from typing import Any, Literal, NamedTuple

import numpy as np

from perfkit.audit.figure import Period, StepTime
from perfkit.audit.log import Columns, some_of


class Stretches(NamedTuple):
    """Stretches of steps, `first` to `last` of an epoch, the seconds of each stretch and the
    number of `windows` that it joins."""

    first: np.ndarray
    last: np.ndarray
    seconds: np.ndarray
    windows: np.ndarray


class TimedSteps(NamedTuple):
    """Stretches of steps, `first` to `last` of an epoch, and the seconds of each stretch, which
    rounding may move by `half`; `prints` is the number of printed lines of all."""

    basis: Literal["printed", "clock"]
    first: np.ndarray
    last: np.ndarray
    seconds: np.ndarray
    prints: int
    half: float

    @classmethod
    def of(
        cls, basis: Literal["printed", "clock"], rows: Columns, seconds: np.ndarray, half: float
    ) -> "TimedSteps":
        """Return the windows whose seconds are known; by a clock, the stretches between two of
        its readings that differ."""
        is_known = np.isfinite(seconds) & (seconds >= 0)
        known = some_of(rows, is_known)
        first, last, seconds = known["first"], known["last"], seconds[is_known]
        if basis == "clock" and len(seconds):
            stretches = between_ticks(first, last, seconds)
            prints = int(stretches.windows.sum())
            return cls(basis, *stretches[:3], prints, half)
        is_timed = seconds > 0
        prints = int(is_timed.sum())
        return cls(basis, first[is_timed], last[is_timed], seconds[is_timed], prints, half)

    @property
    def steps(self) -> int:
        return int((self.last - self.first + 1).sum())

    @property
    def clock_rounding(self) -> float | None:
        """Effect of rounding on the sum of the seconds by a clock, as a share: both readings at
        the ends of steps that follow each other are rounded. None by printed times."""
        if self.basis == "printed":
            return None
        breaks = np.count_nonzero(self.first[1:] != self.last[:-1] + 1)
        return float((breaks + 1) * self.half / self.seconds.sum())

    @property
    def median_rounding(self) -> float:
        """Effect of rounding on the median, as a share."""
        return float(np.median(self.half / self.seconds))

    @property
    def median_seconds(self) -> float:
        """Median over the stretches of the time of a step."""
        steps = self.last - self.first + 1
        return float(np.median(self.seconds / steps))

    def extent(self) -> dict[str, Any]:
        """Return the steps that are covered, as fields of a figure."""
        return {
            "first": int(self.first.min()),
            "last": int(self.last.max()),
            "steps": self.steps,
            "prints": self.prints,
        }

    def of_update(self, period: Period, batches: int) -> StepTime:
        """Return the seconds of an update, given the steps that it takes, batches of it."""
        mean_seconds = float(self.seconds.sum()) / self.steps
        extent = self.extent()
        return StepTime(
            period=period,
            basis=self.basis,
            mean_seconds=mean_seconds * batches,
            clock_rounding=self.clock_rounding,
            median_seconds=self.median_seconds * batches,
            first=(extent["first"] - 1) // batches + 1,
            last=extent["last"] // batches,
            steps=self.steps // batches,
            prints=self.prints,
        )


def between_ticks(first: np.ndarray, last: np.ndarray, seconds: np.ndarray) -> Stretches:
    """Join windows of 0 seconds, between two equal readings of a clock, with the one before or,
    at the beginning, with the next one, and return the stretches that take time: each has a
    single window that does. Windows that don't follow each other stay apart."""
    follows = np.append(False, first[1:] == last[:-1] + 1)
    passes = seconds > 0
    passed: np.ndarray = np.cumsum(passes) - passes
    passed_at_begin = np.maximum.accumulate(np.where(follows, 0, passed))
    is_start = ~follows | (passes & (passed > passed_at_begin))
    starts = np.flatnonzero(is_start)
    ends = np.append(starts[1:], len(seconds)) - 1
    sums = np.add.reduceat(seconds, starts)
    stretches = Stretches(first[starts], last[ends], sums, ends - starts + 1)
    takes_time = sums > 0
    return Stretches(*(values[takes_time] for values in stretches))
