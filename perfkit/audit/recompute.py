"""Compute every throughput of a log, by each statistic that suites use."""

from collections.abc import Callable, Iterator
from decimal import Decimal, InvalidOperation
from functools import cached_property
from typing import Any, Literal, get_args

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
STATISTICS: dict[Statistic, Callable[[np.ndarray], float]] = {
    "mean of rates": np.mean,
    "harmonic mean": lambda rates: len(rates) / (1 / rates).sum(),
    "median": np.median,
    "last print": lambda rates: rates[-1],
    "first print": lambda rates: rates[0],
    "maximum": np.max,
}
OF_ONE = ("last print", "first print", "maximum")
"""Statistics that select a single printed rate."""
PRINTED_TIMES = 1e-9
"""Relative error that printed times may have got by computing with them."""


def device_samples(log: Log) -> int:
    """Return a device's samples per step, or its tokens if rates count tokens; 0 if unknown."""
    samples = log.number("batch_size")
    if log.semantics.step == "update":
        samples *= _accumulate(log)
    model = find_model(log.fact("model"))
    unit = log.fact("unit") or (model and model.unit)
    if unit == "tokens/s":
        return samples * log.number("sequence_length")
    return samples if unit in SAMPLES else 0


def _accumulate(log: Log) -> int:
    """Return the batches of an update. BERT suites accumulate by default, so an unknown number
    is 0 for them and 1 for others."""
    accumulate = log.number("accumulate")
    if accumulate or {log.fact("model"), log.fact("unit")} & SEQUENCES:
        return accumulate
    return 1


def half_of(text: str) -> float:
    """Return half a unit of the last digit of a printed number: 0.05 for "387.1"."""
    try:
        exponent = Decimal(text.strip().replace(",", "")).as_tuple().exponent
    except InvalidOperation:
        return 0.0
    # Infinity and nan have letters as exponents.
    return 0.5 * 10.0**exponent if isinstance(exponent, int) else 0.0


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


def share_of(waits: float, time: float) -> float | None:
    """Return waits / time; None if the two contradict each other."""
    if time <= 0 or not 0 <= waits / time <= 1:
        return None
    return float(waits / time)


def rank_of(windows: Columns) -> int:
    """Return the rank whose prints are used: the slowest of the ranks whose prints cover the
    most steps, because ranks wait for each other in each step; of equals the first."""
    ranks, rank_index = np.unique(windows["rank"], return_inverse=True)
    if len(ranks) == 1:
        return int(ranks[0])
    steps = windows["last"] - windows["first"] + 1
    seconds = known_first(windows["seconds"], steps / windows["own_rate"])
    seconds = np.where(np.isfinite(seconds), seconds, 0.0)
    steps_of_rank = np.bincount(rank_index, steps)
    seconds_of_rank = np.bincount(rank_index, seconds)
    # The last key counts first.
    order = np.lexsort((-np.abs(ranks), seconds_of_rank, steps_of_rank))
    return int(ranks[order[-1]])


# The windows of a log.


def steps_of(log: Log) -> Columns:
    """Return the windows of the slowest rank with further columns:

    steps           number of steps
    goes_on         whether the previous window is in the same epoch
    since           the first step after that window; 1 at the beginning of an epoch
    clock_seconds   seconds between both prints, by the prints' clock
    step_seconds    time of a step by printed times, else by rates (up to a factor), else by the
                    clock
    epoch_index     the epoch, counted over all runs from 0
    in_first_epoch  whether the epoch is the first of its run
    in_protocol     whether the epoch is the first with most of the protocol's steps
    settled         whether the steady state has begun

    Windows of steps 1–10 and 11–30 of epoch 0, and 1–10 of epoch 1, have 10, 20 and 10 steps;
    only the second goes on, since step 11; epoch_index is 0, 0 and 1.
    """
    windows = {name: log.windows[name].to_numpy() for name in log.windows}
    waits = windows["reader"]
    if log.semantics.reader == "apart" and not np.isnan(waits).all():
        windows["seconds"] = windows["seconds"] + waits
    rows = some_of(windows, windows["rank"] == rank_of(windows))
    run, epoch, last = rows["run"], rows["epoch"], rows["last"]
    begins_run = _changes(run)
    begins_epoch = begins_run | _changes(epoch)
    goes_on = ~begins_epoch & (np.diff(last, prepend=0) > 0)
    first_epochs = epoch[begins_run]
    run_index = np.cumsum(begins_run) - 1
    rows = rows | {
        "steps": last - rows["first"] + 1,
        "goes_on": goes_on,
        "since": np.where(goes_on, np.roll(last, 1), 0) + 1,
        "clock_seconds": np.diff(rows["at"], prepend=np.nan),
        "epoch_index": np.cumsum(begins_epoch) - 1,
        "in_first_epoch": epoch == first_epochs[run_index],
    }
    rows["in_protocol"] = _in_protocol(rows)
    rows["step_seconds"] = _step_seconds(rows)
    rows["settled"] = _settled(rows["step_seconds"])
    return rows


