"""Every throughput that a log gives, by each statistic that suites use."""

from collections.abc import Callable, Iterator
from decimal import Decimal, InvalidOperation
from functools import cached_property
from typing import Any, get_args

import numpy as np

from perfkit.analysis.steady import steadiness
from perfkit.config import Protocol
from perfkit.logs.audit import Figure, Period, Statistic
from perfkit.logs.log import Log
from perfkit.models import MODELS
from perfkit.text.terminal import plain

PROTOCOL = Protocol.named("published")
WARMUP, END = PROTOCOL.warmup_steps, PROTOCOL.steps
"""The protocol measures steps WARMUP + 1 to END."""
SKIPPED_AT_MOST = 100
"""Suites that drop a warm-up drop at most so many prints."""
SEQUENCES = {"bert", "bert-large", "sequences/s"}
SAMPLES = {"samples/s", "images/s", "sequences/s", None}
"""Units in which a batch size counts; tokens go by the sequence length, too, and of frames and
the like nothing tells how many a sample has."""
LEAST_RATE, MOST_RATE = 1e-9, 1e15
"""Rates beyond, per second, are no training's; sums of them would overflow."""
STATISTICS: dict[Statistic, Callable[[Any], float]] = {
    "mean of rates": np.mean,
    "harmonic mean": lambda rates: len(rates) / (1 / rates).sum(),
    "median": np.median,
    "last print": lambda rates: rates[-1],
    "first print": lambda rates: rates[0],
    "maximum": np.max,
}
"""What is taken of the printed rates."""
OF_ONE = ("last print", "first print", "maximum")
"""Those that are one of the printed rates."""
Rows = dict[str, np.ndarray]
"""Columns of windows, and those of `steps_of`."""


def device_samples(log: Log) -> int:
    """The samples of a device in a step, or the tokens where rates count those; 0 if the log
    does not tell."""
    samples, accumulate = log.number("batch_size"), log.number("accumulate")
    if log.semantics.step == "update":
        # Suites that train BERT accumulate unless they are told not to.
        bert = bool({log.fact("model"), log.fact("unit")} & SEQUENCES)
        samples *= accumulate or (0 if bert else 1)
    model = MODELS.get(str(log.fact("model")))
    unit = log.fact("unit") or (model and model.unit)
    if unit == "tokens/s":
        return samples * log.number("sequence_length")
    return samples if unit in SAMPLES else 0


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


def share_of(waits: float, time: float) -> float | None:
    """The share of a time that was waited; None where the two contradict each other."""
    share = waits / time if time > 0 else -1.0
    return float(share) if 0 <= share <= 1 else None


