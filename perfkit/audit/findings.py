"""Findings about one log."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from perfkit.analysis.datasheets import datasheet_named
from perfkit.analysis.token_flops import flops_per_token
from perfkit.analysis.warnings import STANDING
from perfkit.audit.answer import TOKENS, Answer, every_expert_counted, tokens_of_sample
from perfkit.audit.figure import Period, StepTime, unit_for
from perfkit.audit.log import Columns
from perfkit.audit.printed import MOST, PrintedQuantity
from perfkit.audit.recompute import Figures
from perfkit.audit.samples import unit_of
from perfkit.audit.slow_windows import slow_windows
from perfkit.audit.statements import (
    ClockDiffers,
    CoarseClock,
    EpochTimes,
    Finding,
    FirstStepsLeftOut,
    Impossible,
    InputWait,
    LossNotFalling,
    MeanOfRates,
    Note,
    NotTraining,
    OwnFlopsDiffer,
)
from perfkit.audit.steps import WARMUP, slow_first
from perfkit.measuring.units import PERCENT, TERA

APART = 0.005
"""Share by which two figures must differ to count as different."""
WAIT = 0.05
"""Share of the time spent waiting for input above which a finding is reported."""
MOST_APART = 1.5
"""Factor between the TFLOP/s of an answer and the log's own that neither causal attention nor
recomputation (4/3) nor the vocabulary explains."""
COARSE_CLOCK = 0.02
"""Share by which the timestamps' last digit may move the answer before it is reported."""
FEW = 10
"""Losses averaged at either end."""
WHOLE = 0.05
"""Share by which a number of devices may differ from a whole one."""


# Logs may contain numbers of any size.
@np.errstate(all="ignore")
def findings_of(
    figures: Figures, answer: Answer | None, printed: Sequence[PrintedQuantity]
) -> list[Note]:
    """Return the findings about a log, those about the time of its answer first."""
    log, rows = figures.log, figures.rows
    notes = [*_notes(_clock_differs(answer)), *slow_windows(figures, answer)]
    notes += _notes(_first_steps(rows, answer))
    notes += _notes(
        *_coarse_clock(answer, figures.step_times),
        EpochTimes() if log.semantics.step == "epoch" else None,
        _mean_of_rates(figures),
        *figures.contradicting,
        *_own_flops_differ(answer, figures),
        *_impossible(answer, printed, figures),
        *(every_expert_counted(log.facts) if answer and answer.tokens else ()),
        _input_wait(figures.input_share),
    )
    notes += log.notes
    if log.fact("mode") == "inference":
        notes += _notes(NotTraining())
    elif rows:
        notes += _loss_not_falling(rows)
    return notes


def _notes(*findings: Finding | None) -> list[Note]:
    """Return the findings that exist, which are not about a single line."""
    return [Note(finding) for finding in findings if finding]


# Times.


def _mean_of_rates(figures: Figures) -> Finding | None:
    """Return the finding that a mean of rates is above samples / time of the same steps."""
    if figures.is_sampled:
        return None
    periods: tuple[Period, ...] = ("protocol", "all")
    for period in periods:
        mean = figures.find("mean of rates", period)
        reference = figures.find("samples/time", period)
        if not mean or not reference or mean.ends() != reference.ends():
            continue
        of_all = bool(mean.throughput and reference.throughput)
        rate, other = mean.rate(of_all=of_all), reference.rate(of_all=of_all)
        if rate and other and rate / other - 1 > APART:
            return MeanOfRates(
                mean=rate,
                reference=other,
                unit=unit_for(unit_of(figures.log.facts), of_all=of_all),
                share=rate / other - 1,
                **mean.ends(),
            )
    return None


def _clock_differs(answer: Answer | None) -> Finding | None:
    """Return the finding that an answer is by timestamps because the printed times differ."""
    if not answer or answer.basis != "clock" or not answer.seconds_by_prints:
        return None
    printed, clock = answer.seconds_by_prints, answer.seconds_by_clock or 0.0
    return ClockDiffers(clock=clock, printed=printed, difference=clock / printed - 1)


def _first_steps(rows: Columns, answer: Answer | None) -> Finding | None:
    """Return the finding that the slow first steps of a short log are left out."""
    if not answer or answer.period != "warm" or not 0 < rows["warm_after"].max() < WARMUP:
        return None
    is_first = slow_first(rows)
    steps = rows["steps"][is_first]
    seconds = rows["step_seconds"]
    times = (seconds[is_first] * steps).sum() / steps.sum() / np.median(seconds[~is_first])
    return FirstStepsLeftOut(last=int(rows["last"][is_first][-1]), times=float(times))


