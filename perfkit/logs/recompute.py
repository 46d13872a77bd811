"""Every throughput that a log gives, by each statistic that suites use."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from perfkit.analysis.steady import steadiness
from perfkit.config import Protocol
from perfkit.logs.audit import Figure, Period
from perfkit.logs.log import Log, ReportedFigure
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


def usable(rates: pd.Series) -> pd.Series:
    return rates[(rates > LEAST_RATE) & (rates < MOST_RATE)]


def rank_of(windows: pd.DataFrame) -> int:
    """Whose prints are taken: of the ranks that tell of the most steps the slowest, for the
    ranks of a step wait for each other; the first of such as took as long."""
    if windows.empty:
        return -1
    steps = windows["last"] - windows["first"] + 1
    with np.errstate(divide="ignore"):
        took = windows["seconds"].fillna(steps / windows["own_rate"]).replace(np.inf, 0.0)
    sums = pd.DataFrame({"steps": steps, "took": took}).groupby(windows["rank"]).sum()
    longest = sums[sums["steps"] == sums["steps"].max()]["took"]
    return int(max(longest.index, key=lambda rank: (longest[rank], -abs(rank))))


class Windows:
    """The windows of one rank, each beside the one before it."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.rank = rank_of(log.windows)
        self.rows = log.windows[log.windows["rank"] == self.rank].reset_index(drop=True)
        rows, before = self.rows, self.rows.shift()
        self.steps = rows["last"] - rows["first"] + 1
        self.same_epoch = (rows[["run", "epoch"]] == before[["run", "epoch"]]).all(axis=1)
        self.goes_on = self.same_epoch & (before["last"] < rows["last"])
        self.since = (before["last"] + 1).where(self.goes_on, 1)
        self.passed = rows["at"] - before["at"]
        # The epoch with which its training begins.
        self.begins = rows["epoch"] == rows.groupby("run")["epoch"].transform("first")

    @cached_property
    def protocol_epoch(self) -> tuple[int, int] | None:
        """Run and epoch of the first epoch with most of the protocol's steps; None if no print
        tells of any."""
        within = (self.rows["first"] > WARMUP) & (self.rows["last"] <= END)
        epochs = [self.rows["run"], self.rows["epoch"]]
        steps = self.steps.where(within, 0).groupby(epochs, sort=False).sum()
        steps = steps.clip(upper=END - WARMUP)
        return steps.idxmax() if steps.max() > 0 else None

    @cached_property
    def step_seconds(self) -> pd.Series:
        """The time of a step in each window, by its times, else its rates (but for a factor),
        else the clock; nan where nothing tells it."""
        times = self.rows["seconds"] / self.steps
        if times.isna().all():
            rates = self.rows["own_rate"].fillna(self.rows["rate"])
            times = 1 / rates.where(rates > 0)
        return self.passed / self.steps if times.isna().all() else times

    @cached_property
    def steady_begin(self) -> int | None:
        """The first window of the steady state; None if there is none, or too few windows."""
        times = self.step_seconds[np.isfinite(self.step_seconds) & (self.step_seconds > 0)]
        found = steadiness(times.to_list()) if len(times) else None
        return int(times.index[found.begin]) if found and found.settled else None

    def inside(self, period: Period, first: pd.Series) -> pd.Series:
        """Which windows, that tell of steps from `first` on, lie in the period as a whole."""
        rows = self.rows
        if period == "all":
            return pd.Series(True, rows.index)
        if period == "warm":
            return ~self.begins | (first > WARMUP)
        if period == "steady":
            begin = self.steady_begin
            return pd.Series(rows.index >= (len(rows) if begin is None else begin), rows.index)
        if self.protocol_epoch is None:
            return pd.Series(False, rows.index)
        run, epoch = self.protocol_epoch
        of_epoch = (rows["run"] == run) & (rows["epoch"] == epoch)
        return of_epoch & (first > WARMUP) & (rows["last"] <= END)


