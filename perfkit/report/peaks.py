"""The section of a measurement's page on what limits the throughput, and how close it is to the
peak."""

from markupsafe import Markup

from perfkit.analysis.datasheets import Datasheet
from perfkit.analysis.diagnosis.statements import statements_of
from perfkit.analysis.utilization import (
    Utilization,
    datasheet,
    share_of_datasheet,
    utilization,
)
from perfkit.core.format import number, percent, spread
from perfkit.core.models import model_of
from perfkit.core.models.flops import flops_per_token
from perfkit.core.results.schema import Result
from perfkit.core.results.store import Measurement
from perfkit.core.statistics import median
from perfkit.report.diagnosis import diagnose_command
from perfkit.report.elements import (
    Text,
    bullets,
    code,
    foreign,
    note,
    paragraph,
    strong,
    table,
)
from perfkit.report.measurement import stored_diagnosis
from perfkit.report.section import Section
from perfkit.report.text.language import gettext as _
from perfkit.report.text.names import peak_share
from perfkit.report.text.statements import sentence

TERA, GIGA = 1e12, 1e9


def limits(measurement: Measurement) -> Section:
    """The diagnosis, and the shares of the measured peak and the datasheet's peak."""
    result = measurement.result
    used, sheet = utilization(result), datasheet(result)
    rows = _measured_rows(result, used) if used else []
    if sheet:
        rows += _datasheet_rows(result, sheet)
    section = _diagnosis(measurement)
    section += table(rows, [_("Limit"), _("Median"), _("Range or source")])
    if not used and result.complete_repeats:
        return section + paragraph(_("No peak was measured."))
    if not used:
        return section + paragraph(_("There is no complete repeat to judge."))
    if max(used.shares) > 1:
        section += _unreliable()
    return section + _formula(result, used, sheet) + _arithmetic(result, used)


def _diagnosis(measurement: Measurement) -> Section:
    """Return the sentences of the diagnosis, its verdict in bold, or the command for one."""
    diagnosis, problem = stored_diagnosis(measurement)
    if problem:
        return paragraph(_("The diagnosis can't be read:"), foreign(problem))
    if diagnosis:
        lines: list[Text] = []
        for statement in statements_of(diagnosis, measurement.result.built_in):
            text = sentence(statement)
            is_verdict = statement.code == diagnosis.verdict
            lines.append(strong(text) if is_verdict else text)
        return bullets(lines)
    command = diagnose_command(measurement.result)
    if not command:
        return Section()
    advice = _("To find out what limits the throughput, with new repeats:")
    return paragraph(advice, code(command))


def _measured_rows(result: Result, used: Utilization) -> list[list[str]]:
    shares = "" if max(used.shares) > 1 else f"{spread(used.shares, 0.01)} %"
    return [
        [
            _("Measured peak, matrix product (TFLOP/s)"),
            number(median(used.peaks) / TERA, 3),
            spread(used.peaks, TERA),
        ],
        [f"{_('Share of measured peak')} ({_mfu(result)})", peak_share(used.shares), shares],
        [
            _("Measured memory copy, read and written (GB/s)"),
            number(median(used.copies) / GIGA, 3),
            spread(used.copies, GIGA),
        ],
    ]


def _datasheet_rows(result: Result, sheet: Datasheet) -> list[list[str]]:
    count = result.config.ranks
    name = f"{_('Datasheet')}, {count} × {sheet.gpu}"
    flops, copied = sheet.flops_per_second * count, sheet.bytes_per_second * count
    share = percent(share_of_datasheet(result, sheet))
    return [
        [f"{name} (TFLOP/s)", number(flops / TERA), sheet.source],
        [f"{_('Share of its peak')} ({_mfu(result)})", share, ""],
        [f"{name} (GB/s)", number(copied / GIGA), sheet.source],
    ]


def _mfu(result: Result) -> str:
    """Return "MFU" and how it counts attention, which suites count in full or causally."""
    has_attention = result.work.kind == "sequence"
    return _("MFU, attention in full") if has_attention else "MFU"


def _unreliable() -> Section:
    words = _(
        "A share over %(limit)s is unreliable: convolutions may need fewer multiplications "
        "than counted, or other load slowed the measurement of the peak."
    )
    return paragraph(strong(words % {"limit": "100 %"}))


def _unit(result: Result) -> str:
    """Return what the throughput counts, in words."""
    assert result.throughput
    return _("token") if result.throughput.unit == "tokens/s" else _("sample")


def _formula(result: Result, used: Utilization, sheet: Datasheet | None) -> Section:
    """Return how the shares of the peaks are computed, with this measurement's numbers."""
    throughput = result.throughput
    assert throughput
    product = (
        f"{number(throughput.value)} {throughput.unit} × {number(used.flops / GIGA)} GFLOP"
    )
    words = _(
        "Model FLOPs utilization (MFU; Chowdhery et al., 2022, appendix B) is throughput × "
        "FLOPs per %(of)s / peak."
    )
    measured = code(f"{product} / {number(median(used.peaks) / TERA, 3)} TFLOP/s")
    texts: list[Text] = [words % {"of": _unit(result)}]
    texts += [_("Of the measured peak:"), _full_stop(measured)]
    if sheet:
        flops = sheet.flops_per_second * result.config.ranks
        stated = code(f"{product} / {number(flops / TERA)} TFLOP/s")
        texts += [_("Of the datasheet's dense peak:"), _full_stop(stated)]
    texts.append(_decoder_arithmetic(result))
    return note(*texts)


def _full_stop(text: Markup) -> Markup:
    return text + "."


def _decoder_arithmetic(result: Result) -> str:
    """Return the FLOPs of a language model in words; empty for other models."""
    decoder = model_of(result.built_in).decoder
    if not decoder:
        return ""
    words = _(
        "FLOPs per token: 6 N + 12 L d T, with N = %(weights)s weights of matrix products (the "
        "output layer's, but no lookup of embeddings, biases or norms), L = %(layers)s layers, "
        "width d = %(width)s and T = %(length)s tokens. Attention counts in full; counted "
        "causally, 6 L d T, the shares are %(less)s lower."
    )
    size = (decoder.product_weights, decoder.layers, decoder.width)
    length = result.built_in.sequence_length
    full = flops_per_token(*size, length)
    causal = flops_per_token(*size, length, causal=True)
    return words % {
        "weights": f"{decoder.product_weights:,}",
        "layers": decoder.layers,
        "width": decoder.width,
        "length": length,
        "less": percent(1 - causal.flops / full.flops),
    }


def _arithmetic(result: Result, used: Utilization) -> Section:
    words = _(
        "The model's arithmetic: %(flops)s GFLOP per %(of)s, forward and backward, matrix "
        "products alone. The peak is the framework's fastest matrix product in the worker "
        "processes, before or after training, in the training's precision, on all devices "
        "together."
    )
    return note(words % {"flops": number(used.flops / GIGA), "of": _unit(result)})
