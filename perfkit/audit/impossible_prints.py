"""Printed quantities that no GPU can have: an MFU over 100 %, TFLOP/s over the GPU's peak."""

from collections.abc import Iterator, Mapping, Sequence

from perfkit.analysis.datasheets import datasheet_named
from perfkit.audit.printed import PrintedQuantity
from perfkit.audit.statements import Finding, PrintedOverPeak, PrintedUtilization, SourcedFact
from perfkit.core.units import TERA

PERCENT = 100
FASTEST_PRECISIONS = ("", "fp8")
"""Precisions of a training's peaks, by default bf16 or fp16."""


def impossible_prints(
    printed: Sequence[PrintedQuantity], facts: Mapping[str, SourcedFact]
) -> Iterator[Finding]:
    """Yield a finding about each quantity whose median no GPU, or not this one, can reach."""
    gpu = str(facts["gpu"].value) if "gpu" in facts else ""
    peak = _fastest_peak(gpu)
    for quantity in printed:
        median = quantity.median
        if quantity.quantity == "MFU" and median > PERCENT:
            yield PrintedUtilization(name=quantity.name, share=median / PERCENT)
        is_of_device = quantity.quantity == "TFLOP/s" and quantity.of == "device"
        if is_of_device and peak and median > peak:
            yield PrintedOverPeak(name=quantity.name, tflops=median, gpu=gpu, peak=peak)


def _fastest_peak(gpu: str) -> float | None:
    """Return the dense peak of a GPU in TFLOP/s in its fastest precision for training; None if
    it is not known."""
    sheets = [datasheet_named(gpu, precision) for precision in FASTEST_PRECISIONS]
    peaks = [sheet.flops_per_second / TERA for sheet in sheets if sheet]
    return max(peaks, default=None)