def known_first(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The first where that is a number, else the second."""
    return np.where(np.isnan(first), second, first)


def rank_of(windows: np.ndarray) -> int:
    """Whose prints are taken: of the ranks whose prints cover the most steps the slowest, for
    the ranks of a step wait for each other; the first of those that took as long."""
    ranks, of = np.unique(windows["rank"], return_inverse=True)
    if len(ranks) == 1:
        return int(ranks[0])
    steps = windows["last"] - windows["first"] + 1
    took = known_first(windows["seconds"], steps / windows["own_rate"])
    took = np.bincount(of, np.where(np.isfinite(took), took, 0.0))
    return int(ranks[np.lexsort((-np.abs(ranks), took, np.bincount(of, steps)))[-1]])


def steps_of(log: Log) -> Rows:
    """The windows of the slowest rank, with the number of their `steps`. `goes_on`: whether the
    window before it is in the same epoch; `since`: the first step after that one, else 1;
    `passed`: seconds between the two prints; `step_seconds`: the time of a step, by its times,
    else its rates (but for a factor), else the clock. `place` counts the epochs of all runs
    from 0. `begins`: whether that is the first of its run; `asked`: the first with most of the
    protocol's steps; `settled`: from where the steady state begins."""
    own = log.windows[log.windows["rank"] == rank_of(log.windows)]
    rows = {name: own[name].copy() for name in own.dtype.names}
    run, epoch, first, last = (rows[name] for name in ("run", "epoch", "first", "last"))
    new_run = np.append(True, np.diff(run) != 0)
    opens = new_run | np.append(True, np.diff(epoch) != 0)
    goes_on = ~opens & (np.diff(last, prepend=0) > 0)
    steps, place = last - first + 1, np.cumsum(opens) - 1
    passed = np.diff(rows["at"], prepend=np.nan)
    rates = known_first(rows["own_rate"], rows["rate"])
    times = (rows["seconds"] / steps, 1 / np.where(rates > 0, rates, np.nan))
    seconds = next((one for one in times if not np.isnan(one).all()), passed / steps)
    timed = np.flatnonzero((seconds > 1 / MOST_RATE) & (seconds < 1 / LEAST_RATE))
    found = steadiness(seconds[timed].tolist()) if len(timed) else None
    settled = timed[found.begin] if found and found.settled else len(run)
    asked = np.bincount(place, steps * ((first > WARMUP) & (last <= END)))
    asked = asked.clip(max=END - WARMUP)
    return rows | {
        "steps": steps,
        "goes_on": goes_on,
        "since": np.where(goes_on, np.roll(last, 1), 0) + 1,
        "passed": passed,
        "step_seconds": seconds,
        "place": place,
        "begins": epoch == epoch[new_run][np.cumsum(new_run) - 1],
        "asked": place == (asked.argmax() if asked.max() > 0 else -1),
        "settled": np.arange(len(run)) >= settled,
    }


def some_of(rows: Rows, mask: np.ndarray) -> Rows:
    return {name: values[mask] for name, values in rows.items()}


def inside(rows: Rows, period: Period, first: str = "first") -> np.ndarray:
    """Which windows, whose steps begin at the column `first`, lie wholly in the period."""
    late = rows[first] > WARMUP
    return {
        "all": np.full(len(late), True),
        "warm": ~rows["begins"] | late,
        "protocol": rows["asked"] & late & (rows["last"] <= END),
        "steady": rows["settled"],
    }[period]


@np.errstate(all="ignore")
def step_samples(rows: Rows, *, by_clock: bool = False) -> float | None:
    """The samples of a step by a log's own rates and times, or its clock: the median."""
    rate, seconds = rows["own_rate"], rows["seconds"] / rows["steps"]
    if by_clock:
        clock = rows["passed"] / (rows["last"] - rows["since"] + 1)
        rate = known_first(rate, rows["rate"])
        seconds = known_first(np.where(rows["goes_on"], clock, np.nan), seconds)
    samples = rate * seconds
    samples = samples[np.isfinite(samples)]
    return float(np.median(samples)) if len(samples) else None


class Rates:
    """Printed rates that a training can have: their `values`, and half of their last digit."""

    def __init__(self, rates: np.ndarray) -> None:
        self.values = rates[(rates > LEAST_RATE) & (rates < MOST_RATE)]
        self.half = half_unit(self.values)

    def rounding(self, count: int) -> float:
        """How far rounding may move a mean of so many: if they are spread over many of their
        last digits, by three standard deviations of independent errors."""
        spread = np.ptp(self.values[:SKIPPED_AT_MOST]) >= 20 * self.half
        return self.half * (min(1.0, (3 / count) ** 0.5) if spread else 1.0)


class Figures:
    """What a log gives: `shown` are its figures by each statistic; `rows` as steps_of has them,
    empty if no print names a step. `ranks` and `samples` (of a device in a step) are 0 if the
    log does not tell."""

    @np.errstate(all="ignore")
    def __init__(self, log: Log) -> None:
        self.log, self.ranks, self.samples = log, log.number("ranks"), device_samples(log)
        self.rows = steps_of(log) if len(log.windows) else {}
        found = [*self._reported()]
        if self.rows:
            found += [one for period in get_args(Period) for one in self._of_period(period)]
        self.shown = [f for f in found if LEAST_RATE < f.value < MOST_RATE and f.rounding < 1]

    @property
    def rank(self) -> int:
        """Whose prints are taken; -1 if none is named."""
        return int(self.rows["rank"][0]) if self.rows else -1

    @property
    def input_share(self) -> float | None:
        """Data wait, a share of the time of all steps."""
        shares = (one.wait_share for one in self.shown if one.period == "all")
        return next(filter(None, shares), None)

    @cached_property
    def skipping(self) -> list[Figure]:
        """Means of the printed rates without the first 1, 2, … prints: what is published as
        "mean after warm-up"."""
        rates = Rates(self.rows["rate"] if self.rows else np.zeros(0))
        # Summed from the end, so that each is a mean of its own.
        sums = np.cumsum(rates.values[::-1])[::-1].tolist()
        return [
            self._figure(
                "mean after skipping",
                total / (count := len(sums) - skipped),
                rates.rounding(count),
                {"period": "all", "skipped": skipped, "prints": count},
            )
            for skipped, total in enumerate(sums[1 : SKIPPED_AT_MOST + 1], 1)
        ]

    def _figure(
        self,
        statistic: Statistic,
        rate: float,
        error: float,
        known: dict[str, Any],
        of: str = "",
    ) -> Figure:
        """A rate of a "device" or of "all", by default as printed ones, which rounding may move
        by `error`, with what else is `known` of it."""
        rate, of_all = float(rate), (of or self.log.semantics.rate_of) == "all"
        per_device = rate if not of_all else rate / self.ranks if self.ranks else None
        throughput = rate if of_all else rate * self.ranks if self.ranks else None
        return Figure(
            statistic=statistic,
            throughput=throughput,
            per_device=per_device,
            rounding=float(error / rate),
            **({"period": None, "first": None} | known),
        )

    def _reported(self) -> Iterator[Figure]:
        for one in self.log.reported:
            if one.unit == "samples/s" and LEAST_RATE < one.value < MOST_RATE:
                known = {"name": plain(one.name), "text": plain(one.text), "line": one.line}
                yield self._figure("reported", one.value, half_of(one.text), known)

    def _of_period(self, period: Period) -> Iterator[Figure]:
        mask = inside(self.rows, period)
        if not mask.any() or (period == "warm" and mask.all()):
            return
        rows = some_of(self.rows, mask)
        rates = Rates(rows["rate"])
        extent = {
            "period": period,
            "first": int(rows["first"].min()),
            "last": int(rows["last"].max()),
            "steps": int(rows["steps"].sum()),
            "epochs": len(np.unique(rows["place"])),
            "prints": int(mask.sum()),
        }
        yield from self._by_times(rows, rates, extent)
        yield from self._by_clock(period, extent)
        count = len(rates.values)
        for statistic, value_of in STATISTICS.items() if period != "steady" and count else ():
            is_one = statistic in OF_ONE
            if not is_one or period == "all":
                error = rates.rounding(1 if is_one or statistic == "median" else count)
                known = extent | {"prints": 1 if is_one else count}
                yield self._figure(statistic, value_of(rates.values), error, known)

    def _by_times(self, rows: Rows, rates: Rates, extent: dict[str, Any]) -> Iterator[Figure]:
        """Samples over the time of the steps; from rates alone, their harmonic mean weighted
        with the steps."""
        semantics, times, own = self.log.semantics, rows["seconds"], rows["own_rate"]
        timed = np.isfinite(times) & (times > 0)
        waiting = timed & np.isfinite(rows["reader"])
        waits, seconds = rows["reader"][waiting].sum(), np.nansum(times)
        steps = rows["steps"].sum()
        # Where the format leaves open whether the wait is in the printed time, the less of the
        # two shares.
        apart = 0.0 if semantics.reader == "in" else waits
        share = share_of(waits, times[waiting].sum() + apart) if waiting.any() else None
        known = extent | {"wait_share": share}
        # Where times are differences of running means, the rounding of each print is multiplied
        # with all steps before. Each time may have been rounded the same way.
        running = semantics.covers == "running"
        factor = 2 * (rows["last"] - rows["since"] + 1).sum() / steps if running else 1.0
        # What the printed waits are in, a format has to tell.
        if self.samples and timed.all() and (semantics.reader or not waits):
            rate = self.samples * steps / seconds
            error = half_unit(rows["printed_seconds"], 1e-9) * factor * steps / seconds
            yield self._figure("samples/time", rate, error * rate, known, "device")
        elif len(rates.values) and ((own > LEAST_RATE) & (own < MOST_RATE)).all():
            rate = steps / (rows["steps"] / own).sum()
            error = rates.half * factor if running else rates.rounding(len(own))
            yield self._figure("samples/time", rate, error, known)

    def _by_clock(self, period: Period, extent: dict[str, Any]) -> Iterator[Figure]:
        """Samples over the time from print to print, where both are in the same epoch."""
        every = self.rows
        on = every["goes_on"] & inside(every, period, "since") & (every["passed"] >= 0)
        rows = some_of(every, on)
        seconds, steps = rows["passed"].sum(), (rows["last"] - rows["since"] + 1).sum()
        if not (seconds > 0 and self.samples):
            return
        rate, waits = self.samples * steps / seconds, rows["reader"].sum()
        # Each stretch begins and ends with a reading of the clock.
        stretches = (np.diff(on, prepend=False) & on).sum()
        error = stretches * 2 * half_unit(rows["at"]) / seconds * rate
        known = {"first": int(rows["since"].min()), "last": int(rows["last"].max())}
        known |= {"steps": int(steps)}
        share = None if np.isnan(waits) else share_of(waits, seconds)
        yield self._figure(
            "clock", rate, error, extent | known | {"wait_share": share}, "device"
        )
