"""The answer of an audit: the throughput of a log, for one line."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from perfkit.analysis.datasheets import Datasheet, datasheet_named
from perfkit.analysis.token_flops import flops_per_token
from perfkit.audit.config_facts import number_in
from perfkit.audit.figure import (
    LEAST_RATE,
    MOST_RATE,
    TIMED,
    Figure,
    Period,
    Statistic,
    StepTime,
    first_figure,
)
from perfkit.audit.printed import PrintedQuantity
from perfkit.audit.recompute import Figures, PeriodFigures
from perfkit.audit.samples import unit_of, unit_of_figures
from perfkit.audit.statements import ByCommand, EveryExpertCounted, SourcedFact
from perfkit.audit.timed import Basis, Timed
from perfkit.measuring.results.base import Stored
from perfkit.measuring.units import TERA

PERIODS: tuple[Period, ...] = ("steady", "protocol", "warm", "all")
"""Periods of the answer; the first that the log has counts."""
BASIS_OF: dict[Statistic, Basis] = {"samples/time": "printed", "clock": "clock"}
TOKENS = "tokens/s"
OF_TRAINING = re.compile(r"\btrain_\w{1,20}_per_second")
"""Name of a rate that a Trainer reports: of the whole training, with its evaluations."""
PADDED = "sequences/s"
"""Unit of models whose sequences are padded: they are no tokens of that number."""
COLUMNS = {
    "fp32": "fp32",
    "tf32": "tf32",
    "amp": "fp16",
    "fp16": "fp16",
    "pure_fp16": "fp16",
    "bf16": "bf16",
    "fp8": "fp8",
}
"""Precision -> column of the datasheets."""


class Speed(Stored):
    """A throughput, of all devices and of one; None if the number of devices is unknown."""

    of_all: float | None
    """throughput of all devices"""
    per_device: float | None
    """throughput of one device"""

    def rate(self, *, of_all: bool) -> float | None:
        """Return the throughput of all devices or of one; None if it is unknown."""
        return self.of_all if of_all else self.per_device

    @property
    def devices(self) -> int | None:
        """The number of devices; None if unknown."""
        if not self.of_all or not self.per_device:
            return None
        return round(self.of_all / self.per_device)


class ModelSpeed(Stored):
    """The operations of a language model's training, and their share of the device's peak."""

    tflops_per_device: float
    """model's TFLOP/s of one device: tokens/s x FLOPs of a token"""
    flops_per_token: float
    """FLOPs of training per token"""
    formula: str
    """formula of flops_per_token: N parameters, L layers, d hidden size, T sequence length"""
    causal_tflops_per_device: float | None = None
    """the same if attention is counted causally; None if attention is not counted"""
    mfu: float | None = None
    """model FLOPs utilization: tflops_per_device / peak_tflops"""
    peak_tflops: float | None = None
    """vendor's peak, dense"""
    peak_of: str = ""
    """GPU and precision of the peak"""
    peak_source: str = ""
    """source of the peak"""

    @property
    def is_possible(self) -> bool:
        """Whether the device's peak is reached at most, if attention is counted causally."""
        tflops = self.causal_tflops_per_device or self.tflops_per_device
        return self.peak_tflops is None or tflops <= self.peak_tflops


class Answer(Stored):
    """The throughput of a log over its steady steps or, without a steady state, over the
    protocol's, those after the warm-up, or all."""

    basis: Literal["printed", "clock", "reported"]
    """printed: by the printed times or rates; clock: by the timestamps of the lines; reported:
    the log's own figure, the last"""
    period: Period | None
    """period of the steps, as of a figure; None without steps"""
    first: int | None
    """first step covered, counted from 1 in its epoch"""
    last: int | None
    """last step covered"""
    steps: int
    """number of steps covered, in all epochs"""
    epochs: int
    """number of epochs covered; 0 if unknown"""
    from_epoch: int = 1
    """the first epoch covered, counted from 1"""
    seconds_per_step: float | None = None
    """seconds of an optimizer update"""
    steps_per_second: float | None = None
    """optimizer updates per second"""
    unit: str
    """unit of `samples`; empty if it is unknown"""
    samples: Speed | None
    """samples per second; None if the batch size is unknown"""
    tokens: Speed | None
    """tokens per second of a language model"""
    seconds_by_prints: float | None = None
    """seconds of an update by the printed times, of the steps that also have timestamps"""
    seconds_by_clock: float | None = None
    """seconds of an update by the timestamps of the lines, of the same steps if
    the printed times are known"""
    model: ModelSpeed | None = None
    """operations of a language model; None if its parameters are unknown"""
    name: str = ""
    """name of a reported figure in the log"""
    rate_name: str = ""
    """name of the printed quantity whose median is the throughput, if neither a batch size nor
    a rate of known steps gives one"""

    @property
    def unchecked_samples(self) -> float | None:
        """Samples of a step if its throughput is that of printed rates and its seconds those of
        timestamps, because the batch is unknown: the two may contradict each other."""
        if self.basis != "printed" or self.seconds_by_prints or not self.seconds_by_clock:
            return None
        if not self.samples:
            return None
        rate = self.samples.of_all or self.samples.per_device or 0.0
        return rate * self.seconds_by_clock

    @property
    def speed(self) -> Speed | None:
        """The throughput to tell first: in tokens of a language model, else in samples."""
        return self.tokens or self.samples

    @property
    def speed_unit(self) -> str:
        return TOKENS if self.tokens else self.unit

    @property
    def is_of_training(self) -> bool:
        """Whether the throughput is that of the whole training, not of the steps covered."""
        return self.basis == "reported" and bool(OF_TRAINING.search(self.name))

    @property
    def is_of_steps(self) -> bool:
        """Whether the throughput is that of the steps covered: the log's own figure is one of
        others, and the median of printed rates has no time that a slow step takes part of."""
        return self.basis != "reported" and not self.rate_name


