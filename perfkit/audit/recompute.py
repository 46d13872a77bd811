"""Compute every throughput of a log, by each statistic that suites use."""

from collections.abc import Callable, Iterator
from decimal import Decimal, InvalidOperation
from functools import cached_property
from typing import Any, get_args

import numpy as np

from perfkit.audit.figure import Figure, Period, Statistic
from perfkit.audit.log import Columns, Log, known_first, some_of
from perfkit.core.config import Protocol
from perfkit.core.format import plain
from perfkit.core.models import find_model
from perfkit.core.steady import steadiness

PROTOCOL = Protocol.named("published")
WARMUP, END = PROTOCOL.warmup_steps, PROTOCOL.steps
"""The protocol measures steps WARMUP + 1 to END."""
SKIPPED_AT_MOST = 100
"""Prints that suites drop as warm-up, at most."""
SEQUENCES = {"bert", "bert-large", "sequences/s"}
SAMPLES = {"samples/s", "images/s", "sequences/s", None}
"""Units that count by the batch size. Tokens also need the sequence length; for frames and
other units, the number per sample is unknown."""
LEAST_RATE, MOST_RATE = 1e-9, 1e15
"""Rates per second outside this range are implausible; their sums would overflow."""
STATISTICS: dict[Statistic, Callable[[Any], float]] = {
    "mean of rates": np.mean,
    "harmonic mean": lambda rates: len(rates) / (1 / rates).sum(),
    "median": np.median,
    "last print": lambda rates: rates[-1],
    "first print": lambda rates: rates[0],
    "maximum": np.max,
}
OF_ONE = ("last print", "first print", "maximum")
"""Statistics that select a single printed rate."""


def device_samples(log: Log) -> int:
    """Return a device's samples per step, or its tokens if rates count tokens; 0 if unknown."""
    samples, accumulate = log.number("batch_size"), log.number("accumulate")
    if log.semantics.step == "update":
        # BERT suites accumulate by default, so an unknown count is not 1.
        bert = bool({log.fact("model"), log.fact("unit")} & SEQUENCES)
        samples *= accumulate or (0 if bert else 1)
    model = find_model(log.fact("model"))
    unit = log.fact("unit") or (model and model.unit)
    if unit == "tokens/s":
        return samples * log.number("sequence_length")
    return samples if unit in SAMPLES else 0


def half_of(text: str) -> float:
    """Return half a unit of the last digit of a printed number: 0.05 for "387.1"."""
    try:
        exponent = Decimal(text.strip().replace(",", "")).as_tuple().exponent
    except InvalidOperation:
        return 0.0
    return 0.5 * 10.0**exponent if isinstance(exponent, int) else 0.0


def half_unit(values: Any, relative: float = 1e-15) -> float:
    """Return half a unit of the last digit to which all values were printed, within `relative`;
    0 for values with all digits."""
    finite = np.asarray(values, float)
    finite = finite[np.isfinite(finite)][:1000]
    for digits in range(13):
        if np.all(np.abs(finite - np.round(finite, digits)) <= relative * np.abs(finite)):
            return 0.5 * 10.0**-digits
    return 0.0


def share_of(waits: float, time: float) -> float | None:
    """Return waits / time; None if the two contradict each other."""
    share = waits / time if time > 0 else -1.0
    return float(share) if 0 <= share <= 1 else None


def rank_of(windows: Columns) -> int:
    """Return the rank whose prints are used: of the ranks whose prints cover the most steps the
    slowest, because ranks wait for each other in each step; of equals the first."""
    ranks, of = np.unique(windows["rank"], return_inverse=True)
    if len(ranks) == 1:
        return int(ranks[0])
    steps = windows["last"] - windows["first"] + 1
    took = known_first(windows["seconds"], steps / windows["own_rate"])
    took = np.bincount(of, np.where(np.isfinite(took), took, 0.0))
    return int(ranks[np.lexsort((-np.abs(ranks), took, np.bincount(of, steps)))[-1]])


