"""Texts of an audit's answer in the current language: throughput, steps, operations."""

from collections.abc import Iterator

from perfkit.audit.answer import Answer, ModelSpeed, Speed
from perfkit.audit.audit import AuditedLog
from perfkit.audit.figure import NAMED_VALUES, StepTime
from perfkit.audit.printed import PrintedQuantity
from perfkit.audit.samples import unit_of
from perfkit.audit.statements import FactValue, Pauses
from perfkit.measuring.format import number, percent, shortened
from perfkit.measuring.statements import N_
from perfkit.report.text.language import gettext as _
from perfkit.report.text.language import ngettext

DIGITS = 5
"""Significant digits of the answer."""
LONGEST_QUANTITY = 24
"""Characters of a printed quantity's name, at most."""
LONGEST = 40
"""Characters of a foreign name or value that are shown, at most."""
LARGE = 10_000_000
"""Facts from here on are written with an exponent."""
HUGE = 1e12
"""Rates from here on are written with an exponent."""
MAIN_FACTS = {
    "model": "model",
    "precision": "precision",
    "gpu": "gpu",
    "ranks": "devices",
    "batch_size": "batch_size",
    "accumulate": "accumulate",
    "global_batch_size": "global_batch_size",
    "sequence_length": "sequence_length",
    "parameters": "parameters",
}
"""Facts beside the answer -> their names on the command line, where they can be stated."""
DEVICES = {"options": "-p devices N"}
OF = {
    "device": N_("%(quantity)s, one device"),
    "all": N_("%(quantity)s, all devices"),
    "": "%(quantity)s",
}


def answer_text(log: AuditedLog) -> str:
    """Return the throughput of a log, its seconds per step and the steps, in one line."""
    answer = log.answer
    if log.of_several and not answer:
        return _("The file has throughputs of several models or nodes.")
    if log.step == "epoch" and answer and answer.seconds_per_step:
        return _epochs_text(answer)
    if not answer:
        return _("The log has neither a throughput nor a time of a step.")
    parts = [*_rates(answer)]
    if answer.basis == "reported":
        text = _("by the log's own “%(name)s”")
        if answer.is_of_training:
            text = _("by the log's own “%(name)s” of the whole training, evaluations included")
        parts.append(text % {"name": shortened(answer.name, LONGEST)})
    if answer.seconds_per_step:
        parts.append(
            _("%(seconds)s s/step") % {"seconds": digits_text(answer.seconds_per_step)}
        )
    if answer.first is not None:
        parts.append(_with_slow_steps(period_text(answer, answer.epochs), log))
        if answer.from_epoch > 1 and answer.period == "warm":
            parts.append(_("from epoch %(epoch)s on") % {"epoch": answer.from_epoch})
    return ", ".join(parts)


def _with_slow_steps(steps: str, log: AuditedLog) -> str:
    """Return the steps of an answer, and whether pauses are among them."""
    findings = [located.finding for located in log.findings]
    pauses = sum(finding.count for finding in findings if isinstance(finding, Pauses))
    if not pauses:
        return steps
    text = ngettext("%(steps)s with a pause", "%(steps)s with pauses", pauses)
    return text % {"steps": steps}


def _epochs_text(answer: Answer) -> str:
    """Return the seconds of an epoch of a log that has no times of steps."""
    text = _("%(seconds)s s per epoch, epochs %(first)s–%(last)s, validation included")
    return text % {
        "seconds": digits_text(answer.seconds_per_step),
        "first": answer.first,
        "last": answer.last,
    }


def _rates(answer: Answer) -> Iterator[str]:
    if answer.speed:
        yield from _speed(answer.speed, answer.speed_unit)
        if answer.rate_name:
            yield _("as printed")
    elif answer.steps_per_second:
        yield _("%(rate)s steps/s") % {"rate": digits_text(answer.steps_per_second)}


def _speed(speed: Speed, unit: str) -> Iterator[str]:
    if speed.of_all:
        yield f"{digits_text(speed.of_all)} {unit}".rstrip()
        if speed.per_device:
            yield _("%(rate)s per device") % {"rate": digits_text(speed.per_device)}
    else:
        rate = f"{digits_text(speed.per_device)} {unit}".rstrip()
        yield _("%(rate)s per device") % {"rate": rate}


def period_text(timed: Answer | StepTime, epochs: int = 1) -> str:
    """Return the steps of a period of an answer or a time, and whether the lines' clock tells
    their time."""
    text = _("steps %(first)s–%(last)s")
    if epochs > 1:
        text = _("steps %(first)s–%(last)s of %(epochs)s epochs")
    if timed.period == "steady":
        text = _("steady steps %(first)s–%(last)s")
        if epochs > 1:
            text = _("steady steps %(first)s–%(last)s of %(epochs)s epochs")
    steps = text % {"first": timed.first, "last": timed.last, "epochs": epochs}
    if timed.basis == "clock":
        return _("%(steps)s by clock") % {"steps": steps}
    return steps


