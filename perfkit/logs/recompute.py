"""Every throughput that a log gives, by each statistic that suites use."""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import cached_property
from typing import Any, NamedTuple, get_args

import numpy as np
import pandas as pd

from perfkit.analysis.steady import steadiness
from perfkit.config import Protocol
from perfkit.logs.audit import Figure, Period
from perfkit.logs.log import Log, ReportedFigure
from perfkit.logs.windows import shifted
from perfkit.text.terminal import plain

PROTOCOL = Protocol.named("published")
WARMUP, END = PROTOCOL.warmup_steps, PROTOCOL.steps
"""The protocol measures steps WARMUP + 1 to END."""
SKIPPED_AT_MOST = 100
"""Suites that drop a warm-up drop at most so many prints."""
SEQUENCES = {"bert", "bert-large", "sequences/s"}
SAMPLES = {"samples/s", "images/s", "sequences/s", None}
"""Units in which a batch size counts; others count tokens, frames and the like."""


class RateScope(NamedTuple):
    """What turns a rate of one device into that of all, as far as the log tells: the number of
    devices, and the `samples` of a device in a step."""

    ranks: int | None
    samples: int | None
    rate_of: str

    @classmethod
    def of(cls, log: Log) -> "RateScope":
        samples, accumulate = log.number("batch_size"), log.number("accumulate")
        if samples and log.semantics.step == "update":
            # Suites that train BERT accumulate unless they are told not to.
            bert = bool({log.fact("model"), log.fact("unit")} & SEQUENCES)
            samples = None if bert and not accumulate else samples * (accumulate or 1)
        ranks, known = log.number("ranks"), log.fact("unit") in SAMPLES
        return cls(ranks, samples if known else None, log.semantics.rate_of)

    def both(self, value: float, of: str) -> dict[str, float | None]:
        """`value`, the rate of a "device" or of "all", as the two of a Figure."""
        if of == "all":
            device = value / self.ranks if self.ranks else None
            return {"throughput": value, "per_device": device}
        whole = value * self.ranks if self.ranks else None
        return {"throughput": whole, "per_device": value}


class Slowest(NamedTuple):
    """The print that took longest in a period: its line, its share of the time, and how many
    steps it tells of, of how many."""

    line: int
    share: float
    steps: int
    of: int


def half_of(text: str) -> float:
    """Half of the last digit of a number as it is written: 0.05 for "387.1"."""
    try:
        exponent = Decimal(text.strip().replace(",", "")).as_tuple().exponent
    except InvalidOperation:
        return 0.0
    return 0.5 * 10.0**exponent if isinstance(exponent, int) else 0.0


def half_unit(values: Any, relative: float = 1e-15) -> float:
    """Half of the last digit to which all of these were printed, if they are as exact as
    `relative`; 0 of such as have all digits."""
    some = np.asarray(values, float)
    some = some[np.isfinite(some)][:1000]
    for digits in range(13):
        if np.all(np.abs(some - np.round(some, digits)) <= relative * np.abs(some)):
            return 0.5 * 10.0**-digits
    return 0.0


LEAST_RATE, MOST_RATE = 1e-9, 1e15
"""Rates beyond, per second, are no training's; sums of them would overflow."""


def share_of(waits: float, time: float) -> float | None:
    """The share of a time that was waited; None where the two contradict each other."""
    share = waits / time if time > 0 else -1.0
    return float(share) if 0 <= share <= 1 else None


def usable(rates: np.ndarray) -> np.ndarray:
    return rates[(rates > LEAST_RATE) & (rates < MOST_RATE)]


def rank_of(windows: pd.DataFrame) -> int:
    """Whose prints are taken: of the ranks whose prints cover the most steps the slowest, for
    the ranks of a step wait for each other; the first of those that took as long."""
    ranks, places = np.unique(windows["rank"].to_numpy(), return_inverse=True)
    steps = (windows["last"] - windows["first"] + 1).to_numpy()
    took = windows["seconds"].fillna(steps / windows["own_rate"]).to_numpy()
    sums = np.bincount(places, np.where(np.isfinite(took), took, 0.0))
    counts = np.bincount(places, steps)
    most = [at for at in range(len(ranks)) if counts[at] == counts.max()]
    return int(ranks[max(most, key=lambda at: (sums[at], -abs(ranks[at])))])