class Timing(NamedTuple):
    """The steps that an answer is about, with their times."""

    period: PeriodFigures
    timed: Timed | None
    """None if only rates are known"""


# Logs may contain numbers of any size.
@np.errstate(all="ignore")
def answer_of(figures: Figures, printed: Sequence[PrintedQuantity] = ()) -> Answer | None:
    """Return the answer from all figures and printed quantities of a log; None if the log has
    neither a throughput nor a time.

    The throughput is that of the printed times or, if these differ from the timestamps of the
    lines, or without them, that of the timestamps: of the time that passed.
    """
    facts = figures.log.facts
    timing = _timing(figures)
    figure = _throughput(figures, timing)
    if not figure and not timing:
        return None
    rate = None if figure else _printed_rate(printed)
    unit = unit_of_figures(facts, [figure]) if figure else unit_of(facts)
    speed = None
    if figure:
        speed = Speed(of_all=figure.throughput, per_device=figure.per_device)
    elif rate:
        unit = TOKENS if rate.quantity == TOKENS else unit
        speed = _speed_of(rate, number_in(facts, "ranks"))
    length = tokens_of_sample(facts, unit)
    samples, tokens = speed, None
    if unit == TOKENS:
        tokens = speed
        samples = _multiplied(speed, 1 / length) if length else None
    elif length:
        tokens = _multiplied(speed, length)
    return Answer(
        **_steps(figures, figure, timing),
        unit="samples/s" if unit == TOKENS else unit,
        samples=samples,
        tokens=tokens,
        model=model_speed(tokens, facts),
        rate_name=rate.name if rate else "",
    )


def _timing(figures: Figures) -> Timing | None:
    """Return the first of PERIODS with a throughput by printed times or rates or, without any,
    with times; by the clock if the printed times differ from it."""
    timed_periods = [figures.periods[each] for each in PERIODS if each in figures.periods]
    for statistic in TIMED:
        for period in timed_periods:
            if figures.find(statistic, period.period):
                return _best(period)
    for basis in ("printed", "clock"):
        for period in timed_periods:
            if getattr(period, basis):
                return _best(period)
    return None


def _best(period: PeriodFigures) -> Timing:
    both = period.two_times
    if both and both.are_apart:
        return Timing(period, period.clock)
    return Timing(period, period.printed or period.clock)


def _throughput(figures: Figures, timing: Timing | None) -> Figure | None:
    """Return the throughput over the steps of an answer or, without any, the last one that the
    log reports itself."""
    if timing:
        statistics: list[Statistic] = ["samples/time", "clock"]
        if timing.timed and timing.timed.basis == "clock" and timing.period.two_times:
            statistics = ["clock"]
        figure = first_figure(figures.shown, statistics, timing.period.period)
        if figure:
            return figure
    reported = [figure for figure in figures.shown if figure.statistic == "reported"]
    return reported[-1] if reported else None


def _steps(figures: Figures, figure: Figure | None, timing: Timing | None) -> dict[str, Any]:
    """Return the steps of an answer and their seconds, as its fields."""
    fields: dict[str, Any] = {"basis": "reported", "steps": 0, "epochs": 0}
    fields |= dict.fromkeys(("period", "first", "last"))
    if figure and figure.statistic == "reported":
        fields["name"] = figure.name
    if not timing:
        return fields
    period, timed = timing
    time = _step_time(figures.step_times, timing)
    fields |= {"period": period.period, "from_epoch": period.from_epoch}
    of_steps: Figure | StepTime | None = time
    if figure and figure.statistic != "reported":
        fields |= {"basis": BASIS_OF[figure.statistic], "epochs": figure.epochs}
        of_steps = figure
    elif not figure and timed:
        fields["basis"] = timed.basis
    if of_steps:
        fields |= {name: getattr(of_steps, name) for name in ("first", "last", "steps")}
    if time:
        fields["seconds_per_step"] = time.mean_seconds
        fields["steps_per_second"] = 1 / time.mean_seconds
    both = period.two_times
    if both and time and timed:
        batches = time.mean_seconds / timed.mean_seconds
        fields["seconds_by_prints"] = both.printed * batches
        fields["seconds_by_clock"] = both.clock * batches
    elif time and time.basis == "clock":
        fields["seconds_by_clock"] = time.mean_seconds
    return fields