def _changes(values: np.ndarray) -> np.ndarray:
    """Mark the first value and each that differs from its predecessor: True, False, True for
    4, 4, 5."""
    return np.append(True, np.diff(values) != 0)


def _in_protocol(rows: Columns) -> np.ndarray:
    """Mark the windows of the first epoch that has most of the protocol's steps. If epoch 0 has
    40 of them and epochs 1 and 2 all 100, these are the windows of epoch 1."""
    is_inside = (rows["first"] > WARMUP) & (rows["last"] <= END)
    steps_of_epoch = np.bincount(rows["epoch_index"], rows["steps"] * is_inside)
    steps_of_epoch = steps_of_epoch.clip(max=END - WARMUP)
    if steps_of_epoch.max() == 0:
        return np.full(len(is_inside), False)
    return rows["epoch_index"] == steps_of_epoch.argmax()


def _step_seconds(rows: Columns) -> np.ndarray:
    """Return the time of a step in each window by the first source that the log has: printed
    times, rates (up to a factor), or the clock."""
    printed = rows["seconds"] / rows["steps"]
    if not np.isnan(printed).all():
        return printed
    rates = known_first(rows["own_rate"], rows["rate"])
    by_rates = 1 / np.where(rates > 0, rates, np.nan)
    if not np.isnan(by_rates).all():
        return by_rates
    return rows["clock_seconds"] / rows["steps"]


def _settled(step_seconds: np.ndarray) -> np.ndarray:
    """Mark the windows since the beginning of the steady state; none without one. Windows with
    an implausible time don't count."""
    plausible = np.flatnonzero((step_seconds > 1 / MOST_RATE) & (step_seconds < 1 / LEAST_RATE))
    begin = len(step_seconds)
    if len(plausible):
        state = steadiness(step_seconds[plausible])
        if state and state.settled:
            begin = plausible[state.begin]
    return np.arange(len(step_seconds)) >= begin


def inside(rows: Columns, period: Period, first: str = "first") -> np.ndarray:
    """Return the mask of windows wholly in the period; column `first` has their first steps."""
    is_after_warmup = rows[first] > WARMUP
    match period:
        case "all":
            return np.full(len(is_after_warmup), True)
        case "warm":
            return ~rows["in_first_epoch"] | is_after_warmup
        case "protocol":
            return rows["in_protocol"] & is_after_warmup & (rows["last"] <= END)
    return rows["settled"]


# Figures.


class Rates:
    """Plausible printed rates (`values`) and half a unit of their last digit (`half`)."""

    def __init__(self, rates: np.ndarray) -> None:
        self.values = rates[_is_plausible(rates)]
        self.half = half_unit(self.values)

    def rounding(self, count: int) -> float:
        """Return the largest rounding error of a mean of `count` rates: three standard
        deviations of independent errors if the rates spread over many last digits."""
        spread = np.ptp(self.values[:SKIPPED_AT_MOST])
        if spread < 20 * self.half:
            return self.half
        return float(self.half * min(1.0, (3 / count) ** 0.5))


def _is_plausible(rates: Any) -> Any:
    return (rates > LEAST_RATE) & (rates < MOST_RATE)


