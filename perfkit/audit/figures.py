"""Every throughput that a log gives, by each statistic that suites use."""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np

from perfkit.audit.blocks import blocks, protocol_epoch, rank_of
from perfkit.audit.stored import AuditedLog, Figure, Period
from perfkit.audit.sums import Sums
from perfkit.importers.log import Log, Running, Told
from perfkit.text.terminal import plain

PERIODS: tuple[Period, ...] = ("all", "warm", "protocol")


@dataclass(frozen=True)
class Figures:
    """What a log gives: `shown` are its figures by each statistic; `skipping` those means of
    its printed rates that leave out the first 1, 2, … prints."""

    rank: int
    shown: list[Figure]
    skipping: list[Figure]
    input_share: float | None
    slowest: "Slowest | None" = None


@dataclass(frozen=True)
class Slowest:
    """The print that took longest in a period: its line, its share of the time, and how many
    steps it tells of, of how many."""

    line: int
    share: float
    steps: int
    of: int


@dataclass(frozen=True)
class Recomputed:
    """A log and all its figures."""

    log: AuditedLog
    figures: Figures


def figures_of(log: Log) -> Figures:
    """All throughputs of a log; of several ranks that print, those of the slowest."""
    rank, whose = rank_of(log), Whose.of(log)
    chosen = protocol_epoch(log, rank)
    sums = {period: Sums(period, log, chosen) for period in PERIODS}
    for block in blocks(log, rank):
        for one in sums.values():
            one.add(block)
    shown = [
        _told(told, whose)
        for told in log.told
        if told.unit == "samples/s" and 0 < told.value < np.inf
    ]
    for period, one in sums.items():
        if one.prints and (period != "warm" or one.prints < sums["all"].prints):
            shown += _of_period(log, one, whose)
    measured = sums["protocol"] if sums["protocol"].prints else sums["all"]
    return Figures(
        rank,
        shown,
        [*_skipping(sums["all"], whose)],
        sums["all"].input_share,
        _slowest(measured),
    )


def _slowest(sums: Sums) -> Slowest | None:
    if not sums.took > 0:
        return None
    share = sums.longest / sums.took
    return Slowest(sums.longest_line, share, sums.longest_steps, sums.steps)


@dataclass(frozen=True)
class Whose:
    """What turns a rate of one device into that of all, as far as the log tells."""

    ranks: int | None
    samples: int | None
    """Of a device in a step."""
    rate_of: str

    @classmethod
    def of(cls, log: Log) -> "Whose":
        samples, accumulate = whole(log, "batch_size"), whole(log, "accumulate")
        if samples and log.meaning.step == "update":
            # Suites that train BERT accumulate unless they are told not to.
            told = {log.facts[name].value for name in ("model", "unit") if name in log.facts}
            bert = bool(told & {"bert", "sequences/s"})
            samples = None if bert and not accumulate else samples * (accumulate or 1)
        return cls(whole(log, "ranks"), samples, log.meaning.rate_of)

    def both(self, value: float, of: str) -> dict[str, float | None]:
        """`value`, the rate of a "device" or of "all", as the two of a Figure."""
        if of == "all":
            device = value / self.ranks if self.ranks else None
            return {"throughput": value, "per_device": device}
        every = value * self.ranks if self.ranks else None
        return {"throughput": every, "per_device": value}


def whole(log: Log, name: str) -> int | None:
    """A fact that is a number; None if the log does not tell it."""
    value = log.facts[name].value if name in log.facts else None
    return value if isinstance(value, int) and value > 0 else None


def half_of(text: str) -> float:
    """Half of the last digit of a number as it is written: 0.05 for "387.1"."""
    try:
        exponent = Decimal(text.strip().replace(",", "")).as_tuple().exponent
    except InvalidOperation:
        return 0.0
    return 0.5 * 10.0**exponent if isinstance(exponent, int) else 0.0


