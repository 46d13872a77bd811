"""Model FLOPs utilization: the model's operations per second over the device's peak (Chowdhery
et al., PaLM, 2022, appendix B).

The peak is the one that the same processes measured and, for known GPUs, the datasheet's.
Utilization can exceed 100 %, since fast convolution algorithms save multiplications.
"""

from typing import NamedTuple

from perfkit.analysis.datasheets import Datasheet, datasheet_of
from perfkit.analysis.token_flops import flops_per_token
from perfkit.measuring.results.schema import Result

PRECISIONS = {"fp32": "fp32", "amp": "fp16", "pure_fp16": "fp16", "bf16": "bf16"}
"""Effective precision -> column of the datasheet; with TF32, fp32 becomes `tf32`."""
TOLD_PRECISIONS = {
    **dict.fromkeys(["bf16", "bfloat16"], "bf16"),
    **dict.fromkeys(["amp", "fp16", "float16"], "fp16"),
    "tf32": "tf32",
}
"""Precision that a script told -> column of the datasheet. A script that tells fp32 may use
TF32, whose peak is several times as high, so that its share is unknown."""


class Utilization(NamedTuple):
    """Utilization of a measurement's repeats that have peaks, over all devices together.

    `flops` are the model's operations per sample, or per token if the throughput counts tokens;
    of a script, as it told them.
    By repeat: `shares`, the model's operations per second over the peak, 0 to 1; `peaks`,
    operations per second; `copies`, peaks of memory, bytes read and written per second.
    """

    flops: float
    shares: list[float]
    peaks: list[float]
    copies: list[float]


def causal_ratio(result: Result) -> float | None:
    """Return the FLOPs of a language model with attention counted causally, over those with
    attention in full, which all other figures count; None for models without a causal mask."""
    facts = result.work.facts
    if not facts or not facts.decoder:
        return None
    decoder, length = facts.decoder, result.built_in.sequence_length
    size = (decoder.product_weights, decoder.layers, decoder.width, length)
    causal, full = flops_per_token(*size, causal=True), flops_per_token(*size)
    return causal.flops / full.flops


def utilization(result: Result) -> Utilization | None:
    """Return the utilization; None if no repeat has a peak, or if a script has not told its
    FLOPs."""
    flops = result.counts.flops_per_unit
    if flops is None:
        return None
    peaks = [repeat.peak for repeat in result.complete_repeats if repeat.peak]
    if not peaks:
        return None
    return Utilization(
        flops=flops,
        shares=result.shares_of_peak,
        peaks=[peak.matmul_flops_per_second for peak in peaks],
        copies=[peak.copy_bytes_per_second for peak in peaks],
    )


def share_of_datasheet(result: Result, sheet: Datasheet) -> float | None:
    """Return the model's operations per second over the datasheet's, for all GPUs together.
    None without a throughput, or if a script has not told its FLOPs."""
    flops = result.counts.flops_per_unit
    if not result.throughput or flops is None:
        return None
    return (
        result.throughput.value * flops / (sheet.flops_per_second * result.config.device_count)
    )


def datasheet(result: Result) -> Datasheet | None:
    """Return the datasheet of the GPUs that trained, in the effective precision; None if they
    differ or are not listed."""
    gpus, column = result.fact("gpus"), _datasheet_column(result)
    if result.config.device != "gpu" or not isinstance(gpus, list):
        return None
    names = {gpu.split(",")[0] for gpu in gpus[: result.config.devices]}
    if len(names) != 1:
        return None
    return datasheet_of(names.pop(), column)


def _datasheet_column(result: Result) -> str:
    """Return the column of the datasheet with the peak in the precision of the training; empty
    if that is unknown."""
    if result.told:
        return TOLD_PRECISIONS.get((result.told.precision or "").lower(), "")
    effective = result.effective
    if not effective:
        return ""
    column = PRECISIONS.get(effective.precision, "")
    if column == "fp32" and effective.tf32:
        return "tf32"
    return column
