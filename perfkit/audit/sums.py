"""What statistics over a period of a log need, summed up block by block."""

from dataclasses import dataclass, field

import numpy as np

from perfkit.audit.blocks import Block, inside
from perfkit.audit.floats import Floats
from perfkit.audit.stored import Period
from perfkit.importers.log import Log, Running

SKIPPED_AT_MOST = 100
"""Suites that drop a warm-up drop at most so many prints."""


@dataclass
class Sums:
    """What statistics over a period need, summed up block by block."""

    period: Period
    log: Log
    chosen: tuple[int, int] | None
    prints: int = 0
    steps: int = 0
    epochs: int = 0
    epoch: int = -1
    """The last one, with its run."""
    first: int = 0
    last: int = 0
    timed: int = 0
    seconds: float = 0.0
    reach: int = 0
    """Steps over which times of running means were multiplied, for what rounding does to it."""
    waited: float = 0.0
    waited_of: float = 0.0
    clocked: int = 0
    clock_first: int = 0
    clock_last: int = 0
    clock_seconds: float = 0.0
    clocks: int = 0
    rates: int = 0
    rated: int = 0
    sum_of_rates: float = 0.0
    sum_of_inverses: float = 0.0
    seconds_by_rate: float = 0.0
    highest: float = 0.0
    first_rate: float = 0.0
    last_rate: float = 0.0
    head: list[float] = field(default_factory=list)
    every_rate: Floats = field(default_factory=Floats)
    took: float = 0.0
    """By its printed times or, where they are none, by its rates: of all prints, and of the one
    that took longest, with its line and steps."""
    longest: float = 0.0
    longest_line: int = 0
    longest_steps: int = 0
    rate_unit: float = 0.0
    time_unit: float = 0.0
    clock_unit: float = 0.0

    def add(self, block: Block) -> None:
        mask = inside(self.period, block, block.rows["first"], self.chosen)
        if not mask.any():
            return
        # A copy of so many rows takes time.
        rows = block.rows if mask.all() else block.rows[mask]
        steps = rows["last"] - rows["first"] + 1
        self.first = min(self.first or rows["first"][0], int(rows["first"].min()))
        self.last = max(self.last, int(rows["last"].max()))
        epochs = (rows["run"].astype("i8") << 32) + rows["epoch"]
        self.epochs += int(np.count_nonzero(np.diff(epochs, prepend=self.epoch)))
        self.epoch = int(epochs[-1])
        self.prints += len(rows)
        self.steps += int(steps.sum())
        self._add_times(block, mask, rows, steps)
        self._add_longest(rows, steps)
        self._add_rates(rows["rate"])
        own = usable(rows["own_rate"])
        self.rated += int(steps[own].sum())
        self.seconds_by_rate += float((steps[own] / rows["own_rate"][own]).sum())
        self._add_clock(block)

    def _add_times(
        self, block: Block, mask: np.ndarray, rows: np.ndarray, steps: np.ndarray
    ) -> None:
        self.reach += int(self._reach(block)[mask].sum())
        # Rounding may turn the difference of two running means negative; its sum is right.
        timed = np.isfinite(rows["seconds"])
        if not timed.any():
            return
        if not self.timed:
            self.time_unit = half_unit(_printed_times(self.log, block)[mask][timed], 1e-9)
        self.timed += int(steps[timed].sum())
        self.seconds += float(rows["seconds"][timed].sum())
        told = timed & np.isfinite(rows["reader"])
        waited = float(rows["reader"][told].sum())
        self.waited += waited
        self.waited_of += float(rows["seconds"][told].sum())
        if self.log.meaning.reader != "in":
            self.waited_of += waited

    def _add_longest(self, rows: np.ndarray, steps: np.ndarray) -> None:
        if self.timed:
            times = rows["seconds"]
        else:
            with np.errstate(divide="ignore", invalid="ignore"):
                times = steps / rows["own_rate"]
        times = np.where(np.isfinite(times), times, 0.0)
        self.took += float(times.sum())
        at = int(np.argmax(times))
        if times[at] > self.longest:
            self.longest, self.longest_line = float(times[at]), int(rows["line"][at])
            self.longest_steps = int(steps[at])

    @staticmethod
    def _reach(block: Block) -> np.ndarray:
        last = block.rows["last"]
        return np.where(block.goes_on, last - block.before["last"], last)

    def _add_rates(self, rates: np.ndarray) -> None:
        rates = rates[usable(rates)]
        if not len(rates):
            return
        if not self.rates:
            self.first_rate, self.rate_unit = float(rates[0]), half_unit(rates)
        self.every_rate.append(rates)
        self.head += rates[: SKIPPED_AT_MOST - len(self.head)].tolist()
        self.rates += len(rates)
        self.sum_of_rates += float(rates.sum())
        self.sum_of_inverses += float((1 / rates).sum())
        self.highest = max(self.highest, float(rates.max()))
        self.last_rate = float(rates[-1])

    def _add_clock(self, block: Block) -> None:
        """Time from print to print, where both are in the same epoch."""
        rows, before = block.rows, block.before
        since = before["last"] + 1
        seconds = rows["at"] - before["at"]
        on = block.goes_on & inside(self.period, block, since, self.chosen) & (seconds >= 0)
        if not on.any():
            return
        if not self.clocked:
            self.clock_first = int(since[on][0])
            self.clock_unit = 2 * half_unit(rows["at"][on])
        # What goes on from no print that counts begins anew.
        self.clocks += int((on & ~np.concatenate([[self.clocked > 0], on[:-1]])).sum())
        self.clock_first = min(self.clock_first, int(since[on].min()))
        self.clock_last = max(self.clock_last, int(rows["last"][on].max()))
        self.clocked += int((rows["last"] - before["last"])[on].sum())
        self.clock_seconds += float(seconds[on].sum())

    def rate_unit_of(self, count: int) -> float:
        """How far rounding may move a mean of so many rates: if they are spread over many of
        their last digits, by three standard deviations of independent errors."""
        spread = max(self.head) - min(self.head)
        independent = spread >= 20 * self.rate_unit
        return self.rate_unit * (min(1.0, (3 / count) ** 0.5) if independent else 1.0)

    @property
    def input_share(self) -> float | None:
        """Of the time of the steps, what was waited for input; where the format leaves open
        whether that is in the printed time, the less of the two."""
        return self.waited / self.waited_of if self.waited_of else None


def _printed_times(log: Log, block: Block) -> np.ndarray:
    """The times of a step as they were printed."""
    covers = log.meaning.covers
    if not isinstance(covers, Running):
        return np.asarray(block.rows["seconds"] / block.steps)
    # Up to the first epoch's end; more is not needed to see how many digits there are.
    steps = block.rows["last"] - covers.since + 1
    with np.errstate(divide="ignore", invalid="ignore"):
        printed = np.cumsum(block.rows["seconds"]) / steps
    return np.where(np.cumsum(~block.same_epoch) == 0, printed, np.nan)


def usable(rates: np.ndarray) -> np.ndarray:
    return np.isfinite(rates) & (rates > 0)


def half_unit(values: np.ndarray, relative: float = 1e-15) -> float:
    """Half of the last digit to which all of these were printed, if they are as exact as
    `relative`; 0 of such as have all digits."""
    some = values[np.isfinite(values)][:1000]
    for digits in range(13):
        if np.all(np.abs(some - np.round(some, digits)) <= relative * np.abs(some)):
            return 0.5 * 10.0**-digits
    return 0.0
