"""Findings about one log."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from perfkit.analysis.warnings import STANDING, has_few_guesses, untrained_losses
from perfkit.audit.audit import LocatedFinding
from perfkit.audit.figure import (
    TIMED,
    CommonRates,
    Figure,
    Period,
    Statistic,
    common_rates,
)
from perfkit.audit.log import Columns, Log, some_of
from perfkit.audit.rate_check import rate_findings
from perfkit.audit.recompute import Figures
from perfkit.audit.samples import SAMPLES, rate_unit, unit_of
from perfkit.audit.slow_windows import SlowWindows
from perfkit.audit.statements import (
    ClockDiffers,
    ConstantLoss,
    EpochTimes,
    FewerSteps,
    Finding,
    FirstLoss,
    InputLimit,
    InputWait,
    LastLoss,
    LossNotFalling,
    LossNotFinite,
    MeanOfRates,
    NegativeAccuracy,
    NoBatchSize,
    NoPrints,
    Note,
    NotTraining,
    OddRates,
    ProtocolNotSteady,
    Resumed,
    SlowPrint,
    Unknown,
)
from perfkit.audit.steps import END, WARMUP, inside
from perfkit.core.models import Model, find_model

APART = 0.005
"""Share by which two figures must differ to count as different."""
WAIT = 0.05
"""Share of the time spent waiting for input above which a finding is reported."""
LIMIT_SPREAD = 0.02
"""Waits that vary by less than this share of a step's time show no input limit."""
MOST_WAITS = 2000
"""Steps at the end of a log whose waits are compared, at most."""
CLOCK_APART = 0.02
"""Share by which printed times must differ from the prints' clock to be reported."""
SLOW = 0.1
"""A slow print takes more than this share of the time and SLOW_TIMES its share of the steps."""
SLOW_TIMES = 3
UNSTEADY = 0.01
"""Share by which the protocol's steps must differ from the steady ones to be reported."""
FEW = 10
"""Losses averaged at either end."""


@np.errstate(all="ignore")
def findings_of(name: str, figures: Figures, slow: SlowWindows) -> list[LocatedFinding]:
    """Return the findings about one log under its `name`, besides those about `slow` windows,
    which explain some others."""
    notes = [*figures.log.notes, *_of_log(figures, slow)]
    if figures.log.semantics.step == "epoch":
        notes.insert(0, Note(EpochTimes()))
    elif figures.rows and not figures.shown and not figures.samples.are_known:
        notes.insert(0, Note(_no_batch_size(figures)))
    return [LocatedFinding(finding=finding, file=name, line=line) for finding, line in notes]


def _no_batch_size(figures: Figures) -> NoBatchSize:
    """Return what is unknown of the samples of a step."""
    log = figures.log
    batch = log.number("batch_size") or log.number("global_batch_size")
    if not batch:
        return NoBatchSize()
    return NoBatchSize(unknown=_unknown(figures), batch=round(batch))


def _unknown(figures: Figures) -> Unknown:
    """Return what is unknown of the samples of a step whose batch size is known."""
    log = figures.log
    if figures.stated_samples.are_known:
        return "contradicted"
    unit = unit_of(log.facts)
    if unit == "tokens/s" and not log.number("sequence_length"):
        return "sequence length"
    if unit not in (*SAMPLES, "tokens/s"):
        return "unit"
    return "accumulation"


def _of_log(figures: Figures, slow: SlowWindows) -> Iterator[Note]:
    log, rows = figures.log, figures.rows
    is_inference = log.fact("mode") == "inference"
    if is_inference:
        yield Note(NotTraining())
    if not rows:
        yield Note(NoPrints())
        return
    yield from _missing_steps(figures)
    yield from _resumed(log, rows)
    yield from _odd_numbers(rows)
    for contradicting in rate_findings(log, rows, figures.stated_samples):
        yield Note(contradicting)
    yield from _apart(figures, slow)
    yield from _slow_print(rows, slow)
    share = figures.input_share or 0.0
    if share > WAIT:
        yield Note(_data_wait(rows, share))
    if not is_inference:
        yield from _of_losses(log, rows)