def steps_of(log: Log) -> Columns:
    """Return the windows of the slowest rank, with columns: `steps`, their number; `goes_on`,
    whether the previous window is in the same epoch; `since`, the first step after that window,
    else 1; `passed`, seconds between both prints; `step_seconds`, a step's time by printed
    times, else by rates (up to a factor), else by the clock; `place`, the epoch counted over
    all runs from 0; `begins`, whether it is the first of its run; `asked`, whether it is the
    first with most of the protocol's steps; `settled`, whether the steady state has begun."""
    windows = {name: log.windows[name].to_numpy() for name in log.windows}
    waits = windows["reader"]
    if log.semantics.reader == "apart" and not np.isnan(waits).all():
        windows["seconds"] = windows["seconds"] + waits
    rows = some_of(windows, windows["rank"] == rank_of(windows))
    run, epoch, first, last = (rows[name] for name in ("run", "epoch", "first", "last"))
    new_run = np.append(True, np.diff(run) != 0)
    opens = new_run | np.append(True, np.diff(epoch) != 0)
    goes_on = ~opens & (np.diff(last, prepend=0) > 0)
    steps, place = last - first + 1, np.cumsum(opens) - 1
    passed = np.diff(rows["at"], prepend=np.nan)
    rates = known_first(rows["own_rate"], rows["rate"])
    times = (rows["seconds"] / steps, 1 / np.where(rates > 0, rates, np.nan))
    seconds = next((known for known in times if not np.isnan(known).all()), passed / steps)
    timed = np.flatnonzero((seconds > 1 / MOST_RATE) & (seconds < 1 / LEAST_RATE))
    found = steadiness(seconds[timed]) if len(timed) else None
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


def inside(rows: Columns, period: Period, first: str = "first") -> np.ndarray:
    """Return the mask of windows wholly in the period; column `first` has their first steps."""
    late = rows[first] > WARMUP
    return {
        "all": np.full(len(late), True),
        "warm": ~rows["begins"] | late,
        "protocol": rows["asked"] & late & (rows["last"] <= END),
        "steady": rows["settled"],
    }[period]


class Rates:
    """Plausible printed rates (`values`) and half a unit of their last digit (`half`)."""

    def __init__(self, rates: np.ndarray) -> None:
        self.values = rates[(rates > LEAST_RATE) & (rates < MOST_RATE)]
        self.half = half_unit(self.values)

    def rounding(self, count: int) -> float:
        """Return the largest rounding error of a mean of `count` rates: three standard
        deviations of independent errors if the rates spread over many last digits."""
        spread = np.ptp(self.values[:SKIPPED_AT_MOST]) >= 20 * self.half
        return self.half * (min(1.0, (3 / count) ** 0.5) if spread else 1.0)


