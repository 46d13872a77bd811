"""Compute every throughput of a log, by each statistic that suites use."""

from collections.abc import Callable, Iterator
from decimal import Decimal, InvalidOperation
from functools import cached_property
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from perfkit.audit.figure import (
    LEAST_RATE,
    MOST_RATE,
    Figure,
    Period,
    Statistic,
    StepTime,
    first_figure,
)
from perfkit.audit.log import Columns, Log, some_of
from perfkit.audit.rate_check import is_by_name, rate_findings
from perfkit.audit.samples import accumulated_batches, with_samples
from perfkit.audit.steps import inside, steps_of
from perfkit.audit.timed import Timed, by_clock, by_printed_times, half_unit
from perfkit.measuring.format import plain

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
TIMES_APART = 0.02
"""Share by which printed times must differ from the clock of the lines, rounding apart."""


def half_of(text: str) -> float:
    """Return half a unit of the last digit of a printed number: 0.05 for "387.1"."""
    try:
        exponent = Decimal(text.strip().replace(",", "")).as_tuple().exponent
    except InvalidOperation:
        return 0.0
    # Infinity and nan have letters as exponents.
    return 0.5 * 10.0**exponent if isinstance(exponent, int) else 0.0


class Rates:
    """Plausible printed rates (`values`) and half a unit of their last digit (`half`)."""

    def __init__(self, rates: np.ndarray) -> None:
        self.values = rates[_is_plausible(rates)]
        self.half = half_unit(self.values)

    def rounding(self, count: int) -> float:
        """Return the largest rounding error of a mean of `count` rates: three standard
        deviations of independent errors if the rates spread over many last digits."""
        spread = np.ptp(self.values[:100])
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
    throughput, per_device = (rate, None) if of == "all" else (None, rate)
    if ranks:
        throughput, per_device = (rate, rate / ranks) if of == "all" else (rate * ranks, rate)
    return Figure(
        statistic=statistic,
        throughput=throughput,
        per_device=per_device,
        rounding=float(error / rate),
        **{"period": None, "first": None, **fields},
    )


class TwoTimes(NamedTuple):
    """The seconds of a step of the same windows by both times; rounding may move their ratio by
    the share `rounding`."""

    printed: float
    clock: float
    rounding: float

    @property
    def share(self) -> float:
        """Share by which the rate by the printed times is above that by the clock."""
        return self.clock / self.printed - 1

    @property
    def are_apart(self) -> bool:
        return abs(self.share) > TIMES_APART + self.rounding