def digits_text(value: float | None, digits: int = DIGITS) -> str:
    """Return a number with so many digits or, if it is huge, with an exponent."""
    if value is not None and value >= HUGE:
        return _scientific(value)
    return number(value, digits)


def model_texts(model: ModelSpeed) -> list[str]:
    """Return the operations of a language model and their share of the peak, and the formula
    with the source of the peak."""
    speed = _("%(tflops)s TFLOP/s per device") % {"tflops": number(model.tflops_per_device)}
    formula = _("%(formula)s = %(flops)s FLOPs per token") % {
        "formula": model.formula,
        "flops": _scientific(model.flops_per_token),
    }
    if model.causal_tflops_per_device:
        causal = {"tflops": number(model.causal_tflops_per_device)}
        formula += _(" (%(tflops)s TFLOP/s with causal attention)") % causal
    if model.mfu is None:
        return [speed, formula]
    share = _("MFU %(share)s of %(peak)s TFLOP/s (%(gpu)s)") % {
        "share": percent(model.mfu, 3),
        "peak": f"{model.peak_tflops:g}",
        "gpu": model.peak_of,
    }
    source = _("%(formula)s; peak: %(source)s") % {
        "formula": formula,
        "source": model.peak_source,
    }
    return [f"{speed}, {share}", source]


def _scientific(value: float) -> str:
    """Return a large number with an exponent: 8.03e9."""
    mantissa, _e, exponent = f"{value:.4g}".partition("e+")
    return f"{mantissa}e{int(exponent)}" if exponent else mantissa


def main_facts_text(log: AuditedLog) -> str:
    """Return the facts that a throughput depends on, by their names on the command line."""
    texts = []
    for name, stated in MAIN_FACTS.items():
        value = log.fact(name)
        if value is not None:
            texts.append(f"{stated} {_fact_text(value)}")
    return ", ".join(texts)


def _fact_text(value: FactValue) -> str:
    if isinstance(value, int) and value >= LARGE:
        return _scientific(value)
    return shortened(value, LONGEST)


def lacking_text(log: AuditedLog) -> str:
    """Return which facts on the command line would give more; empty without any."""
    answer = log.answer
    if not answer or log.step == "epoch":
        return ""
    speed = answer.speed
    if not speed:
        options = [f"-p {_lacking_of_batch(log)} N"]
        if log.fact("ranks") is None:
            options.append("-p devices N")
        stated = {"options": " ".join(options)}
        return _("The throughput of all devices needs %(options)s.") % stated
    return _lacking_of_rate(log, answer, speed)


def _lacking_of_rate(log: AuditedLog, answer: Answer, speed: Speed) -> str:
    """Return what a throughput lacks."""
    if answer.unchecked_samples:
        return _(
            "The printed rate makes %(samples)s samples in the %(seconds)s s of a step by "
            "clock: check it by %(option)s."
        ) % {
            "option": "-p global_batch_size N" if speed.of_all else "-p batch_size N",
            "samples": digits_text(answer.unchecked_samples),
            "seconds": digits_text(answer.seconds_by_clock),
        }
    if speed.of_all is None:
        return _("The throughput of all devices needs %(options)s.") % DEVICES
    if log.format == NAMED_VALUES and log.has_rates and log.fact("ranks") != 1:
        return _("Nothing tells whether it is that of one device: it is taken as that of all.")
    if speed.per_device is None:
        return _("The throughput of one device needs %(options)s.") % DEVICES
    return ""


def _lacking_of_batch(log: AuditedLog) -> str:
    """Return which fact lacks to tell the samples or tokens of a step."""
    has_batch = log.fact("batch_size") or log.fact("global_batch_size")
    counts_tokens = unit_of(log.facts) == "tokens/s" and not log.fact("sequence_length")
    return "sequence_length" if has_batch and counts_tokens else "batch_size"


def printed_row(printed: PrintedQuantity) -> list[str]:
    """Return a printed quantity's cells: its first, its median and its last value."""
    quantity: str = printed.quantity
    if quantity == "MFU":
        quantity = "MFU, %"
    of = _(OF[printed.of]) % {"quantity": quantity}
    values = [digits_text(value) for value in (printed.first, printed.median, printed.last)]
    return [shortened(printed.name, LONGEST_QUANTITY), of, *values]