def _coarse_clock(answer: Answer | None, step_times: Iterable[StepTime]) -> Iterator[Finding]:
    """Yield the finding that an answer by timestamps may be off by their last digit."""
    if answer is None or answer.basis != "clock":
        return
    for time in step_times:
        share = time.clock_rounding or 0.0
        if time.period == answer.period and share > COARSE_CLOCK:
            yield CoarseClock(share=share, seconds=time.mean_seconds * time.steps)


def _input_wait(share: float | None) -> Finding | None:
    return InputWait(share=share) if share and share > WAIT else None


# Operations.


def _impossible(
    answer: Answer | None, printed: Iterable[PrintedQuantity], figures: Figures
) -> Iterator[Finding]:
    """Yield the MFU of the answer and the printed MFU and TFLOP/s that no GPU, or not this one,
    can have."""
    if answer and answer.model and not answer.model.is_possible:
        yield Impossible(share=answer.model.mfu or 0.0)
    log = figures.log
    stated = log.fact("peak_tflops")
    own_peak = float(stated) if stated else _fastest_peak(str(log.fact("gpu") or ""))
    for quantity in printed:
        share, peak, tflops = 0.0, quantity.peak_tflops, None
        if quantity.quantity == "MFU":
            share = quantity.median / PERCENT
            tflops = share * peak if peak else None
        elif quantity.quantity == "TFLOP/s" and quantity.of == "device" and own_peak:
            share = quantity.median / own_peak
        if share > 1:
            devices = _devices_with(tflops, answer, figures) if tflops else None
            yield Impossible(
                name=quantity.name, share=share, peak=peak, tflops=tflops, devices=devices
            )


def _own_flops_differ(answer: Answer | None, figures: Figures) -> Iterator[Finding]:
    """Yield the printed TFLOP/s of a device that differ by much from those of an answer by the
    same steps."""
    if not answer or not answer.model or not answer.period or not answer.is_of_steps:
        return
    tflops = answer.model.tflops_per_device
    causal_tflops = answer.model.causal_tflops_per_device or tflops
    rows = figures.periods[answer.period].rows
    for quantity in figures.log.printed:
        if (quantity.quantity, quantity.of) != ("TFLOP/s", "device"):
            continue
        values = rows[quantity.column] * quantity.scale
        values = values[(values > 1 / MOST) & (values < MOST)]
        if not len(values):
            continue
        own = float(np.median(values))
        if own > MOST_APART * tflops or own < causal_tflops / MOST_APART:
            yield OwnFlopsDiffer(name=quantity.name, own=own, answer=tflops, times=tflops / own)


def _devices_with(tflops: float, answer: Answer | None, figures: Figures) -> int | None:
    """Return the devices of which each has these TFLOP/s in a usual step, if their number is a
    whole one."""
    log = figures.log
    if not answer or not answer.period or not log.number("parameters"):
        return None
    usual = figures.find("median step", answer.period)
    unit = unit_of(log.facts)
    tokens = 1 if unit == TOKENS else tokens_of_sample(log.facts, unit)
    if not usual or not usual.throughput or not tokens:
        return None
    sizes = (log.number(name) for name in ("layers", "hidden_size", "sequence_length"))
    flops = flops_per_token(log.number("parameters"), *sizes).flops
    devices = usual.throughput * tokens * flops / TERA / tflops
    is_whole = round(devices) and abs(devices / round(devices) - 1) < WHOLE
    return round(devices) if is_whole else None


def _fastest_peak(gpu: str) -> float:
    """Return the dense peak of a GPU in TFLOP/s in its fastest precision for training; 0 if
    unknown."""
    sheets = [datasheet_named(gpu, precision) for precision in ("", "fp8")]
    return max((sheet.flops_per_second / TERA for sheet in sheets if sheet), default=0.0)


# Losses.


def _loss_not_falling(rows: Columns) -> Iterator[Note]:
    """Yield the finding that the losses are not those of a training, at the line from which on
    none is a number."""
    # Losses that are printed but not numbers are stored as infinite.
    is_printed = ~np.isnan(rows["loss"])
    losses, lines = rows["loss"][is_printed], rows["line"][is_printed]
    is_number = np.isfinite(losses)
    numbers = losses[is_number]
    few = max(min(FEW, len(numbers) // 2), 1)
    first = float(numbers[:few].mean()) if len(numbers) else np.nan
    if len(losses) and not is_number[-1]:
        after_numbers = np.flatnonzero(is_number).max(initial=-1) + 1
        yield Note(LossNotFalling(first=first, last=np.nan), int(lines[after_numbers]))
    elif len(numbers) > 1 and numbers[-few:].mean() > first - STANDING:
        yield Note(LossNotFalling(first=first, last=float(numbers[-few:].mean())))