def _missing_steps(figures: Figures) -> Iterator[Note]:
    if figures.log.semantics.step == "epoch":
        return
    if inside(figures.rows, "steady").any():
        # The answer is of the steady steps, wherever they are.
        return
    steps = [figure.steps for figure in figures.shown if figure.period == "protocol"]
    if not steps:
        in_protocol = inside(figures.rows, "protocol")
        steps = [int(figures.rows["steps"][in_protocol].sum())]
    if max(steps) < END - WARMUP:
        yield Note(FewerSteps(steps=max(steps), first=WARMUP + 1, last=END))


def _resumed(log: Log, rows: Columns) -> Iterator[Note]:
    before = log.number("resumed_at")
    is_resumed = rows["offset"] < 0
    if before and is_resumed.any():
        finding = Resumed(step=before, first=before + WARMUP + 1, last=before + END)
        yield Note(finding, rows["line"][is_resumed][0])


def _odd_numbers(rows: Columns) -> Iterator[Note]:
    rates, accuracy, lines = rows["rate"], rows["accuracy"], rows["line"]
    odd = (rates <= 0) | np.isinf(rates)
    if odd.any():
        yield Note(OddRates(count=odd.sum()), lines[odd][0])
    negative = accuracy < 0
    if negative.any():
        lowest = float(accuracy[negative].min())
        finding = NegativeAccuracy(count=negative.sum(), lowest=lowest)
        yield Note(finding, lines[negative][0])


# Figures that should agree.


class Pair(NamedTuple):
    """Two figures and their throughputs of the same devices."""

    figure: Figure
    other: Figure
    rates: CommonRates

    @property
    def share(self) -> float:
        """The share by which the first is above the other."""
        return self.rates.difference

    def unit(self, log: Log) -> str:
        return rate_unit(log, of_all=self.rates.of_all)


def _pair(
    figures: Figures, of: tuple[Statistic, Period], other_of: tuple[Statistic, Period]
) -> Pair | None:
    """Return the figures of two statistics and periods; None if one is missing, if they are of
    the same period, but don't cover the same steps, or if one is of all devices alone and the
    other of one."""
    figure, other = figures.find(*of), figures.find(*other_of)
    if not figure or not other:
        return None
    if figure.period == other.period and figure.ends() != other.ends():
        return None
    rates = common_rates(figure, other)
    return Pair(figure, other, rates) if rates else None


def _apart(figures: Figures, slow: SlowWindows) -> Iterator[Note]:
    findings = [_mean_of_rates(figures), _clock(figures)]
    if not slow.have_pauses:
        findings.append(_not_steady(figures))
    for finding in findings:
        if finding:
            yield Note(finding)


def _mean_of_rates(figures: Figures) -> Finding | None:
    if figures.is_sampled:
        return None
    periods: tuple[Period, ...] = ("protocol", "all")
    for period in periods:
        pair = _pair(figures, ("mean of rates", period), ("samples/time", period))
        if pair and pair.share > APART:
            return MeanOfRates(
                mean=pair.rates.rate,
                reference=pair.rates.other,
                unit=pair.unit(figures.log),
                share=pair.share,
                **pair.figure.ends(),
            )
    return None


def _clock(figures: Figures) -> Finding | None:
    periods: tuple[Period, ...] = ("protocol", "warm")
    for period in periods:
        pair = _pair(figures, ("clock", period), ("samples/time", period))
        if not pair:
            continue
        rounding = pair.figure.rounding + pair.other.rounding
        if abs(pair.share) > CLOCK_APART + rounding:
            return ClockDiffers(
                clock=pair.rates.rate,
                reference=pair.rates.other,
                unit=pair.unit(figures.log),
                difference=pair.share,
                **pair.figure.ends(),
            )
    return None