class Figures:
    """Figures of a log: `shown` by each statistic; `rows` as from steps_of, empty if no print
    names a step. `ranks` and `samples` (of a device in a step) are 0 if unknown."""

    @np.errstate(all="ignore")
    def __init__(self, log: Log) -> None:
        self.log, self.ranks, self.samples = log, log.number("ranks"), device_samples(log)
        self.rows = steps_of(log) if len(log.windows) else {}
        found = [*self._reported()]
        if self.rows:
            masks = {period: inside(self.rows, period) for period in get_args(Period)}
            # Without the warm-up, there may be nothing but the protocol's steps.
            if any((masks["warm"] == masks[period]).all() for period in ("all", "protocol")):
                del masks["warm"]
            for period, mask in masks.items():
                found += self._of_period(period, mask)
        self.shown = [f for f in found if LEAST_RATE < f.value < MOST_RATE and f.rounding < 1]

    def find(self, statistic: Statistic, period: Period) -> Figure | None:
        """Return the figure of a statistic and a period, if it exists."""
        for figure in self.shown:
            if (figure.statistic, figure.period) == (statistic, period):
                return figure
        return None

    @property
    def rank(self) -> int:
        """Rank whose prints are used; -1 if unnamed."""
        return int(self.rows["rank"][0]) if self.rows else -1

    @property
    def has_warmup(self) -> bool:
        """Whether prints cover steps of the warm-up."""
        return bool(self.rows) and not inside(self.rows, "warm").all()

    @property
    def is_sampled(self) -> bool:
        """Whether prints cover their last step alone and most leave out steps before it."""
        apart = self.log.semantics.covers == "step" and bool(self.rows)
        return apart and float((self.rows["first"] > self.rows["since"]).mean()) > 0.5

    @property
    def input_share(self) -> float | None:
        """Data wait / time of all steps."""
        shares = (figure.wait_share for figure in self.shown if figure.period == "all")
        return next(filter(None, shares), None)

    @cached_property
    def skipping(self) -> list[Figure]:
        """Means of printed rates without the first 1, 2, … prints ("mean after warm-up")."""
        rates = Rates(self.rows["rate"] if self.rows else np.zeros(0))
        # Cumulative sums from the end give the sum of each tail.
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
        """Return a figure from a rate of a "device" or of "all" (default: as printed rates),
        its rounding error `error`, and its other fields `known`."""
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
        for own in self.log.reported:
            if own.is_rate and LEAST_RATE < own.value < MOST_RATE:
                known = {"name": plain(own.name), "text": plain(own.text), "line": own.line}
                yield self._figure("reported", own.value, half_of(own.text), known)

    def _of_period(self, period: Period, mask: np.ndarray) -> Iterator[Figure]:
        if not mask.any():
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
            is_single = statistic in OF_ONE
            if not is_single or period == "all":
                error = rates.rounding(1 if is_single or statistic == "median" else count)
                known = extent | {"prints": 1 if is_single else count}
                yield self._figure(statistic, value_of(rates.values), error, known)

    def _by_times(
        self, rows: Columns, rates: Rates, extent: dict[str, Any]
    ) -> Iterator[Figure]:
        """Yield samples / time by printed times, or step-weighted harmonic mean of rates."""
        semantics, times, own = self.log.semantics, rows["seconds"], rows["own_rate"]
        timed = np.isfinite(times) & (times > 0)
        waiting = timed & np.isfinite(rows["reader"])
        waits, seconds = rows["reader"][waiting].sum(), np.nansum(times)
        steps = rows["steps"].sum()
        # If it is unknown whether printed times include the wait, use the smaller share.
        apart = 0.0 if semantics.reader else waits
        share = share_of(waits, times[waiting].sum() + apart) if waiting.any() else None
        known = extent | {"wait_share": share}
        # Differences of running means multiply the rounding of each print by all steps before.
        # All times may have been rounded in the same direction.
        running = semantics.covers == "running"
        factor = 2 * (rows["last"] - rows["since"] + 1).sum() / steps if running else 1.0
        # Waits are usable only if the format tells whether times include them.
        if self.samples and timed.all() and (semantics.reader or not waits):
            rate = self.samples * steps / seconds
            error = half_unit(rows["printed_seconds"], 1e-9) * factor * steps / seconds
            yield self._figure("samples/time", rate, error * rate, known, "device")
        elif len(rates.values) and ((own > LEAST_RATE) & (own < MOST_RATE)).all():
            rate = steps / (rows["steps"] / own).sum()
            error = rates.half * factor if running else rates.rounding(len(own))
            yield self._figure("samples/time", rate, error, known)

    def _by_clock(self, period: Period, extent: dict[str, Any]) -> Iterator[Figure]:
        """Yield samples / time between prints of the same epoch, by the prints' clock."""
        on = self.rows["goes_on"] & (self.rows["passed"] >= 0)
        on &= inside(self.rows, period, "since")
        rows = some_of(self.rows, on)
        seconds, steps = rows["passed"].sum(), (rows["last"] - rows["since"] + 1).sum()
        if not (seconds > 0 and self.samples):
            return
        rate, waits = self.samples * steps / seconds, rows["reader"].sum()
        # Each contiguous stretch has two clock readings.
        stretches = (np.diff(on, prepend=False) & on).sum()
        error = stretches * 2 * half_unit(rows["at"]) / seconds * rate
        known = {"first": int(rows["since"].min()), "last": int(rows["last"].max())}
        known |= {"steps": int(steps)}
        share = None if np.isnan(waits) else share_of(waits, seconds)
        yield self._figure(
            "clock", rate, error, extent | known | {"wait_share": share}, "device"
        )