def _of_period(log: Log, sums: Sums, whose: Whose) -> Iterator[Figure]:
    of = whose.rate_of
    right = _samples_per_time(log, sums, whose)
    if right:
        yield right
    if sums.clocked and sums.clock_seconds > 0 and whose.samples:
        rounding = sums.clocks * sums.clock_unit / sums.clock_seconds
        own = {"first": sums.clock_first, "last": sums.clock_last, "steps": sums.clocked}
        rate = whose.samples * sums.clocked / sums.clock_seconds
        yield _figure(sums, "clock", whose.both(rate, "device"), rounding, **own)
    if not sums.rates:
        return
    mean = sums.sum_of_rates / sums.rates

    values = {
        "mean of rates": mean,
        "harmonic mean": sums.rates / sums.sum_of_inverses,
        "median": sums.every_rate.median(),
    }
    if sums.period == "all":
        values |= {
            "last print": sums.last_rate,
            "first print": sums.first_rate,
            "maximum": sums.highest,
        }
    for statistic, value in values.items():
        single = statistic in ("last print", "first print", "maximum")
        prints = 1 if single else sums.rates
        averaged = sums.rates if statistic in ("mean of rates", "harmonic mean") else 1
        rounding = sums.rate_unit_of(averaged) / value
        yield _figure(sums, statistic, whose.both(value, of), rounding, prints=prints)


def _samples_per_time(log: Log, sums: Sums, whose: Whose) -> Figure | None:
    """Samples over the time of the steps; from rates alone, their harmonic mean weighted with
    the steps."""
    # What the printed waits are in, a format has to tell.
    told = log.meaning.reader is not None or not sums.waited
    if told and whose.samples and sums.timed == sums.steps and sums.seconds > 0:
        rate = whose.samples * sums.timed / sums.seconds
        # Each time may have been rounded the same way.
        rounding = sums.time_unit * _telescoped(log, sums) * sums.timed / sums.seconds
        return _figure(sums, "samples/time", whose.both(rate, "device"), rounding)
    if not sums.rates or sums.rated < sums.steps:
        return None
    rate = sums.rated / sums.seconds_by_rate
    unit = sums.rate_unit_of(sums.prints)
    if isinstance(log.meaning.covers, Running):
        unit = sums.rate_unit * _telescoped(log, sums)
    return _figure(sums, "samples/time", whose.both(rate, whose.rate_of), unit / rate)


def _telescoped(log: Log, sums: Sums) -> float:
    """How often the rounding of one print counts in the mean of the windows: where they are
    differences of running means, it is multiplied with all steps before."""
    return 2 * sums.reach / sums.steps if isinstance(log.meaning.covers, Running) else 1.0


def _figure(
    sums: Sums, statistic: Any, both: dict[str, float | None], rounding: float, **other: Any
) -> Figure:
    known: dict[str, Any] = {
        "statistic": statistic,
        "period": sums.period,
        "rounding": rounding,
        "first": sums.first,
        "last": sums.last,
        "steps": sums.steps,
        "epochs": sums.epochs,
        "prints": sums.prints,
    }
    return Figure(**(known | both | other))


def _skipping(sums: Sums, whose: Whose) -> Iterator[Figure]:
    """Means of the printed rates without the first prints: what is published as "mean after
    warm-up"."""
    left, count = sums.sum_of_rates, sums.rates
    for skipped, rate in enumerate(sums.head, 1):
        left, count = left - rate, count - 1
        if count:
            mean = left / count
            both = whose.both(mean, whose.rate_of)
            rounding = sums.rate_unit_of(count) / mean
            own = {"skipped": skipped, "prints": count, "first": None}
            yield _figure(sums, "mean after skipping", both, rounding, **own)


def _told(told: Told, whose: Whose) -> Figure:
    both: dict[str, Any] = whose.both(told.value, whose.rate_of)
    return Figure(
        statistic="told",
        period=None,
        **both,
        rounding=half_of(told.text) / told.value,
        first=None,
        last=None,
        steps=0,
        epochs=0,
        prints=0,
        name=plain(told.name),
        text=plain(told.text),
        line=told.line,
    )