class Windows:
    """The windows of one rank as arrays, `rows[name]` with WINDOW's columns.

    `steps` are those of each window. `goes_on`: whether the window before it is in the same
    epoch; `since`: the first step after that one, else 1; `passed`: seconds between the two
    prints. `place` counts the epochs of all runs from 0. `begins`: whether the window is in the
    first epoch of its run.
    """

    def __init__(self, log: Log) -> None:
        self.log = log
        self.rank = rank_of(log.windows)
        own = log.windows["rank"].to_numpy() == self.rank
        self.rows = {name: log.windows[name].to_numpy()[own] for name in log.windows}
        run, epoch, last = (self.rows[name] for name in ("run", "epoch", "last"))
        self.steps = last - self.rows["first"] + 1
        new_run = np.append(True, np.diff(run) != 0)
        self.place = np.cumsum(new_run | np.append(True, np.diff(epoch) != 0)) - 1
        self.goes_on = np.append(False, (np.diff(self.place) == 0) & (np.diff(last) > 0))
        self.since = np.where(self.goes_on, np.roll(last, 1) + 1, 1)
        self.passed = self.rows["at"] - shifted(self.rows["at"])
        self.begins = epoch == epoch[new_run][np.cumsum(new_run) - 1]

    @cached_property
    def protocol_place(self) -> int | None:
        """The first epoch with most of the protocol's steps; None if no print covers any."""
        within = (self.rows["first"] > WARMUP) & (self.rows["last"] <= END)
        steps = np.bincount(self.place, self.steps * within).clip(max=END - WARMUP)
        return int(steps.argmax()) if steps.max() > 0 else None

    @cached_property
    def step_seconds(self) -> np.ndarray:
        """The time of a step in each window, by its times, else its rates (but for a factor),
        else the clock; nan where nothing tells it."""
        times = self.rows["seconds"] / self.steps
        if np.isnan(times).all():
            own, rates = self.rows["own_rate"], self.rows["rate"]
            rates = np.where(np.isnan(own), rates, own)
            times = 1 / np.where(rates > 0, rates, np.nan)
        return self.passed / self.steps if np.isnan(times).all() else times

    @cached_property
    def steady_begin(self) -> int | None:
        """The first window of the steady state; None if there is none, or too few windows."""
        timed = np.flatnonzero(np.isfinite(self.step_seconds) & (self.step_seconds > 0))
        found = steadiness(self.step_seconds[timed].tolist()) if len(timed) else None
        return int(timed[found.begin]) if found and found.settled else None

    def inside(self, period: Period, first: np.ndarray) -> np.ndarray:
        """Which windows, whose steps begin with `first`, lie in the period as a whole."""
        count = len(self.steps)
        match period:
            case "all":
                return np.full(count, True)
            case "warm":
                return ~self.begins | (first > WARMUP)
            case "steady":
                begin = self.steady_begin
                return np.arange(count) >= (count if begin is None else begin)
        of_epoch = self.place == (-1 if self.protocol_place is None else self.protocol_place)
        return of_epoch & (first > WARMUP) & (self.rows["last"] <= END)


@dataclass(frozen=True)
class Figures:
    """What a log gives: `shown` are its figures by each statistic."""

    rank: int
    shown: list[Figure]
    input_share: float | None = None
    slowest: Slowest | None = None
    windows: Windows | None = None

    @cached_property
    def skipping(self) -> list[Figure]:
        """Means of the printed rates without the first 1, 2, … prints: what is published as
        "mean after warm-up"."""
        if self.windows is None:
            return []
        return [*_Period(self.windows, "all", RateScope.of(self.windows.log)).skipping()]