class PeriodFigures:
    """The figures of one period of a log: `rows` are its windows; `printed` and `clock` are its
    steps with the seconds of each, None without such times."""

    def __init__(self, log: Log, every_row: Columns, period: Period, mask: np.ndarray) -> None:
        self.semantics, self.ranks, self.period = log.semantics, log.number("ranks"), period
        self.rows = some_of(every_row, mask)
        self.rates = Rates(self.rows["rate"])
        self.is_difference = log.semantics.covers in ("running", "rolling")
        self.printed = by_printed_times(
            self.rows, self._printed_seconds(self.rows), is_difference=self.is_difference
        )
        is_clocked = every_row["goes_on"] & (every_row["clock_seconds"] >= 0)
        clocked = some_of(every_row, is_clocked & inside(every_row, period, "since"))
        self.clock = by_clock(clocked)
        self.clock_wait_share = _share(clocked["reader"].sum(), clocked["clock_seconds"].sum())
        self.two_times = self._two_times(clocked)
        self.from_epoch = int(self.rows["epoch_index"].min()) + 1
        self.extent = {
            "period": period,
            "first": int(self.rows["first"].min()),
            "last": int(self.rows["last"].max()),
            "steps": int(self.rows["steps"].sum()),
            "epochs": len(np.unique(self.rows["epoch_index"])),
            "prints": int(mask.sum()),
        }

    def _printed_seconds(self, rows: Columns) -> np.ndarray:
        """Return the seconds of each window by its printed time or, if only rates are printed,
        by samples / rate; nan if it is open whether these times include the data wait."""
        unknown = np.full(len(rows["seconds"]), np.nan)
        if np.isfinite(rows["seconds"]).any():
            is_open = np.nansum(rows["reader"]) and not self.semantics.reader
            return unknown if is_open else rows["seconds"]
        if self.semantics.samples_vary:
            return unknown
        of = "samples_of_step" if self.semantics.rate_of == "all" else "device_samples_of_step"
        seconds: np.ndarray = rows[of] * rows["steps"] / rows["own_rate"]
        return seconds

    @property
    def by_rates(self) -> Timed | None:
        """The steps with their seconds up to a common factor, by the printed rates."""
        seconds = self.rows["steps"] / self.rows["own_rate"]
        return by_printed_times(self.rows, seconds, is_difference=self.is_difference)

    def _two_times(self, rows: Columns) -> TwoTimes | None:
        """Return the times of the windows that have both; None without any."""
        steps = rows["last"] - rows["since"] + 1
        printed = self._printed_seconds(rows) / rows["steps"] * steps
        is_known = np.isfinite(printed) & (printed > 0)
        clock = rows["clock_seconds"][is_known].sum()
        if not self.clock or not self.printed or not clock > 0:
            return None
        steps_of_both = steps[is_known].sum()
        return TwoTimes(
            printed=float(printed[is_known].sum() / steps_of_both),
            clock=float(clock / steps_of_both),
            rounding=self.clock.sum_rounding + self.printed.sum_rounding,
        )

    def every(self) -> Iterator[Figure]:
        yield from self._by_printed_times()
        if self.clock:
            share = self.clock_wait_share
            yield from self._samples_over_time("clock", self.clock, wait_share=share)
        yield from self._of_prints()
        yield from self._of_median_step()

    def _by_printed_times(self) -> Iterator[Figure]:
        """Yield samples / time by printed times, or step-weighted harmonic mean of rates."""
        times, rates = self.rows["seconds"], self.rows["own_rate"]
        share = self.wait_share
        is_timed = np.isfinite(times) & (times > 0)
        if self.printed and self._are_samples_known and is_timed.all():
            yield from self._samples_over_time("samples/time", self.printed, wait_share=share)
        elif len(self.rates.values) and _is_plausible(rates).all():
            steps = self.rows["steps"]
            rate = steps.sum() / (steps / rates).sum()
            error = self.rates.rounding(len(rates))
            if self.semantics.covers == "running":
                own_steps = self.rows["last"] - self.rows["since"] + 1
                error = self.rates.half * 2 * own_steps.sum() / steps.sum()
            if not self.semantics.samples_vary:
                yield self._of_rate("samples/time", rate, error, wait_share=share)

    @property
    def _are_samples_known(self) -> bool:
        rows = self.rows
        samples = np.stack([rows["samples_of_step"], rows["device_samples_of_step"]])
        return bool(np.isfinite(samples).all(axis=1).any())

    @property
    def wait_share(self) -> float | None:
        """The share of the steps' printed time that was data wait, as far as printed."""
        times, waits = self.rows["seconds"], self.rows["reader"]
        is_waiting = np.isfinite(times) & (times > 0) & np.isfinite(waits)
        if not is_waiting.any():
            return None
        time = times[is_waiting].sum()
        if not self.semantics.reader:
            # If it is unknown whether printed times include the wait, use the smaller share.
            time += waits[is_waiting].sum()
        return _share(waits[is_waiting].sum(), time)

    def _samples_over_time(
        self, statistic: Statistic, timed: Timed, **fields: Any
    ) -> Iterator[Figure]:
        samples, device_samples = timed.samples.sum(), timed.device_samples.sum()
        seconds = timed.seconds.sum()
        if samples > 0 or device_samples > 0:
            yield Figure(
                statistic=statistic,
                throughput=_known(samples / seconds),
                per_device=_known(device_samples / seconds),
                rounding=timed.sum_rounding,
                **{**self.extent, **timed.extent(), **fields},
            )

    def _of_median_step(self) -> Iterator[Figure]:
        """Yield samples of a step / median time of a step."""
        statistics: dict[str, Statistic] = {
            "printed": "median step",
            "clock": "median step by clock",
        }
        for timed in filter(None, (self.printed, self.clock)):
            samples, device_samples = timed.samples.sum(), timed.device_samples.sum()
            if not (samples > 0 or device_samples > 0):
                continue
            seconds = timed.median_seconds * timed.steps.sum()
            yield Figure(
                statistic=statistics[timed.basis],
                throughput=_known(samples / seconds),
                per_device=_known(device_samples / seconds),
                rounding=timed.median_rounding,
                **{**self.extent, **timed.extent()},
            )

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


def _known(rate: float) -> float | None:
    return float(rate) if np.isfinite(rate) and rate > 0 else None


def _share(waits: float, time: float) -> float | None:
    """Return waits / time; None if unknown, or if the two contradict each other."""
    if not time > 0 or not 0 <= waits / time <= 1:
        return None
    return float(waits / time)


class Figures:
    """The figures of a log: `shown` by each statistic; `rows` as from steps_of and
    with_samples, empty if no print names a step; `contradicting` are the findings that printed
    rates contradict the batch."""

    @np.errstate(all="ignore")
    def __init__(self, log: Log) -> None:
        self.log = log
        self.rows = with_samples(steps_of(log), log) if len(log.windows) else {}
        self.contradicting = [*rate_findings(log, self.rows)]
        if self.contradicting and is_by_name(log):
            # The file's name is the last resort, and a figure of the log contradicts it.
            unknown = np.full(len(self.rows["steps"]), np.nan)
            self.rows |= {"samples_of_step": unknown, "device_samples_of_step": unknown}
        self.periods = {period.period: period for period in self._periods()}
        self.shown = []
        for figure in (*self._reported(), *self._computed()):
            if _is_plausible(figure.value) and figure.rounding < 1:
                self.shown.append(figure)
        self.step_times = [*self._step_times()]

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
                    line=reported.line,
                )

    def _computed(self) -> Iterator[Figure]:
        for period in self.periods.values():
            yield from period.every()

    def _step_times(self) -> Iterator[StepTime]:
        """Yield the seconds of an update; none if the batches of an update are unknown."""
        batches = 1
        if self.log.semantics.step == "batch":
            batches = accumulated_batches(self.log)
        if not batches:
            return
        for period in self.periods.values():
            for timed in filter(None, (period.printed, period.clock)):
                yield timed.of_update(period.period, batches)

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
                yield PeriodFigures(self.log, self.rows, period, mask)

    def find(self, statistic: Statistic, period: Period) -> Figure | None:
        """Return the figure of a statistic and a period, if it exists."""
        return first_figure(self.shown, [statistic], period)

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
        if "all" not in self.periods:
            return None
        period = self.periods["all"]
        return period.clock_wait_share if period.wait_share is None else period.wait_share

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