def _not_steady(figures: Figures) -> Finding | None:
    for statistic in TIMED:
        pair = _pair(figures, (statistic, "protocol"), (statistic, "steady"))
        if pair and abs(pair.share) > UNSTEADY:
            return ProtocolNotSteady(
                protocol=pair.rates.rate,
                steady=pair.rates.other,
                unit=pair.unit(figures.log),
                difference=pair.share,
                basis="clock" if statistic == "clock" else "printed",
                **pair.figure.ends(),
            )
    return None


# Times.


def _slow_print(rows: Columns, slow: SlowWindows) -> Iterator[Note]:
    """Yield a print that takes much of the time of the protocol's steps, or of all if none,
    unless it is one of the slow windows that are told already."""
    protocol = inside(rows, "protocol")
    if protocol.any():
        rows = some_of(rows, protocol)
    steps, times = rows["steps"], rows["seconds"]
    if not (times > 0).any():
        times = steps / rows["own_rate"]
    times = np.where(np.isfinite(times), times, 0.0)
    total = times.sum()
    if total <= 0:
        return
    longest = times.argmax()
    share = float(times[longest] / total)
    share_of_steps = steps[longest] / steps.sum()
    if rows["line"][longest] in slow.lines:
        return
    if share > max(SLOW, SLOW_TIMES * share_of_steps):
        finding = SlowPrint(share=share, steps=steps[longest], of=steps.sum())
        yield Note(finding, rows["line"][longest])


def _data_wait(rows: Columns, share: float) -> Finding:
    """Call a data wait a limit only if steps that wait less are faster by as much: waiting in
    an asynchronous loop alone does not prove an input limit."""
    from scipy.stats import kendalltau, theilslopes

    rows = some_of(rows, inside(rows, "warm"))
    waits, times = rows["reader"] / rows["steps"], rows["seconds"] / rows["steps"]
    is_printed = ~np.isnan(waits + times)
    waits, times = waits[is_printed][-MOST_WAITS:], times[is_printed][-MOST_WAITS:]
    if len(waits) < FEW:
        return InputWait(share=share)
    spread = np.ptp(np.quantile(waits, (0.1, 0.9)))
    if spread > LIMIT_SPREAD * np.median(times):
        slope = float(theilslopes(times, waits).slope)
        if kendalltau(waits, times).pvalue < 0.01 and 0.5 <= slope <= 1.5:
            return InputLimit(share=share, slope=slope)
    return InputWait(share=share)


# Losses.


def _of_losses(log: Log, rows: Columns) -> Iterator[Note]:
    """Check that the losses are those of a training, with the bounds of
    `perfkit.analysis.warnings`."""
    loss = rows["loss"]
    finite = np.flatnonzero(np.isfinite(loss))
    after_finite = int(finite[-1]) + 1 if len(finite) else 0
    # Losses that are printed but not numbers are stored as infinite.
    lost = after_finite + np.flatnonzero(~np.isnan(loss[after_finite:]))
    if len(lost):
        yield Note(LossNotFinite(), rows["line"][lost[0]])
    if not len(finite):
        return
    losses = loss[finite]
    few = max(min(FEW, len(losses) // 2), 1)
    first_mean, last_mean = float(losses[:few].mean()), float(losses[-few:].mean())
    model = find_model(log.fact("model"))
    if model:
        low, high = untrained_losses(model)
        first_loss = float(losses[0])
        is_first = rows["last"][finite[0]] <= WARMUP
        if is_first and not low <= first_loss <= high and not _has_few_guesses(log, model):
            yield Note(FirstLoss(loss=first_loss, low=low, high=high))
        if last_mean > high:
            yield Note(LastLoss(loss=last_mean, high=high))
    if len(losses) > 1 and np.ptp(losses) < STANDING:
        yield Note(ConstantLoss(loss=float(losses.min()), count=len(losses)))
    elif len(losses) > 1 and last_mean >= first_mean:
        yield Note(LossNotFalling(first=first_mean, last=last_mean))


def _has_few_guesses(log: Log, model: Model) -> bool:
    """Whether the loss of an update is that of few predictions, as far as known."""
    samples = log.number("batch_size") * (log.number("accumulate") or 1)
    return bool(samples) and has_few_guesses(model, samples)