def make_figure(
    statistic: Statistic,
    rate: float,
    error: float,
    of: Literal["device", "all"],
    ranks: int,
    **fields: Any,
) -> Figure:
    """Return a figure from a rate of one device or of all, and the rate's rounding error.
    `ranks` is the number of devices, 0 if unknown; `fields` are other fields of the figure."""
    rate = float(rate)
    throughput: float | None = None
    per_device: float | None = None
    if of == "all":
        throughput = rate
        if ranks:
            per_device = rate / ranks
    else:
        per_device = rate
        if ranks:
            throughput = rate * ranks
    return Figure(
        statistic=statistic,
        throughput=throughput,
        per_device=per_device,
        rounding=float(error / rate),
        **{"period": None, "first": None, **fields},
    )


class PeriodFigures:
    """The figures of one period of a log: `rows` are all its windows, `mask` those of the
    period."""

    def __init__(self, log: Log, rows: Columns, period: Period, mask: np.ndarray) -> None:
        self.semantics, self.ranks = log.semantics, log.number("ranks")
        self.samples = device_samples(log)
        self.every_row, self.rows, self.period = rows, some_of(rows, mask), period
        self.rates = Rates(self.rows["rate"])
        self.extent = {
            "period": period,
            "first": int(self.rows["first"].min()),
            "last": int(self.rows["last"].max()),
            "steps": int(self.rows["steps"].sum()),
            "epochs": len(np.unique(self.rows["epoch_index"])),
            "prints": int(mask.sum()),
        }

    def every(self) -> Iterator[Figure]:
        yield from self._by_times()
        yield from self._by_clock()
        count = len(self.rates.values)
        if self.period == "steady" or not count:
            return
        for statistic, value_of in STATISTICS.items():
            is_single = statistic in OF_ONE
            if is_single and self.period != "all":
                continue
            prints = 1 if is_single else count
            averaged = 1 if statistic == "median" else prints
            rate, error = value_of(self.rates.values), self.rates.rounding(averaged)
            yield self._of_prints(statistic, rate, error, prints=prints)

    def _of_prints(
        self, statistic: Statistic, rate: float, error: float, **fields: Any
    ) -> Figure:
        """Return a figure from a rate as printed."""
        of = self.semantics.rate_of
        return make_figure(statistic, rate, error, of, self.ranks, **{**self.extent, **fields})

    def _by_times(self) -> Iterator[Figure]:
        """Yield samples / time by printed times, or step-weighted harmonic mean of rates."""
        times, rates = self.rows["seconds"], self.rows["own_rate"]
        steps = self.rows["steps"].sum()
        is_timed = np.isfinite(times) & (times > 0)
        is_waiting = is_timed & np.isfinite(self.rows["reader"])
        waits = self.rows["reader"][is_waiting].sum()
        share = None
        if is_waiting.any():
            time = times[is_waiting].sum()
            if not self.semantics.reader:
                # If it is unknown whether printed times include the wait, use the smaller
                # share.
                time += waits
            share = share_of(waits, time)
        # Waits are usable only if the format tells whether times include them.
        has_times = is_timed.all() and (self.semantics.reader or not waits)
        if self.samples and has_times:
            seconds = np.nansum(times)
            rate = self.samples * steps / seconds
            half = half_unit(self.rows["printed_seconds"], PRINTED_TIMES)
            error = half * self._error_factor() * steps / seconds * rate
            fields = {**self.extent, "wait_share": share}
            yield make_figure("samples/time", rate, error, "device", self.ranks, **fields)
        elif len(self.rates.values) and _is_plausible(rates).all():
            rate = steps / (self.rows["steps"] / rates).sum()
            error = self.rates.rounding(len(rates))
            if self.semantics.covers == "running":
                error = self.rates.half * self._error_factor()
            yield self._of_prints("samples/time", rate, error, wait_share=share)

    def _error_factor(self) -> float:
        """Return the factor by which rounding affects a sum: all values may have been rounded
        in the same direction, and differences of running means multiply the rounding of each
        print by all steps before."""
        if self.semantics.covers != "running":
            return 1.0
        steps_since = self.rows["last"] - self.rows["since"] + 1
        return float(2 * steps_since.sum() / self.rows["steps"].sum())

    def _by_clock(self) -> Iterator[Figure]:
        """Yield samples / time between prints of the same epoch, by the prints' clock."""
        every = self.every_row
        is_timed = every["goes_on"] & (every["clock_seconds"] >= 0)
        is_timed &= inside(every, self.period, "since")
        rows = some_of(every, is_timed)
        seconds = rows["clock_seconds"].sum()
        steps = (rows["last"] - rows["since"] + 1).sum()
        if not (seconds > 0 and self.samples):
            return
        rate = self.samples * steps / seconds
        # Each contiguous stretch has two clock readings.
        stretches = (np.diff(is_timed, prepend=False) & is_timed).sum()
        error = stretches * 2 * half_unit(rows["at"]) / seconds * rate
        waits = rows["reader"].sum()
        fields = self.extent | {
            "first": int(rows["since"].min()),
            "last": int(rows["last"].max()),
            "steps": int(steps),
            "wait_share": None if np.isnan(waits) else share_of(waits, seconds),
        }
        yield make_figure("clock", rate, error, "device", self.ranks, **fields)