def _step_time(step_times: Sequence[StepTime], timing: Timing) -> StepTime | None:
    """Return the plausible seconds of an update in an answer's steps."""
    for time in step_times:
        is_plausible = 1 / MOST_RATE < time.mean_seconds < 1 / LEAST_RATE
        is_of_basis = timing.timed and time.basis == timing.timed.basis
        if is_plausible and is_of_basis and time.period == timing.period.period:
            return time
    return None


def _printed_rate(printed: Sequence[PrintedQuantity]) -> PrintedQuantity | None:
    """Return the first printed quantity that is a throughput of one device or of all."""
    for quantity in printed:
        is_rate = quantity.quantity in (TOKENS, "samples/s") and quantity.of
        if is_rate and LEAST_RATE < quantity.median < MOST_RATE:
            return quantity
    return None


def _speed_of(rate: PrintedQuantity, devices: int) -> Speed:
    """Return the median of a printed throughput; `devices` is 0 if unknown."""
    if rate.of == "all":
        per_device = rate.median / devices if devices else None
        return Speed(of_all=rate.median, per_device=per_device)
    of_all = rate.median * devices if devices else None
    return Speed(of_all=of_all, per_device=rate.median)


# Tokens and operations.


def tokens_of_sample(facts: Mapping[str, SourcedFact], unit: str) -> int:
    """Return the tokens of a language model's sample; 0 if unknown. Padded sequences have so
    many tokens only if the command line says so."""
    fact = facts.get("sequence_length")
    if not fact or not isinstance(fact.value, int):
        return 0
    is_padded = unit == PADDED and not isinstance(fact.by, ByCommand)
    return 0 if is_padded or unit not in (TOKENS, PADDED, "samples/s") else fact.value


def _multiplied(speed: Speed | None, factor: float) -> Speed | None:
    if not speed:
        return None
    of_all, per_device = speed.of_all, speed.per_device
    return Speed(
        of_all=of_all and of_all * factor, per_device=per_device and per_device * factor
    )


def parameters_of_token(facts: Mapping[str, SourcedFact]) -> int:
    """Return the parameters that a token uses; 0 if unknown."""
    return 0 if counts_every_expert(facts) else number_in(facts, "parameters")


def counts_every_expert(facts: Mapping[str, SourcedFact]) -> bool:
    """Return whether the parameters are those of a mixture of experts as its log counts them,
    with every expert. A token uses fewer, and only the command line can say how many."""
    if not _is_mixture(facts) or "parameters" not in facts:
        return False
    return not isinstance(facts["parameters"].by, ByCommand)


def _is_mixture(facts: Mapping[str, SourcedFact]) -> bool:
    """Return whether a model is a mixture of experts. Their number decides if it is known."""
    if "sparse_parameters" in facts:
        return True
    experts = number_in(facts, "experts")
    return experts > 1 if experts else "architecture" in facts


def every_expert_counted(facts: Mapping[str, SourcedFact]) -> Iterator[EveryExpertCounted]:
    """Yield the finding that the parameters count every expert, if they do."""
    if counts_every_expert(facts):
        yield EveryExpertCounted(parameters=number_in(facts, "parameters"))


def model_speed(tokens: Speed | None, facts: Mapping[str, SourcedFact]) -> ModelSpeed | None:
    """Return the operations of a language model, with attention if its sizes are known."""
    parameters = parameters_of_token(facts)
    if not tokens or not tokens.per_device or not parameters:
        return None
    sizes = [number_in(facts, name) for name in ("layers", "hidden_size", "sequence_length")]
    full = flops_per_token(parameters, *sizes)
    causal = flops_per_token(parameters, *sizes, causal=True)
    tflops, causal_tflops = (tokens.per_device * each.flops / TERA for each in (full, causal))
    model = ModelSpeed(
        tflops_per_device=tflops,
        flops_per_token=full.flops,
        formula=full.formula,
        causal_tflops_per_device=causal_tflops if causal_tflops < tflops else None,
    )
    sheet = log_datasheet(facts)
    if not sheet:
        return model
    peak = sheet.flops_per_second / TERA
    of_peak = {
        "mfu": tflops / peak,
        "peak_tflops": peak,
        "peak_of": f"{sheet.gpu}, {sheet.precision}",
        "peak_source": sheet.source,
    }
    return model.model_copy(update=of_peak)


def log_datasheet(facts: Mapping[str, SourcedFact]) -> Datasheet | None:
    """Return the datasheet of the log's GPU in its precision or, if that is unknown, in the
    precision of training; a stated peak is that of any accelerator."""
    if "peak_tflops" in facts:
        peak = float(facts["peak_tflops"].value) * TERA
        gpu = str(facts["gpu"].value) if "gpu" in facts else "accelerator"
        return Datasheet(gpu, "stated", peak, 0.0, "the command line", "")
    if "gpu" not in facts:
        return None
    precision = ""
    if "precision" in facts:
        precision = COLUMNS.get(str(facts["precision"].value), "")
    return datasheet_named(str(facts["gpu"].value), precision)
