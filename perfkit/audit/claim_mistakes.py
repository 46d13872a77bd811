"""Common mistakes that would explain a claim that is too high or too low."""

from collections.abc import Iterator
from math import ceil

from perfkit.analysis.datasheets import datasheet_named
from perfkit.audit.claim_premises import ClaimPeak, Premises
from perfkit.audit.claim_statements import (
    AllExperts,
    AllForOne,
    CountedAgain,
    DenseForSparse,
    EightBit,
    ForwardOnly,
    FrozenWeights,
    Mistake,
    NotCounted,
    OneForAll,
    OtherPeak,
    Recomputation,
    Scope,
    SparseForDense,
)
from perfkit.audit.quantity import Claimed
from perfkit.core.units import TERA

PLAUSIBLE = (0.05, 0.8)
"""Shares of the dense peak that make a mistake an explanation: from a quarter of GPT-3's 21 %
(PaLM, 2022, table 3) to what a large matrix product reaches."""
COMMON_PEAKS = ("A100", "H100")
"""GPUs whose peak suites assume for those that they do not know."""
MOST_MICRO_BATCHES = 1024
RECOMPUTED = 8 / 6
"""FLOPs with a second forward pass / those without."""
FROZEN = 4 / 6
"""FLOPs without the gradients of the weights / those with them."""
FORWARD = 2 / 6
"""FLOPs of the forward pass / those of training."""


def mistakes_of(
    claimed: Claimed, of: Scope, share: float, premises: Premises, peak: ClaimPeak
) -> list[Mistake]:
    """Return the mistakes without which a claim, which is `share` of the dense peak, would be
    plausible, the most common first."""
    lowest, highest = PLAUSIBLE
    if share > highest:
        mistakes = _of_too_high(claimed, of, share, premises, peak)
    else:
        mistakes = _of_too_low(claimed, of, share, premises, peak)
    return [mistake for mistake in mistakes if lowest <= mistake.share <= highest]


def _of_too_high(
    claimed: Claimed, of: Scope, share: float, premises: Premises, peak: ClaimPeak
) -> Iterator[Mistake]:
    devices = premises.devices or 1
    is_stated_of_one = claimed.of == "device" or claimed.kind == "MFU"
    if devices > 1 and of == "device" and is_stated_of_one:
        yield AllForOne(share=share / devices, devices=devices)
    if claimed.kind == "MFU":
        yield from _other_peaks(share, peak)
    elif peak.sparse_tflops:
        dense_of_sparse = peak.dense_tflops / peak.sparse_tflops
        yield SparseForDense(share=share * dense_of_sparse, peak=peak.sparse_tflops)
    if claimed.kind in ("MFU", "TFLOP/s"):
        yield Recomputation(share=share / RECOMPUTED)
    else:
        yield from _of_too_high_rate(share, premises)
    yield from _eight_bit(share, premises, peak)


def _other_peaks(share: float, peak: ClaimPeak) -> Iterator[Mistake]:
    for name in COMMON_PEAKS:
        sheet = datasheet_named(name)
        assert sheet
        other = sheet.flops_per_second / TERA
        if other < peak.dense_tflops:
            yield OtherPeak(share=share * other / peak.dense_tflops, gpu=name, peak=other)


def _of_too_high_rate(share: float, premises: Premises) -> Iterator[Mistake]:
    """Yield the mistakes in a rate of tokens, samples or steps."""
    _lowest, highest = PLAUSIBLE
    least = ceil(share / highest)
    if least <= MOST_MICRO_BATCHES:
        yield CountedAgain(share=share / max(least, 2), least=max(least, 2))
    yield ForwardOnly(share=share * FORWARD)
    yield FrozenWeights(share=share * FROZEN)
    if premises.parameters:
        active = premises.parameters * highest / share
        yield AllExperts(share=highest, parameters=active)


def _eight_bit(share: float, premises: Premises, peak: ClaimPeak) -> Iterator[Mistake]:
    sheet = datasheet_named(premises.gpu, "fp8")
    if sheet and peak.precision != "fp8":
        eight_bit = sheet.flops_per_second / TERA
        yield EightBit(share=share * peak.dense_tflops / eight_bit, peak=eight_bit)


def _of_too_low(
    claimed: Claimed, of: Scope, share: float, premises: Premises, peak: ClaimPeak
) -> Iterator[Mistake]:
    lowest, _highest = PLAUSIBLE
    devices = premises.devices or 1
    if devices > 1 and of == "all" and claimed.of == "all":
        yield OneForAll(share=share * devices, devices=devices)
    if claimed.kind == "MFU" and peak.sparse_tflops:
        dense_of_sparse = peak.sparse_tflops / peak.dense_tflops
        yield DenseForSparse(share=share * dense_of_sparse, peak=peak.sparse_tflops)
    if claimed.kind in ("MFU", "TFLOP/s"):
        yield ForwardOnly(share=share / FORWARD)
        return
    least = ceil(lowest / share)
    if least <= MOST_MICRO_BATCHES:
        yield NotCounted(share=share * least, least=least)
