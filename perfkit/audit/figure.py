"""One throughput of a log: its statistic, the steps that it covers, and its value."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from perfkit.measuring.results.base import Stored

Statistic = Literal[
    "reported",
    "samples/time",
    "clock",
    "mean of rates",
    "harmonic mean",
    "median",
    "last print",
    "first print",
    "maximum",
    "mean after skipping",
    "median step",
    "median step by clock",
]
"""Statistics that suites report as throughput, the simplest explanation of a number first."""
TIMED: tuple[Statistic, ...] = ("samples/time", "clock")
"""Statistics that are samples / time."""
BY_MEDIAN_STEP: tuple[Statistic, ...] = ("median step", "median step by clock")
"""Statistics that nobody publishes: they explain no claim."""
Period = Literal["all", "warm", "protocol", "steady"]
"""all: all steps; warm: without the first 20 of a training; protocol: steps 21 to 120 of one
epoch; steady: from the step at which the steady-state test finds the final level."""


LEAST_RATE, MOST_RATE = 1e-9, 1e15
"""Rates per second outside this range are implausible; their sums would overflow."""


NAMED_VALUES = "lines with named values"
"""Format of lines that no known suite writes: nothing tells whether a rate is that of one
device or of all."""


class Figure(Stored):
    """A throughput in samples per second, computed or reported by the log. Shares are of 1."""

    statistic: Statistic
    """samples/time, the throughput: from the printed times or, if only rates are printed, their
    harmonic mean weighted by steps; clock: the same by the timestamps of the lines; reported:
    the log's own figure; median step: samples / median time of a step, by the printed times or
    by the timestamps that differ; others: of the printed rates"""
    period: Period | None
    """all steps; warm: without the first 20 of each training, unless these are the protocol's
    steps; protocol: steps 21 to 120 of the first epoch that has most of them; steady: the
    windows from the point where the steady-state test finds the final level; None for a
    reported figure"""
    throughput: float | None
    """throughput of all devices; None if their number is unknown"""
    per_device: float | None
    """throughput of one device; None if the number of devices is unknown"""
    rounding: float
    """effect of the last printed digit, as a share; for a mean of rates that spread over many
    of their last digits, three standard deviations"""
    first: int | None
    """first step covered, counted from 1 in its epoch"""
    last: int | None = None
    """last step covered"""
    steps: int = 0
    """number of steps covered, in all epochs"""
    epochs: int = 0
    """number of epochs covered"""
    prints: int = 0
    """number of prints used; a print that also covers steps outside the period is excluded"""
    wait_share: float | None = None
    """share of these steps' time that was data wait; for samples/time"""
    skipped: int = 0
    """prints left out at the beginning; for `mean after skipping`"""
    name: str = ""
    """name of a reported figure in the log"""
    line: int | None = None
    """line of a reported figure"""

    @property
    def value(self) -> float:
        """Throughput of all devices, or of one if their number is unknown."""
        return self.throughput or self.per_device or 0.0

    def rate(self, *, of_all: bool) -> float | None:
        """Return the throughput of all devices or of one; None if it is unknown."""
        return self.throughput if of_all else self.per_device

    def ends(self) -> dict[str, Any]:
        """Return the first and the last step, as fields of a finding."""
        return {"first": self.first, "last": self.last}


def unit_for(unit: str, *, of_all: bool) -> str:
    """Return the unit of a throughput of all devices or of one, from that of all; empty if that
    is unknown."""
    return unit if of_all or not unit else f"{unit}/device"


def first_figure(
    figures: Iterable[Figure], statistics: Sequence[Statistic], period: Period
) -> Figure | None:
    """Return the figure of a period of the first of these statistics that it has."""
    of_period = {figure.statistic: figure for figure in figures if figure.period == period}
    for statistic in statistics:
        if statistic in of_period:
            return of_period[statistic]
    return None


class StepTime(Stored):
    """The seconds of an optimizer update over one period of a log. They need no batch size."""

    period: Period
    """period of the steps, as of a figure"""
    basis: Literal["printed", "clock"]
    """printed: the printed times or, if only rates are printed and the samples of a step are
    known, samples / rate; clock: the timestamps of the lines"""
    mean_seconds: float
    """sum of all times / number of all updates"""
    clock_rounding: float | None = None
    """effect of the timestamps' last digit on `mean_seconds`, as a share; None by printed
    times"""
    median_seconds: float
    """median of the time of an update over the printed lines or, by a clock, over the stretches
    between two lines whose timestamps differ"""
    first: int | None
    """first update covered, counted from 1 in its epoch"""
    last: int | None
    """last update covered"""
    steps: int
    """number of updates covered, in all epochs"""
    prints: int
    """number of printed lines used, also those with the timestamp of the line before"""
