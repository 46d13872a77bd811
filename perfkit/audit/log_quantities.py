"""All numbers of a log in one quantity, the simplest first: those that it prints, the times of
its steps, and its throughputs converted by the facts of its configuration."""

from collections.abc import Iterator
from typing import Literal, NamedTuple

from perfkit.analysis.datasheets import Datasheet
from perfkit.audit.answer import (
    TOKENS,
    log_datasheet,
    parameters_of_token,
    tokens_of_sample,
)
from perfkit.audit.audit import AuditedLog
from perfkit.audit.figure import Figure, claimable
from perfkit.audit.printed import PrintedQuantity
from perfkit.audit.quantity import ClaimedKind, LogQuantity, Of
from perfkit.audit.recompute import Figures, half_unit
from perfkit.audit.samples import SAMPLES, unit_of
from perfkit.audit.statements import (
    Conversion,
    FlopsOverPeak,
    PerSequence,
    PrintedBasis,
    PrintedStatistic,
    ReportedBasis,
    StepTimeBasis,
    TimesFlops,
    TimesSequence,
)
from perfkit.core.models.flops import TokenFlops, every_flops_per_token
from perfkit.core.units import TERA

MINUTES = {"minutes": 1.0, "seconds": 1 / 60, "train_runtime": 1 / 60, "runtime": 1 / 60}
"""End of the name of a reported time -> its minutes."""
STEP_RATE = "steps_per_second"
"""End of the name of a reported rate of updates."""
AS_PRINTED = ("first", "median", "last")
"""Statistics that are printed numbers themselves, whose digits are exact."""
PERCENT = 100


class Translation(NamedTuple):
    """How a throughput becomes the quantity: the factor, and the conversion that says so.
    `is_of_device`: only a rate of one device can be converted."""

    factor: float = 1.0
    conversion: Conversion | None = None
    is_of_device: bool = False


def log_quantities(log: AuditedLog, figures: Figures, kind: ClaimedKind) -> list[LogQuantity]:
    """Return every number of a log in this quantity, the simplest first."""
    quantities = [*_printed(log, kind), *_step_times(log, kind), *_reported(log, kind)]
    if kind == "MFU":
        quantities += _printed_over_peak(log)
    for translation in _translations(log, kind):
        for figure in claimable([*figures.shown, *figures.skipping]):
            quantities += _converted(figure, translation)
    return quantities


# Numbers that need no throughput.


def _printed(log: AuditedLog, kind: ClaimedKind) -> Iterator[LogQuantity]:
    for printed in log.printed:
        if printed.quantity == kind:
            yield from _statistics(printed)


def _statistics(
    printed: PrintedQuantity, factor: float = 1.0, conversion: Conversion | None = None
) -> Iterator[LogQuantity]:
    values: dict[PrintedStatistic, float | None] = {
        "first": printed.first,
        "median": printed.median,
        "last": printed.last,
        "mean": printed.mean_protocol,
        "harmonic mean": printed.harmonic_protocol,
        "harmonic rest": printed.harmonic_warm,
    }
    half = half_unit([printed.first, printed.last])
    for statistic, value in values.items():
        if not value or value <= 0:
            continue
        yield LogQuantity(
            value=value * factor,
            rounding=0.0 if statistic in AS_PRINTED else half / value,
            of="" if conversion else printed.of,
            basis=PrintedBasis(name=printed.name, statistic=statistic),
            conversion=conversion,
        )


def _step_times(log: AuditedLog, kind: ClaimedKind) -> Iterator[LogQuantity]:
    """Yield the times of a step, or the steps per second, of each period."""
    if kind not in ("s/step", "steps/s"):
        return
    # The steady steps are the answer of an audit; suites publish the others.
    for time in sorted(log.step_times, key=lambda time: time.period == "steady"):
        if time.first is None or time.last is None:
            continue
        seconds_by: dict[Literal["mean", "median"], float] = {
            "mean": time.mean_seconds,
            "median": time.median_seconds,
        }
        for statistic, seconds in seconds_by.items():
            basis = StepTimeBasis(
                statistic=statistic, basis=time.basis, first=time.first, last=time.last
            )
            value = seconds if kind == "s/step" else 1 / seconds
            yield LogQuantity(value=value, rounding=0.0, of="", basis=basis)


def _reported(log: AuditedLog, kind: ClaimedKind) -> Iterator[LogQuantity]:
    """Yield the times of the whole training that the log reports, or its updates per
    second."""
    factors: dict[str, float] = {}
    if kind == "minutes":
        factors = MINUTES
    elif kind == "steps/s":
        factors = {STEP_RATE: 1.0}
    for name, text in log.reported.items():
        factor = next((factors[end] for end in factors if name.endswith(end)), None)
        value = _number(text)
        if factor and value:
            yield LogQuantity(
                value=value * factor, rounding=0.0, of="", basis=ReportedBasis(name=name)
            )


