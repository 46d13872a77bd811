"""Compute every throughput of a log, by each statistic that suites use."""

from collections.abc import Callable, Iterator
from decimal import Decimal, InvalidOperation
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np

from perfkit.audit.figure import LEAST_RATE, MOST_RATE, Figure, Period, Statistic, StepTime
from perfkit.audit.log import Columns, Log, some_of
from perfkit.audit.rate_check import is_by_name, rate_findings
from perfkit.audit.samples import StepSamples, accumulated_batches
from perfkit.audit.step_times import TimedSteps
from perfkit.audit.steps import inside, steps_of
from perfkit.core.format import plain

SKIPPED_AT_MOST = 100
"""Prints that suites drop as warm-up, at most."""
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

    def __init__(
        self, log: Log, rows: Columns, period: Period, mask: np.ndarray, samples: StepSamples
    ) -> None:
        self.semantics, self.ranks = log.semantics, log.number("ranks")
        self.samples = samples
        self.batches_of_update = 1
        if log.semantics.step == "batch":
            self.batches_of_update = accumulated_batches(log)
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
        yield from self._of_prints()
        yield from self._of_median_step()

    def _of_prints(self) -> Iterator[Figure]:
        """Yield the statistics of the printed rates."""
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
            yield self._of_rate(statistic, rate, error, prints=prints)

    def _of_rate(
        self, statistic: Statistic, rate: float, error: float, **fields: Any
    ) -> Figure:
        """Return a figure from a rate as printed."""
        of = self.semantics.rate_of
        return make_figure(statistic, rate, error, of, self.ranks, **{**self.extent, **fields})

    def _of_steps(
        self, statistic: Statistic, step_seconds: float, rounding: float, **fields: Any
    ) -> Figure:
        """Return a figure from the seconds of a step."""
        return Figure(
            statistic=statistic,
            throughput=self.samples.all / step_seconds or None,
            per_device=self.samples.device / step_seconds or None,
            rounding=float(rounding),
            **{**self.extent, **fields},
        )

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
        if self.samples.are_known and has_times:
            step_seconds = float(np.nansum(times) / steps)
            half = half_unit(self.rows["printed_seconds"], PRINTED_TIMES)
            rounding = half * self._error_factor() / step_seconds
            yield self._of_steps("samples/time", step_seconds, rounding, wait_share=share)
        elif len(self.rates.values) and _is_plausible(rates).all():
            rate = steps / (self.rows["steps"] / rates).sum()
            error = self.rates.rounding(len(rates))
            if self.semantics.covers == "running":
                error = self.rates.half * self._error_factor()
            yield self._of_rate("samples/time", rate, error, wait_share=share)

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
        is_timed = self._is_clocked()
        rows = self.clocked_rows()
        seconds = rows["clock_seconds"].sum()
        steps = (rows["last"] - rows["since"] + 1).sum()
        if not (seconds > 0 and self.samples.are_known):
            return
        # Each contiguous stretch has two clock readings.
        stretches = (np.diff(is_timed, prepend=False) & is_timed).sum()
        rounding = stretches * 2 * half_unit(rows["at"]) / seconds
        waits = rows["reader"].sum()
        fields = {
            "first": int(rows["since"].min()),
            "last": int(rows["last"].max()),
            "steps": int(steps),
            "wait_share": None if np.isnan(waits) else share_of(waits, seconds),
        }
        yield self._of_steps("clock", float(seconds / steps), rounding, **fields)

    def _is_clocked(self) -> np.ndarray:
        """Return the mask of clocked_rows."""
        every = self.every_row
        is_timed = every["goes_on"] & (every["clock_seconds"] >= 0)
        return is_timed & inside(every, self.period, "since")

    def clocked_rows(self) -> Columns:
        """Return the period's windows that have the clock of the print before."""
        return some_of(self.every_row, self._is_clocked())

    def _timed_steps(self) -> Iterator[TimedSteps]:
        """Yield the period's steps with their times: by the printed times, and by the clock."""
        rows = self.rows
        steps_of_print = float(np.median(rows["steps"]))
        half = half_unit(rows["printed_seconds"], PRINTED_TIMES) * steps_of_print
        printed = TimedSteps.of("printed", rows, self.printed_seconds(), half)
        clocked = self.clocked_rows()
        half = 2 * half_unit(clocked["at"])
        seconds = clocked["clock_seconds"]
        clock = TimedSteps.of("clock", clocked | {"first": clocked["since"]}, seconds, half)
        for timed in (printed, clock):
            if len(timed.seconds):
                yield timed

    def printed_seconds(self) -> np.ndarray:
        """Return the seconds of each window by its printed time or, if only rates are printed,
        by samples / rate; nan if it is open whether these times include the data wait."""
        rows = self.rows
        unknown = np.full(len(rows["seconds"]), np.nan)
        if not np.isnan(rows["seconds"]).all():
            is_open = np.nansum(rows["reader"]) and not self.semantics.reader
            return unknown if is_open else rows["seconds"]
        samples = self.samples.device
        if self.semantics.rate_of == "all":
            samples = self.samples.all
        return samples * rows["steps"] / rows["own_rate"] if samples else unknown

    def step_times(self) -> Iterator[StepTime]:
        """Yield the seconds of an update; none if the batches of an update are unknown."""
        if self.batches_of_update:
            for timed in self._timed_steps():
                yield timed.of_update(self.period, self.batches_of_update)

    def _of_median_step(self) -> Iterator[Figure]:
        """Yield samples / median time of a step."""
        statistics: dict[str, Statistic] = {
            "printed": "median step",
            "clock": "median step by clock",
        }
        if not self.samples.are_known:
            return
        for timed in self._timed_steps():
            statistic = statistics[timed.basis]
            seconds, rounding = timed.median_seconds, timed.median_rounding
            yield self._of_steps(statistic, seconds, rounding, **timed.extent())


class Figures:
    """The figures of a log: `shown` by each statistic; `rows` as from steps_of, empty if no
    print names a step; `samples` are those of a step, `stated_samples` those by the facts,
    which a printed rate may contradict."""

    @np.errstate(all="ignore")
    def __init__(self, log: Log) -> None:
        self.log, self.stated_samples = log, StepSamples.of(log)
        self.rows = steps_of(log) if len(log.windows) else {}
        self.samples = self.stated_samples
        if is_by_name(log) and any(rate_findings(log, self.rows, self.samples)):
            # The file's name is the last resort, and a figure of the log contradicts it.
            self.samples = StepSamples(0.0, 0.0)
        self.periods = [*self._periods()]
        self.shown = []
        for figure in (*self._reported(), *self._computed()):
            if _is_plausible(figure.value) and figure.rounding < 1:
                self.shown.append(figure)
        self.step_times: list[StepTime] = []
        for period in self.periods:
            self.step_times += period.step_times()

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
        for period in self.periods:
            yield from period.every()

    def _periods(self) -> Iterator[PeriodFigures]:
        """Yield the periods that the log has."""
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
                yield PeriodFigures(self.log, self.rows, period, mask, self.samples)

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