@np.errstate(all="ignore")
def figures_of(log: Log) -> Figures:
    """All throughputs of a log; of several ranks that print, those of the slowest."""
    scope = RateScope.of(log)
    shown = [
        _reported(one, scope)
        for one in log.reported
        if one.unit == "samples/s" and LEAST_RATE < one.value < MOST_RATE
    ]
    if log.windows.empty:
        return Figures(-1, shown)
    windows = Windows(log)
    periods = {period: _Period(windows, period, scope) for period in get_args(Period)}
    whole = periods["all"]
    for period, one in periods.items():
        if one.prints and (period in ("all", "protocol") or one.prints < whole.prints):
            shown += one.figures()
    if windows.steady_begin == 0 and (figure := whole.samples_per_time()):
        shown.append(figure.model_copy(update={"period": "steady"}))
    return Figures(
        windows.rank,
        shown,
        next((one.wait_share for one in shown if one.period == "all" and one.wait_share), None),
        (periods["protocol"] if periods["protocol"].prints else whole).slowest(),
        windows,
    )


def _reported(one: ReportedFigure, scope: RateScope) -> Figure:
    both: dict[str, Any] = scope.both(one.value, scope.rate_of)
    return Figure(
        statistic="reported",
        period=None,
        **both,
        rounding=half_of(one.text) / one.value,
        first=None,
        name=plain(one.name),
        text=plain(one.text),
        line=one.line,
    )


