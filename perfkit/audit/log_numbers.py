"""The numbers of a log in one quantity, the simplest first: those that it prints, the times of
its steps, and its throughputs, converted by the facts of its configuration."""

from collections.abc import Iterator
from typing import NamedTuple

from perfkit.audit.answer import TOKENS, log_datasheet, parameters_of_token, tokens_of_sample
from perfkit.audit.audit import AuditedLog
from perfkit.audit.claim import ClaimedQuantity, LogNumber, NumberStatistic, Of
from perfkit.audit.figure import BY_MEDIAN_STEP, LEAST_RATE, MOST_RATE
from perfkit.audit.numbers import number_or_nan
from perfkit.audit.recompute import Figures
from perfkit.audit.samples import SAMPLES, unit_of, unit_of_figures
from perfkit.measuring.units import PERCENT, TERA

REPORTED: dict[str, dict[str, float]] = {
    "minutes": {"minutes": 1.0, "seconds": 1 / 60, "runtime": 1 / 60},
    "steps/s": {"steps_per_second": 1.0},
}
"""Quantity -> ends of the names of reported figures -> their factors."""
BY_FLOPS = ("TFLOP/s", "MFU")
"""Quantities to which a throughput is converted by the operations of a token."""


class Conversion(NamedTuple):
    """How a throughput of the log becomes another quantity: the factor, and what it is in names
    of facts."""

    factor: float = 1.0
    by: str = ""


class LogFigures(NamedTuple):
    """A log, and all figures of it."""

    log: AuditedLog
    figures: Figures


def log_numbers(audited: LogFigures, quantity: ClaimedQuantity | None) -> list[LogNumber]:
    """Return every number of a log in a quantity, the simplest first. Without one, these are
    its throughputs, in its own unit and in that of its answer, and the updates per second that
    it reports. A number is finite, and not too small for a rate."""
    log = audited.log
    numbers = [] if quantity else [*_reported(log, "steps/s")]
    for each in [quantity] if quantity else _throughput_quantities(log):
        numbers += [*_printed(log, each), *_step_times(log, each), *_reported(log, each)]
        numbers += _throughputs(audited, each)
    return [each for each in numbers if LEAST_RATE < each.value < MOST_RATE]


def _throughput_quantities(log: AuditedLog) -> list[str]:
    """Return the quantity that a log counts, and that of its answer."""
    quantities = [own_quantity(log)]
    if log.answer and log.answer.tokens:
        quantities.append(TOKENS)
    return [*dict.fromkeys(quantities)]


def own_quantity(log: AuditedLog) -> str:
    """Return the quantity that a log counts; its unit if that is neither of tokens nor of
    samples, such as frames/s."""
    unit = unit_of(log.facts)
    return "samples/s" if unit in SAMPLES else unit


def _unit_text(log: AuditedLog, quantity: str) -> str:
    """Return the unit of numbers in a quantity: images/s, if the log counts images."""
    if quantity == "MFU":
        return "%"
    return unit_of(log.facts) if quantity == own_quantity(log) else quantity


def _printed(log: AuditedLog, quantity: str) -> Iterator[LogNumber]:
    for printed in log.printed:
        if printed.quantity != quantity:
            continue
        values: dict[NumberStatistic, float | None] = {
            "first": printed.first,
            "median": printed.median,
            "last": printed.last,
            "mean": printed.mean_protocol,
            "harmonic mean": printed.harmonic_protocol,
        }
        number = LogNumber(
            value=0.0, unit=_unit_text(log, quantity), of=printed.of, name=printed.name
        )
        for statistic, value in values.items():
            yield number.model_copy(update={"value": value or 0.0, "statistic": statistic})


