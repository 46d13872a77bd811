"""What the command line states about the training of a claim without a log, and the peak of its
GPU."""

from collections.abc import Mapping

from perfkit.analysis.datasheets import datasheet_named, gpu_names
from perfkit.audit.refusals import UnknownGpu
from perfkit.audit.statements import FactValue
from perfkit.core.request import RequestError
from perfkit.core.results.base import Stored
from perfkit.core.units import TERA


class Premises(Stored):
    """What the command line states about the training. None: not stated."""

    devices: int | None = None
    """all devices"""
    global_batch_size: int | None = None
    """samples of an optimizer update on all devices"""
    sequence_length: int | None = None
    """tokens of a sample"""
    parameters: int | None = None
    """weights that each token uses"""
    layers: int | None = None
    """layers of the model"""
    hidden_size: int | None = None
    """width of the model"""
    gpu: str = ""
    """name of the GPU"""


class ClaimPeak(Stored):
    """The peak of the GPU that a claim is about."""

    gpu: str
    """GPU in the table of datasheets"""
    precision: str
    """precision of the peak"""
    dense_tflops: float
    """dense peak in TFLOP/s"""
    sparse_tflops: float | None
    """peak with 2:4 sparsity in TFLOP/s; None if its source does not state it"""
    source: str
    """title of the source"""
    url: str
    """address of the source"""


def premises_of(facts: Mapping[str, FactValue]) -> Premises:
    """Return what the facts of the command line state."""
    counts = {}
    for name in Premises.model_fields:
        fact = "ranks" if name == "devices" else name
        value = facts.get(fact)
        if isinstance(value, int):
            counts[name] = value
    premises = Premises(**counts, gpu=str(facts.get("gpu", "")))
    batch = facts.get("batch_size")
    if premises.global_batch_size is None and isinstance(batch, int) and premises.devices:
        return premises.model_copy(update={"global_batch_size": batch * premises.devices})
    return premises


def peak_of(premises: Premises, precision: str) -> ClaimPeak | None:
    """Return the peak of the stated GPU; None if none is stated. Raises RequestError."""
    if not premises.gpu:
        return None
    # Mixed precision is in bf16 or fp16, which have the same peak on every GPU with both.
    column = "" if precision == "amp" else precision
    sheet = datasheet_named(premises.gpu, column)
    if sheet is None:
        refusal = UnknownGpu(
            parameter="-p gpu_model",
            value=premises.gpu,
            precision=precision or None,
            allowed=gpu_names(),
        )
        raise RequestError([refusal])
    sparse = sheet.sparse_flops_per_second
    return ClaimPeak(
        gpu=sheet.gpu,
        precision=sheet.precision,
        dense_tflops=sheet.flops_per_second / TERA,
        sparse_tflops=sparse / TERA if sparse else None,
        source=sheet.source,
        url=sheet.url,
    )
