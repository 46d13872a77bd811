"""Steps with the seconds that they took, by a log's printed times or the clock of its lines."""

from typing import Any, Literal, NamedTuple

import numpy as np

from perfkit.audit.figure import MOST_RATE, Period, StepTime
from perfkit.audit.log import Columns

Basis = Literal["printed", "clock"]
PRINTED_TIMES = 1e-9
"""Relative error that printed times may have got by computing with them."""
LEAST_DIGITS = 0.005
"""Half a unit of the last digit of a printed time, at most: of two digits behind the point."""


class Timed(NamedTuple):
    """Stretches of steps, in arrays with a value for each stretch.

    A stretch reaches from step `first` to step `last` of an epoch and is told by `line`;
    `samples` are those of all devices, `device_samples` those of one, nan if unknown. Rounding
    may move the seconds of a stretch by `rounding`, and their sum by the share `sum_rounding`.
    `prints` is the number of lines. Where a clock `is_coarse`, it has equal readings at several
    lines, of which a stretch joins the windows.
    """

    basis: Basis
    line: np.ndarray
    first: np.ndarray
    last: np.ndarray
    seconds: np.ndarray
    samples: np.ndarray
    device_samples: np.ndarray
    rounding: np.ndarray
    sum_rounding: float
    prints: int
    is_coarse: bool = False

    @property
    def steps(self) -> np.ndarray:
        return self.last - self.first + 1

    @property
    def step_seconds(self) -> np.ndarray:
        return self.seconds / self.steps

    @property
    def mean_seconds(self) -> float:
        """Sum of all seconds / number of all steps."""
        return float(self.seconds.sum() / self.steps.sum())

    @property
    def median_seconds(self) -> float:
        """Median over the stretches of the time of a step."""
        return float(np.median(self.step_seconds))

    @property
    def median_rounding(self) -> float:
        return float(np.median(self.rounding / self.seconds))

    def extent(self) -> dict[str, Any]:
        """Return the steps that are covered, as fields of a figure."""
        return {
            "first": int(self.first.min()),
            "last": int(self.last.max()),
            "steps": int(self.steps.sum()),
            "prints": self.prints,
        }

    def of_update(self, period: Period, batches: int) -> StepTime:
        """Return the seconds of an update of several batches, which are the steps here."""
        extent = self.extent()
        return StepTime(
            period=period,
            basis=self.basis,
            mean_seconds=self.mean_seconds * batches,
            clock_rounding=self.sum_rounding if self.basis == "clock" else None,
            median_seconds=self.median_seconds * batches,
            first=(extent["first"] - 1) // batches + 1,
            last=extent["last"] // batches,
            steps=extent["steps"] // batches,
            prints=self.prints,
        )


def half_unit(values: Any, relative: float = 1e-15) -> float:
    """Return half a unit of the last digit to which all values were printed, within `relative`:
    0.005 for 1.25 and 3.5; 0 for values with all digits."""
    finite = np.asarray(values, float)
    finite = finite[np.isfinite(finite)][:1000]
    for digits in range(13):
        errors = np.abs(finite - np.round(finite, digits))
        if np.all(errors <= relative * np.abs(finite)):
            return 0.5 * 10.0**-digits
    return 0.0


def by_printed_times(
    rows: Columns, seconds: np.ndarray, *, is_difference: bool
) -> Timed | None:
    """Return the windows with these seconds; None if none has a time. Rounding moves the
    difference of two means (`is_difference`) by all steps before."""
    is_timed = np.isfinite(seconds) & (seconds > 1 / MOST_RATE)
    if not is_timed.any():
        return None
    printed = rows["printed_seconds"] if np.isfinite(rows["seconds"]).any() else seconds
    # Times of 1.00 s are no whole seconds.
    half = min(half_unit(printed, PRINTED_TIMES), LEAST_DIGITS)
    if printed is seconds:
        # Only rates are printed: their digits round the seconds.
        rounding = half_unit(rows["rate"]) / np.nanmedian(rows["rate"])
        half = float(rounding * np.nanmedian(seconds / rows["steps"]))
    steps = rows["steps"][is_timed]
    own_steps = rows["last"][is_timed] - rows["since"][is_timed] + 1
    # Rounding of all values may go in the same direction.
    rounded = 2 * own_steps if is_difference else steps
    seconds = seconds[is_timed]
    return Timed(
        basis="printed",
        line=rows["line"][is_timed],
        first=rows["first"][is_timed],
        last=rows["last"][is_timed],
        seconds=seconds,
        samples=rows["samples_of_step"][is_timed] * steps,
        device_samples=rows["device_samples_of_step"][is_timed] * steps,
        rounding=half * (2 * rows["last"][is_timed] if is_difference else steps),
        sum_rounding=float(half * rounded.sum() / seconds.sum()),
        prints=len(seconds),
    )


def by_clock(rows: Columns) -> Timed | None:
    """Return the stretches between two readings of the lines' clock that differ; None without
    any. `rows` are windows with the reading of the line before."""
    first, last, seconds = rows["since"], rows["last"], rows["clock_seconds"]
    if not (seconds > 0).any():
        return None
    starts = _starts(first, last, seconds)
    ends = np.append(starts[1:], len(seconds)) - 1
    steps = last - first + 1
    sums = {
        name: np.add.reduceat(values, starts)
        for name, values in {
            "seconds": seconds,
            "samples": rows["samples_of_step"] * steps,
            "device_samples": rows["device_samples_of_step"] * steps,
        }.items()
    }
    takes_time = sums["seconds"] > 0
    first, last = first[starts][takes_time], last[ends][takes_time]
    sums = {name: values[takes_time] for name, values in sums.items()}
    # The line of the window that ends at a new reading.
    lines = np.where(seconds > 0, rows["line"], 0)
    half = 2 * half_unit(rows["at"])
    # Each contiguous stretch has two readings of its own.
    breaks = np.count_nonzero(first[1:] != last[:-1] + 1)
    return Timed(
        basis="clock",
        line=np.maximum.reduceat(lines, starts)[takes_time],
        first=first,
        last=last,
        **sums,
        rounding=np.full(len(first), half),
        sum_rounding=float((breaks + 1) * half / sums["seconds"].sum()),
        prints=int((ends - starts + 1)[takes_time].sum()),
        is_coarse=len(starts) < len(seconds),
    )


def _starts(first: np.ndarray, last: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """Return where stretches begin that each have a single window that takes time: windows of 0
    seconds, between two equal readings of a clock, belong to the one before or, at the
    beginning, to the next one. Windows that don't follow each other stay apart."""
    follows = np.append(False, first[1:] == last[:-1] + 1)
    passes = seconds > 0
    passed: np.ndarray = np.cumsum(passes) - passes
    passed_at_begin = np.maximum.accumulate(np.where(follows, 0, passed))
    return np.flatnonzero(~follows | (passes & (passed > passed_at_begin)))