def _step_times(log: AuditedLog, quantity: str) -> Iterator[LogNumber]:
    """Yield the times of a step, or the steps per second, of each period."""
    if quantity not in ("s/step", "steps/s"):
        return
    for time in log.step_times:
        number = LogNumber(value=0.0, unit=quantity, of="", time=time)
        for statistic, value in (("mean", time.mean_seconds), ("median", time.median_seconds)):
            rate = value if quantity == "s/step" else 1 / value
            yield number.model_copy(update={"value": rate, "statistic": statistic})


def _reported(log: AuditedLog, quantity: str) -> Iterator[LogNumber]:
    """Yield the times of the whole training that the log reports, or its updates per
    second."""
    for end, factor in REPORTED.get(quantity, {}).items():
        for name, text in log.reported.items():
            if name.endswith(end):
                value = number_or_nan(text) * factor
                yield LogNumber(value=value, unit=quantity, of="", name=name)


# Throughputs, converted.


def _throughputs(audited: LogFigures, quantity: str) -> Iterator[LogNumber]:
    """Yield each throughput in a quantity, of all devices and of one; an MFU is of one."""
    conversion = conversion_to(audited.log, quantity)
    if not conversion:
        return
    for figure in (*audited.figures.shown, *audited.figures.skipping):
        rates: dict[Of, float | None] = {"all": figure.throughput, "device": figure.per_device}
        if quantity == "MFU":
            rates = {"": figure.per_device}
        unit = _unit_text(audited.log, quantity)
        if not conversion.by:
            unit = unit_of_figures(audited.log.facts, [figure])
        for of, rate in rates.items():
            if rate and figure.statistic not in BY_MEDIAN_STEP:
                yield LogNumber(
                    value=rate * conversion.factor,
                    unit=unit,
                    of=of,
                    rounding=figure.rounding,
                    figure=figure,
                    conversion=conversion.by,
                )


def conversion_to(log: AuditedLog, quantity: str) -> Conversion | None:
    """Return how a throughput of the log becomes another quantity: itself, or by the tokens of
    a sample; None if that is unknown."""
    own = own_quantity(log)
    length = tokens_of_sample(log.facts, unit_of(log.facts))
    if quantity == own:
        return Conversion()
    if quantity in BY_FLOPS:
        return _by_flops(log, quantity)
    if quantity == "samples/s" and own == TOKENS and length:
        return Conversion(1 / length, "/ sequence_length")
    if quantity == TOKENS and length:
        return Conversion(length, "× sequence_length")
    return None


def _by_flops(log: AuditedLog, quantity: str) -> Conversion | None:
    """Return the conversion by the operations of a token that the answer counts, to TFLOP/s or
    to a share of its peak."""
    tokens = conversion_to(log, TOKENS)
    model = log.answer.model if log.answer else None
    if not tokens or not model:
        return None
    teraflops = tokens.factor * model.flops_per_token / TERA
    by = f"{tokens.by} × ({model.formula})".strip()
    if quantity == "TFLOP/s":
        return Conversion(teraflops, by)
    if not model.peak_tflops:
        return None
    peak = f"{model.peak_tflops:g} TFLOP/s"
    return Conversion(PERCENT * teraflops / model.peak_tflops, f"{by} / {peak}")


def options_for(log: AuditedLog, quantity: ClaimedQuantity | None) -> list[str]:
    """Return the options of the command line without which a throughput of tokens has no number
    in this quantity."""
    unit = unit_of(log.facts)
    if not log.figures or unit not in (TOKENS, "samples/s"):
        return []
    by_flops = quantity in BY_FLOPS
    by_length = quantity == "samples/s" if unit == TOKENS else by_flops or quantity == TOKENS
    is_needed = {
        "-p gpu_model NAME": quantity == "MFU" and log_datasheet(log.facts) is None,
        "-p parameters N": by_flops and not parameters_of_token(log.facts),
        "-p devices N": by_flops and log.fact("ranks") is None,
        "-p sequence_length N": by_length and log.fact("sequence_length") is None,
    }
    return [option for option, needed in is_needed.items() if needed]