def reported_step_rates(log: AuditedLog) -> list[LogQuantity]:
    """Return the updates per second that a log reports itself."""
    return [*_reported(log, "steps/s")]


def _number(text: str) -> float | None:
    """Return the positive number that a text is, if it is one."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 < value < float("inf") else None


def _printed_over_peak(log: AuditedLog) -> Iterator[LogQuantity]:
    """Yield printed TFLOP/s of a device as shares of the dense peak, then of the sparse one."""
    for peak in _peaks(log):
        for printed in log.printed:
            if printed.quantity == "TFLOP/s" and printed.of == "device":
                yield from _statistics(printed, PERCENT / peak.teraflops, peak.conversion())


# Throughputs, converted.


def _converted(figure: Figure, translation: Translation) -> Iterator[LogQuantity]:
    """Yield a throughput in the quantity: of all devices, then of one."""
    rates: list[tuple[Of, float | None]] = [
        ("all", figure.throughput),
        ("device", figure.per_device),
    ]
    for of, rate in rates:
        if not rate or (translation.is_of_device and of == "all"):
            continue
        yield LogQuantity(
            value=rate * translation.factor,
            rounding=figure.rounding,
            of="" if translation.is_of_device else of,
            figure=figure,
            conversion=translation.conversion,
        )


def _translations(log: AuditedLog, kind: ClaimedKind) -> Iterator[Translation]:
    """Yield each way in which a throughput of the log becomes the quantity."""
    unit = unit_of(log.facts)
    length = tokens_of_sample(log.facts, unit)
    match kind:
        case "samples/s":
            yield from _as_samples(unit, length)
        case "tokens/s":
            yield from _as_tokens(unit, length)
        case "TFLOP/s" | "MFU":
            tokens_of_rate = 1 if unit == TOKENS else length
            for count in _token_flops(log):
                if tokens_of_rate:
                    yield from _as_flops(log, kind, count, tokens_of_rate)


def _as_samples(unit: str, length: int) -> Iterator[Translation]:
    if unit in SAMPLES:
        yield Translation()
    elif unit == TOKENS and length:
        yield Translation(1 / length, PerSequence(length=length))


def _as_tokens(unit: str, length: int) -> Iterator[Translation]:
    if unit == TOKENS:
        yield Translation()
    elif length:
        yield Translation(length, TimesSequence(length=length))


def _as_flops(
    log: AuditedLog, kind: ClaimedKind, count: TokenFlops, tokens_of_rate: int
) -> Iterator[Translation]:
    """Yield the translation to TFLOP/s, or to MFU by the dense and the sparse peak."""
    parameters = parameters_of_token(log.facts)
    teraflops = count.flops * tokens_of_rate / TERA
    if kind == "TFLOP/s":
        yield Translation(teraflops, TimesFlops(formula=count.formula, parameters=parameters))
        return
    for peak in _peaks(log):
        factor = PERCENT * teraflops / peak.teraflops
        conversion = peak.conversion(count.formula, parameters)
        yield Translation(factor, conversion, is_of_device=True)


def _token_flops(log: AuditedLog) -> list[TokenFlops]:
    """Return the FLOPs of a token by each formula: attention in full, causally, and not."""
    parameters = parameters_of_token(log.facts)
    if not parameters:
        return []
    return every_flops_per_token(
        parameters,
        _count(log, "layers"),
        _count(log, "hidden_size"),
        _count(log, "sequence_length"),
    )


class Peak(NamedTuple):
    """A peak of a GPU in TFLOP/s, dense or with sparsity."""

    sheet: Datasheet
    teraflops: float
    is_sparse: bool

    def conversion(
        self, formula: str | None = None, parameters: int | None = None
    ) -> FlopsOverPeak:
        return FlopsOverPeak(
            formula=formula,
            parameters=parameters,
            peak=self.teraflops,
            gpu=self.sheet.gpu,
            sparse=self.is_sparse,
        )


def _peaks(log: AuditedLog) -> Iterator[Peak]:
    """Yield the dense peak of the log's GPU, then the sparse one, as far as known."""
    sheet = log_datasheet(log.facts)
    if sheet is None:
        return
    yield Peak(sheet, sheet.flops_per_second / TERA, is_sparse=False)
    if sheet.sparse_flops_per_second:
        yield Peak(sheet, sheet.sparse_flops_per_second / TERA, is_sparse=True)


def _count(log: AuditedLog, name: str) -> int:
    """Return a positive whole number among the log's facts; 0 if unknown."""
    value = log.fact(name)
    if isinstance(value, bool) or not isinstance(value, int):
        return 0
    return max(value, 0)