class Figures:
    """The figures of a log: `shown` by each statistic; `rows` as from steps_of, empty if no
    print names a step. `samples` (of a device in a step) is 0 if unknown."""

    @np.errstate(all="ignore")
    def __init__(self, log: Log) -> None:
        self.log, self.samples = log, device_samples(log)
        self.rows = steps_of(log) if len(log.windows) else {}
        self.shown = []
        for figure in (*self._reported(), *self._computed()):
            if _is_plausible(figure.value) and figure.rounding < 1:
                self.shown.append(figure)

    def _reported(self) -> Iterator[Figure]:
        of, ranks = self.log.semantics.rate_of, self.log.number("ranks")
        for reported in self.log.reported:
            if reported.is_rate and _is_plausible(reported.value):
                yield make_figure(
                    "reported",
                    reported.value,
                    half_of(reported.text),
                    of,
                    ranks,
                    name=plain(reported.name),
                    text=plain(reported.text),
                    line=reported.line,
                )

    def _computed(self) -> Iterator[Figure]:
        if not self.rows:
            return
        periods: tuple[Period, ...] = get_args(Period)
        masks = {period: inside(self.rows, period) for period in periods}
        warm = masks["warm"]
        # Without the warm-up, there may be nothing but the protocol's steps.
        if (warm == masks["all"]).all() or (warm == masks["protocol"]).all():
            del masks["warm"]
        for period, mask in masks.items():
            if mask.any():
                yield from PeriodFigures(self.log, self.rows, period, mask).every()

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
        if not self.rows or self.log.semantics.covers != "step":
            return False
        leaves_out = self.rows["first"] > self.rows["since"]
        return float(leaves_out.mean()) > 0.5

    @property
    def input_share(self) -> float | None:
        """Data wait / time of all steps."""
        for figure in self.shown:
            if figure.period == "all" and figure.wait_share:
                return figure.wait_share
        return None

    @cached_property
    def skipping(self) -> list[Figure]:
        """Means of printed rates without the first 1, 2, … prints ("mean after warm-up"). Of
        the rates 10, 20 and 30, these are 25 and 30."""
        if not self.rows:
            return []
        rates = Rates(self.rows["rate"])
        # Cumulative sums from the end give the sum of each tail.
        sums = np.cumsum(rates.values[::-1])[::-1].tolist()
        of, ranks = self.log.semantics.rate_of, self.log.number("ranks")
        figures = []
        for skipped in range(1, min(len(sums), SKIPPED_AT_MOST + 1)):
            count = len(sums) - skipped
            figure = make_figure(
                "mean after skipping",
                sums[skipped] / count,
                rates.rounding(count),
                of,
                ranks,
                period="all",
                skipped=skipped,
                prints=count,
            )
            figures.append(figure)
        return figures