class _Period:
    """The windows of one period, and the figures of it."""

    def __init__(self, windows: Windows, period: Period, scope: RateScope) -> None:
        self.windows, self.period, self.scope = windows, period, scope
        self.mask = windows.inside(period, windows.rows["first"])
        self.rows = {name: values[self.mask] for name, values in windows.rows.items()}
        self.row_steps = windows.steps[self.mask]
        self.prints, self.steps = len(self.row_steps), int(self.row_steps.sum())
        self.rates = usable(self.rows["rate"])
        self.rate_unit = half_unit(self.rates)
        self.timed = np.isfinite(self.rows["seconds"]) & (self.rows["seconds"] > 0)
        waiting = self.timed & np.isfinite(self.rows["reader"])
        self.waits = self.rows["reader"][waiting]
        # Where the format leaves open whether the wait is in the printed time, the less of the
        # two shares.
        apart = 0.0 if windows.log.semantics.reader == "in" else self.waits.sum()
        time = self.rows["seconds"][waiting].sum() + apart
        self.wait_share = share_of(self.waits.sum(), time) if len(self.waits) else None

    def figures(self) -> Iterator[Figure]:
        if found := self.samples_per_time():
            yield found
        yield from self.by_clock()
        rates = self.rates
        if not len(rates) or self.period == "steady":
            return
        # Statistic -> its value, how many rates are averaged, how many prints it is of.
        count = len(rates)
        values: dict[str, tuple[float, int, int]] = {
            "mean of rates": (rates.mean(), count, count),
            "harmonic mean": (count / (1 / rates).sum(), count, count),
            "median": (np.median(rates), 1, count),
        }
        if self.period == "all":
            values["last print"] = rates[-1], 1, 1
            values["first print"] = rates[0], 1, 1
            values["maximum"] = rates.max(), 1, 1
        for statistic, (value, averaged, prints) in values.items():
            rounding = self.rate_unit_of(averaged) / value
            yield self.figure(statistic, value, self.scope.rate_of, rounding, prints=prints)

    @cached_property
    def extent(self) -> dict[str, Any]:
        """Which steps, and how many, all of its prints cover."""
        return {
            "first": int(self.rows["first"].min()),
            "last": int(self.rows["last"].max()),
            "steps": self.steps,
            "epochs": len(np.unique(self.windows.place[self.mask])),
            "prints": self.prints,
        }

    def figure(
        self, statistic: Any, value: float, of: str, rounding: float, **other: Any
    ) -> Figure:
        both = self.scope.both(float(value), of)
        return Figure(
            statistic=statistic,
            period=self.period,
            rounding=float(rounding),
            **(self.extent | both | other),
        )

    def samples_per_time(self) -> Figure | None:
        """Samples over the time of the steps; from rates alone, their harmonic mean weighted
        with the steps."""
        windows, semantics, scope = self.windows, self.windows.log.semantics, self.scope
        # What the printed waits are in, a format has to tell.
        known = semantics.reader is not None or not self.waits.sum()
        seconds = np.nansum(self.rows["seconds"])
        # Where times are differences of running means, the rounding of each print is multiplied
        # with all steps before. Each time may have been rounded the same way.
        times = 1.0
        if semantics.covers == "running":
            reach = windows.rows["last"] - windows.since + 1
            times = 2 * reach[self.mask].sum() / self.steps
        if known and scope.samples and self.timed.all() and seconds > 0:
            rate = scope.samples * self.steps / seconds
            unit = half_unit(self.rows["printed_seconds"], 1e-9)
            of, rounding = "device", unit * times * self.steps / seconds
        else:
            own = usable(self.rows["own_rate"])
            if not len(self.rates) or len(own) < self.prints:
                return None
            rate = self.steps / (self.row_steps / own).sum()
            running = semantics.covers == "running"
            unit = self.rate_unit * times if running else self.rate_unit_of(self.prints)
            of, rounding = scope.rate_of, unit / rate
        return self.figure("samples/time", rate, of, rounding, wait_share=self.wait_share)

    def by_clock(self) -> Iterator[Figure]:
        """Samples over the time from print to print, where both are in the same epoch."""
        windows, since = self.windows, self.windows.since
        on = windows.goes_on & windows.inside(self.period, since) & (windows.passed >= 0)
        seconds = windows.passed[on].sum()
        if not (seconds > 0 and self.scope.samples):
            return
        rows = {name: windows.rows[name][on] for name in ("last", "at", "reader")}
        steps = int((rows["last"] - since[on] + 1).sum())
        # Each stretch begins and ends with a reading of the clock.
        stretches = int((np.diff(on, prepend=False) & on).sum())
        waits = rows["reader"]
        yield self.figure(
            "clock",
            self.scope.samples * steps / seconds,
            "device",
            stretches * 2 * half_unit(rows["at"]) / seconds,
            wait_share=None if np.isnan(waits).any() else share_of(waits.sum(), seconds),
            first=int(since[on].min()),
            last=int(rows["last"].max()),
            steps=steps,
        )

    def skipping(self) -> Iterator[Figure]:
        """Means of the printed rates without the first prints."""
        # Summed from the end, so that each is a mean of its own.
        sums = np.cumsum(self.rates[::-1])[::-1].tolist()
        for skipped, total in enumerate(sums[1 : SKIPPED_AT_MOST + 1], 1):
            count = len(sums) - skipped
            mean = total / count
            rounding = self.rate_unit_of(count) / mean
            own = {"skipped": skipped, "prints": count, "first": None}
            yield self.figure("mean after skipping", mean, self.scope.rate_of, rounding, **own)

    def rate_unit_of(self, count: int) -> float:
        """How far rounding may move a mean of so many rates: if they are spread over many of
        their last digits, by three standard deviations of independent errors."""
        head = self.rates[:SKIPPED_AT_MOST]
        spread = head.max() - head.min() >= 20 * self.rate_unit
        return self.rate_unit * (min(1.0, (3 / count) ** 0.5) if spread else 1.0)

    def slowest(self) -> Slowest | None:
        """The print that took longest; None where nothing tells the times."""
        times = self.rows["seconds"]
        if not self.timed.any():
            times = self.row_steps / self.rows["own_rate"]
        times = np.where(np.isfinite(times), times, 0.0)
        if not times.sum() > 0:
            return None
        at = int(times.argmax())
        line, steps = int(self.rows["line"][at]), int(self.row_steps[at])
        return Slowest(line, float(times[at] / times.sum()), steps, self.steps)
