"""The section of a measurement's page on what limits the throughput, and how close it is to the
peak."""

from perfkit.analysis.datasheets import Datasheet
from perfkit.analysis.utilization import (
    Utilization,
    causal_ratio,
    datasheet,
    share_of_datasheet,
    utilization,
)
from perfkit.measuring.format import number, percent, spread
from perfkit.measuring.results.schema import Result
from perfkit.measuring.results.store import Measurement
from perfkit.measuring.statistics import median
from perfkit.measuring.units import GIGA, TERA
from perfkit.report.blocks import NumberHeading
from perfkit.report.checked import stored_diagnosis
from perfkit.report.diagnosis import diagnose_command, diagnosis_section, obstacle
from perfkit.report.elements import code, foreign, hint, note, paragraph, strong, table
from perfkit.report.section import Section
from perfkit.report.text.language import gettext as _
from perfkit.report.text.names import peak_share


def limits(measurement: Measurement) -> Section:
    """The diagnosis, and the shares of the measured peak and the datasheet's peak."""
    result = measurement.result
    if not result.complete_repeats:
        return Section()
    used, sheet = utilization(result), datasheet(result)
    rows = _device_rows(result)
    if used:
        rows += _measured_rows(used)
    if sheet:
        rows += _datasheet_rows(result, sheet)
    section = _diagnosis(measurement)
    section += table(rows, [_("Limit"), NumberHeading(_("Median")), _("Range or source")])
    if not used:
        return section + _no_share(result)
    if max(used.shares) > 1:
        section += _unreliable()
    return section + note(
        _arithmetic(result, used), _decoder_arithmetic(result), _recomputation(result)
    )


def _no_share(result: Result) -> Section:
    """Return why the share of the measured peak is unknown."""
    has_peak = any(repeat.peak for repeat in result.complete_repeats)
    if result.told and has_peak:
        words = _(
            "The share of the measured peak is unknown, because the script told no FLOPs per "
            "sample:"
        )
        return paragraph(words, code("StepTimer(…, flops_per_sample=…)"))
    section = paragraph(_("No peak was measured."))
    if result.told and result.told.precision is None:
        words = _("The suite measures it in the precision that the script tells:")
        section += paragraph(words, code('StepTimer(…, precision="bf16")'))
    return section


def _diagnosis(measurement: Measurement) -> Section:
    """Return the diagnosis, or the command for one, or why there is none."""
    result = measurement.result
    diagnosis, problem = stored_diagnosis(measurement)
    if problem:
        return paragraph(_("The diagnosis can't be read:"), foreign(problem))
    if diagnosis:
        return diagnosis_section(diagnosis, result)
    if reason := obstacle(result):
        return paragraph(reason)
    return hint(_("To find out what limits the throughput:"), diagnose_command(result))


def _device_rows(result: Result) -> list[list[str]]:
    """Return the throughput of a device, and the model's operations."""
    if not result.throughput:
        return []
    name = _("Throughput per device (%(unit)s)") % {"unit": result.throughput.unit}
    rows = [[name, number(result.throughput_per_device), ""]]
    tflops = result.tflops_per_device
    if tflops:
        rows.append([_("Model's TFLOP/s per device"), number(tflops), ""])
    return rows


def _measured_rows(used: Utilization) -> list[list[str]]:
    ends = "" if max(used.shares) > 1 else f"{spread(used.shares, 0.01)} %"
    return [
        [
            _("Measured peak, matrix product (TFLOP/s)"),
            number(median(used.peaks) / TERA, 3),
            spread(used.peaks, TERA),
        ],
        [f"{_('Share of measured peak')} (MFU)", peak_share(used.shares), ends],
        [
            _("Measured memory copy, read and written (GB/s)"),
            number(median(used.copies) / GIGA, 3),
            spread(used.copies, GIGA),
        ],
    ]


def _datasheet_rows(result: Result, sheet: Datasheet) -> list[list[str]]:
    devices = result.config.device_count
    name = f"{_('Datasheet')}, {devices} × {sheet.gpu}"
    flops, copied = sheet.flops_per_second * devices, sheet.bytes_per_second * devices
    share = percent(share_of_datasheet(result, sheet))
    return [
        [f"{name} (TFLOP/s)", number(flops / TERA), sheet.source],
        [f"{_('Share of its peak')} (MFU)", share, ""],
        [f"{name} (GB/s)", number(copied / GIGA), sheet.source],
    ]


def _unreliable() -> Section:
    words = _(
        "A share over %(limit)s is unreliable: convolutions may need fewer multiplications "
        "than counted, or other load slowed the measurement of the peak."
    )
    return paragraph(strong(words % {"limit": "100 %"}))


def _decoder_arithmetic(result: Result) -> str:
    """Return the FLOPs of a language model in words; empty for other models."""
    facts = result.work.facts
    if not facts or not facts.decoder:
        return ""
    decoder = facts.decoder
    words = _(
        "FLOPs per token: 6 N + 12 L d T, with N = %(weights)s weights of matrix products (the "
        "output layer's, but no lookup of embeddings, biases or norms), L = %(layers)s layers, "
        "width d = %(width)s and T = %(length)s tokens. Attention counts in full by default, "
        "also in other tables; counted causally, 6 L d T, the FLOPs are %(less)s lower."
    )
    return words % {
        "weights": f"{decoder.product_weights:,}",
        "layers": decoder.layers,
        "width": decoder.width,
        "length": result.built_in.sequence_length,
        "less": percent(1 - (causal_ratio(result) or 1.0)),
    }


def _recomputation(result: Result) -> str:
    if result.parameters.get("recompute", "none") == "none":
        return ""
    return _("Products that the backward pass computes again do not count.")


def _arithmetic(result: Result, used: Utilization) -> str:
    """Return the operations of a sample in words, and what the peak is."""
    flops = {"flops": number(used.flops / GIGA)}
    if result.told:
        words = _(
            "The script told %(flops)s GFLOP per sample; the suite can't check them. The peak "
            "is the framework's fastest matrix product in the script's processes, after the "
            "training, in the precision that the script told, on all devices together."
        )
        return words % flops
    words = _(
        "The model's arithmetic: %(flops)s GFLOP per %(of)s, forward and backward, matrix "
        "products alone. The peak is the framework's fastest matrix product in the worker "
        "processes, before or after training, in the training's precision, on all devices "
        "together."
    )
    of = _("token") if result.counts.unit == "tokens/s" else _("sample")
    return words % (flops | {"of": of})