@dataclass(frozen=True)
class Figures:
    """What a log gives: `shown` are its figures by each statistic; `skipping` those means of
    its printed rates that leave out the first 1, 2, … prints."""

    rank: int
    shown: list[Figure]
    skipping: list[Figure] = field(default_factory=list)
    input_share: float | None = None
    slowest: Slowest | None = None
    windows: Windows | None = None


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
    sums = {period: _Period(windows, period, scope) for period in Period.__args__}  # type: ignore[attr-defined]
    for period, one in sums.items():
        whole = sums["all"]
        if one.prints and (period in ("all", "protocol") or one.prints < whole.prints):
            shown += one.figures()
    if windows.steady_begin == 0 and (figure := sums["all"].samples_per_time()):
        shown.append(figure.model_copy(update={"period": "steady"}))
    measured = sums["protocol"] if sums["protocol"].prints else sums["all"]
    return Figures(
        windows.rank,
        shown,
        [*sums["all"].skipping()],
        next((one.wait_share for one in shown if one.period == "all" and one.wait_share), None),
        measured.slowest(),
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
        self.rows = windows.rows[self.mask]
        self.row_steps = windows.steps[self.mask]
        self.prints = len(self.rows)
        self.steps = int(self.row_steps.sum())
        self.rates = usable(self.rows["rate"])
        self.rate_unit = half_unit(self.rates)
        self.timed = np.isfinite(self.rows["seconds"]) & (self.rows["seconds"] > 0)
        self.waits = self.rows["reader"][self.timed & np.isfinite(self.rows["reader"])]

    @property
    def wait_share(self) -> float | None:
        """Of the time of the steps, what was waited for input; where the format leaves open
        whether that is in the printed time, the less of the two."""
        apart = 0.0 if self.windows.log.semantics.reader == "in" else self.waits.sum()
        time = self.rows["seconds"][self.waits.index].sum() + apart
        return share_of(self.waits.sum(), time) if len(self.waits) else None

    def figures(self) -> Iterator[Figure]:
        if found := self.samples_per_time():
            yield found
        yield from self.by_clock()
        if not len(self.rates) or self.period == "steady":
            return
        values = {
            "mean of rates": self.rates.mean(),
            "harmonic mean": len(self.rates) / (1 / self.rates).sum(),
            "median": self.rates.median(),
        }
        single = {}
        if self.period == "all":
            ends = self.rates.iloc[-1], self.rates.iloc[0], self.rates.max()
            single = dict(zip(("last print", "first print", "maximum"), ends, strict=True))
        for statistic, value in (values | single).items():
            averaged = 1 if statistic in ("median", *single) else len(self.rates)
            prints = 1 if statistic in single else len(self.rates)
            rounding = self.rate_unit_of(averaged) / value
            yield self.figure(statistic, value, self.scope.rate_of, rounding, prints=prints)

    @cached_property
    def extent(self) -> dict[str, Any]:
        """Which steps, and how many, all of its prints tell of."""
        return {
            "first": int(self.rows["first"].min()),
            "last": int(self.rows["last"].max()),
            "steps": self.steps,
            "epochs": len(self.rows[["run", "epoch"]].drop_duplicates()),
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
        semantics, scope = self.windows.log.semantics, self.scope
        # What the printed waits are in, a format has to tell.
        known = semantics.reader is not None or not self.waits.sum()
        seconds, wait = self.rows["seconds"].sum(), {"wait_share": self.wait_share}
        # Where times are differences of running means, the rounding of each print is multiplied
        # with all steps before. Each time may have been rounded the same way.
        times = 1.0
        if semantics.covers == "running":
            windows = self.windows
            reach = windows.rows["last"] - windows.since.where(windows.goes_on, 1) + 1
            times = 2 * reach[self.mask].sum() / self.steps
        if known and scope.samples and self.timed.all() and seconds > 0:
            rate = scope.samples * self.steps / seconds
            unit = half_unit(self.rows["printed_seconds"], 1e-9)
            rounding = unit * times * self.steps / seconds
            return self.figure("samples/time", rate, "device", rounding, **wait)
        own = usable(self.rows["own_rate"])
        if not len(self.rates) or len(own) < self.prints:
            return None
        rate = self.steps / (self.row_steps / own).sum()
        unit = self.rate_unit_of(self.prints)
        if semantics.covers == "running":
            unit = self.rate_unit * times
        return self.figure("samples/time", rate, scope.rate_of, unit / rate, **wait)

    def by_clock(self) -> Iterator[Figure]:
        """Samples over the time from print to print, where both are in the same epoch."""
        windows, rows = self.windows, self.windows.rows
        since = windows.since
        within = windows.inside(self.period, since)
        on = windows.goes_on & within & (windows.passed >= 0)
        seconds = windows.passed[on].sum()
        if not (on.any() and seconds > 0 and self.scope.samples):
            return
        steps = int((rows["last"] - since + 1)[on].sum())
        # Each stretch begins and ends with a reading of the clock.
        stretches = int((on & ~on.shift(fill_value=False)).sum())
        rounding = stretches * 2 * half_unit(rows["at"][on]) / seconds
        own = {
            "first": int(since[on].min()),
            "last": int(rows["last"][on].max()),
            "steps": steps,
        }
        rate, waits = self.scope.samples * steps / seconds, rows["reader"][on]
        share = share_of(waits.sum(), seconds) if waits.notna().all() else None
        yield self.figure("clock", rate, "device", rounding, wait_share=share, **own)

    def skipping(self) -> Iterator[Figure]:
        """Means of the printed rates without the first prints: what is published as "mean after
        warm-up"."""
        # Summed from the end, so that each is a mean of its own.
        sums = self.rates[::-1].cumsum()[::-1].to_list()
        for skipped, total in enumerate(sums[1 : SKIPPED_AT_MOST + 1], 1):
            count = len(sums) - skipped
            rounding = self.rate_unit_of(count) / (total / count)
            own = {"skipped": skipped, "prints": count, "first": None}
            yield self.figure(
                "mean after skipping", total / count, self.scope.rate_of, rounding, **own
            )

    def rate_unit_of(self, count: int) -> float:
        """How far rounding may move a mean of so many rates: if they are spread over many of
        their last digits, by three standard deviations of independent errors."""
        return self.rate_unit * (min(1.0, (3 / count) ** 0.5) if self.spread else 1.0)

    @cached_property
    def spread(self) -> bool:
        """Whether the rates are spread over many of their last digits."""
        head = self.rates[:SKIPPED_AT_MOST]
        return bool(head.max() - head.min() >= 20 * self.rate_unit)

    def slowest(self) -> Slowest | None:
        if self.timed.any():
            times = self.rows["seconds"]
        else:
            times = self.row_steps / self.rows["own_rate"]
        times = times.where(np.isfinite(times), 0.0)
        if not times.sum() > 0:
            return None
        at = times.idxmax()
        steps, line = int(self.row_steps[at]), int(self.rows["line"][at])
        return Slowest(line, float(times[at] / times.sum()), steps, self.steps)
