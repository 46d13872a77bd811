"""A claim without a log: what it means for each device, and whether that is possible.

A claim is impossible if its least arithmetic, 6 N FLOPs of a token, exceeds the dense peak of
the GPU; implausible above what a large matrix product reaches (HIGHEST_SHARE) or far below
published trainings (LOWEST_SHARE); contradictory if layers and width don't give the stated
parameters. A claim that doesn't say whether it is of one device or of all is read both ways.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

from perfkit.audit.claim_mistakes import mistakes_of
from perfkit.audit.claim_premises import ClaimPeak, Premises, peak_of, premises_of
from perfkit.audit.claim_statements import (
    ClaimAnswer,
    DeviceWork,
    ImagesNotJudged,
    ImpossibleClaim,
    Mistake,
    NotJudged,
    OverPeak,
    Possible,
    PossibleBoth,
    PossibleForAll,
    PossibleForOne,
    Scope,
    ShapeContradicts,
    TooHigh,
    TooLow,
)
from perfkit.audit.quantity import (
    ALLOWED,
    Claimed,
    ClaimedKind,
    Of,
    claimed_quantity,
    counts_images,
)
from perfkit.audit.refusals import BatchMissing, LogMissing, UnitMissing
from perfkit.audit.statements import FactValue
from perfkit.core.models.flops import TokenFlops, every_flops_per_token
from perfkit.core.request import RequestError
from perfkit.core.results.base import Stored
from perfkit.core.units import TERA

HIGHEST_SHARE = 0.8
"""An H100 reaches 798 of 989.5 TFLOP/s in a bf16 product of 8192 x 8192 matrices."""
HIGHEST_PERCENT = 100
"""No GPU exceeds its peak."""
LOWEST_SHARE = 0.01
"""A twentieth of the 21 % of GPT-3, the lowest of Chowdhery et al., PaLM, 2022, table 3."""
WEIGHTS_OF_BLOCK = 12
"""A transformer's layer has about 12 d² weights: 4 d² in attention, 8 d² in its dense block."""
FEWEST, MOST = 0.4, 5.0
"""Range of stated parameters / 12 L d² in dense models: embeddings of small models and wide
dense blocks add up to a few times 12 L d²; narrow ones leave over half of it."""
Verdict = Literal["possible", "implausible", "impossible", "contradictory", "not judged"]
ORDER: tuple[Verdict, ...] = ("possible", "implausible", "impossible", "not judged")
"""Of two readings of a claim, the verdict that comes first counts."""


class ClaimUtilization(Stored):
    """What a claim means by one formula of a token's FLOPs."""

    formula: str
    """FLOPs of training per token; empty if the parameters are not stated"""
    flops_per_token: float | None
    """their value"""
    tokens_per_device: float | None
    """tokens per second of a device"""
    tflops_per_device: float | None
    """model's TFLOP/s of a device"""
    mfu: float | None
    """share of the dense peak"""
    sparse_mfu: float | None
    """share of the peak with sparsity"""


class Reading(Stored):
    """A claim read as the number of all devices or of one."""

    of: Scope
    """what it is read as"""
    tokens_per_second: float | None
    """tokens per second of all devices; None if it depends on the formula"""
    tokens_per_device: float | None
    """tokens per second of a device; None if it depends on the formula"""
    samples_per_second: float | None
    """samples per second of all devices"""
    steps_per_second: float | None
    """optimizer updates per second"""
    seconds_per_step: float | None
    """seconds of an optimizer update"""
    utilizations: list[ClaimUtilization]
    """by each formula: attention in full, causally, and not counted"""
    verdict: Verdict
    """whether it is possible"""
    mistakes: list[Mistake]
    """mistakes that would explain an impossible or implausible number"""


class ClaimAlone(Stored):
    """A claim without a log."""

    text: str
    """the claim as typed"""
    quantity: ClaimedKind
    """what it claims, with its unit"""
    value: float
    """its value in this unit; MFU in percent"""
    of: Of
    """whether it says that it is of one device or of all"""
    premises: Premises
    """what the command line states"""
    peak: ClaimPeak | None
    """peak of the GPU; None if no GPU is stated"""
    verdict: Verdict
    """whether the claim is possible"""
    answer: ClaimAnswer
    """the verdict in a sentence"""
    readings: list[Reading]
    """the claim as the number of all devices, of one, or both"""

    @property
    def is_refuted(self) -> bool:
        return self.verdict in ("impossible", "contradictory")


class Rate(NamedTuple):
    """A claim as read: the rates of a device that it gives, as far as known."""

    of: Scope
    samples: float | None = None
    tokens: float | None = None
    tflops: float | None = None


def check_claim_alone(text: str, facts: Mapping[str, FactValue]) -> ClaimAlone:
    """Check a claim by what the command line states. Raises RequestError."""
    claimed = claimed_quantity(text)
    if claimed is None:
        raise RequestError([UnitMissing(parameter="--claim", value=text, allowed=ALLOWED)])
    premises = premises_of(facts)
    peak = peak_of(premises, str(facts.get("precision", "")))
    readings = []
    for rate in _rates(claimed, premises, peak):
        readings.append(_reading(rate, claimed, premises, peak))
    answer = _contradiction(premises) or _answer(readings, claimed, premises, peak)
    return ClaimAlone(
        text=claimed.text,
        quantity=claimed.kind,
        value=claimed.value,
        of=claimed.of,
        premises=premises,
        peak=peak,
        verdict=_verdict(answer),
        answer=answer,
        readings=readings,
    )


# Rates of a device.


def _rates(claimed: Claimed, premises: Premises, peak: ClaimPeak | None) -> list[Rate]:
    """Return the claim as the rate of a device, once for each way to read it."""
    match claimed.kind:
        case "minutes":
            raise RequestError([LogMissing(parameter="--claim", value=claimed.text)])
        case "s/step" | "steps/s":
            return [_rate_of_steps(claimed, premises)]
        case "MFU":
            tflops = peak.dense_tflops * claimed.value / 100 if peak else None
            return [Rate("device", tflops=tflops)]
    rates = []
    for of in _scopes(claimed, premises):
        devices = premises.devices if of == "all" else 1
        # A number of all of an unknown number of devices gives no rate of one.
        value = claimed.value / devices if devices else None
        rates.append(_rate(claimed.kind, of, value, premises))
    return rates


def _scopes(claimed: Claimed, premises: Premises) -> list[Scope]:
    """Return how a claim may be read: as it says, or else as the number of all and of one."""
    if claimed.of:
        return [claimed.of]
    if premises.devices == 1:
        return ["device"]
    return ["all", "device"] if premises.devices else ["device"]


def _rate(kind: ClaimedKind, of: Scope, value: float | None, premises: Premises) -> Rate:
    if value is None:
        return Rate(of)
    length = premises.sequence_length
    match kind:
        case "TFLOP/s":
            return Rate(of, tflops=value)
        case "tokens/s":
            return Rate(of, samples=value / length if length else None, tokens=value)
    return Rate(of, samples=value, tokens=value * length if length else None)


def _rate_of_steps(claimed: Claimed, premises: Premises) -> Rate:
    """Return the rate of a device from the time of a step. Raises RequestError."""
    if not premises.global_batch_size:
        raise RequestError([BatchMissing(parameter="--claim", value=claimed.text)])
    steps = claimed.value if claimed.kind == "steps/s" else 1 / claimed.value
    samples = steps * premises.global_batch_size
    value = samples / premises.devices if premises.devices else None
    return _rate("samples/s", "all", value, premises)


# Readings.


def _reading(
    rate: Rate, claimed: Claimed, premises: Premises, peak: ClaimPeak | None
) -> Reading:
    utilizations = _utilizations(rate, premises, peak)
    share = least_share(utilizations)
    verdict = _verdict_of_share(share)
    mistakes: list[Mistake] = []
    if share and peak and verdict in ("impossible", "implausible"):
        mistakes = mistakes_of(claimed, rate.of, share, premises, peak)
    devices = premises.devices
    samples = rate.samples * devices if rate.samples and devices else None
    tokens = rate.tokens * devices if rate.tokens and devices else None
    steps = None
    if samples and premises.global_batch_size:
        steps = samples / premises.global_batch_size
    return Reading(
        of=rate.of,
        tokens_per_second=tokens,
        tokens_per_device=rate.tokens,
        samples_per_second=samples,
        steps_per_second=steps,
        seconds_per_step=1 / steps if steps else None,
        utilizations=utilizations,
        verdict=verdict,
        mistakes=mistakes,
    )


def _utilizations(
    rate: Rate, premises: Premises, peak: ClaimPeak | None
) -> list[ClaimUtilization]:
    counts: list[TokenFlops] = []
    if premises.parameters:
        counts = every_flops_per_token(
            premises.parameters,
            premises.layers,
            premises.hidden_size,
            premises.sequence_length,
        )
    utilizations = [_utilization(rate, count, peak) for count in counts]
    if not utilizations and rate.tflops:
        utilizations.append(_utilization(rate, None, peak))
    return utilizations


def _utilization(
    rate: Rate, count: TokenFlops | None, peak: ClaimPeak | None
) -> ClaimUtilization:
    """Return what the rate of a device means if a token takes so many FLOPs."""
    tokens, tflops = rate.tokens, rate.tflops
    if count and tokens:
        tflops = tokens * count.flops / TERA
    elif count and tflops:
        tokens = tflops * TERA / count.flops
    share, sparse_share = None, None
    if tflops and peak:
        share = tflops / peak.dense_tflops
        if peak.sparse_tflops:
            sparse_share = tflops / peak.sparse_tflops
    return ClaimUtilization(
        formula=count.formula if count else "",
        flops_per_token=count.flops if count else None,
        tokens_per_device=tokens,
        tflops_per_device=tflops,
        mfu=share,
        sparse_mfu=sparse_share,
    )


def least_share(utilizations: list[ClaimUtilization]) -> float | None:
    """Return the least share of the dense peak by any formula; None if none is known."""
    least = _least(utilizations)
    return least.mfu if least else None


def _least(utilizations: list[ClaimUtilization]) -> ClaimUtilization | None:
    with_share = [utilization for utilization in utilizations if utilization.mfu]
    return min(with_share, key=lambda utilization: utilization.mfu or 0.0, default=None)


def _verdict_of_share(share: float | None) -> Verdict:
    if share is None:
        return "not judged"
    if share > 1:
        return "impossible"
    return "possible" if LOWEST_SHARE <= share <= HIGHEST_SHARE else "implausible"


# The answer.


def _contradiction(premises: Premises) -> ClaimAnswer | None:
    """Return the contradiction between the model's shape and its parameters, if any."""
    layers, width, parameters = premises.layers, premises.hidden_size, premises.parameters
    if not layers or not width or not parameters:
        return None
    weights = WEIGHTS_OF_BLOCK * layers * width**2
    if FEWEST <= parameters / weights <= MOST:
        return None
    return ShapeContradicts(
        layers=layers, hidden_size=width, weights=weights, parameters=parameters
    )


def _answer(
    readings: list[Reading], claimed: Claimed, premises: Premises, peak: ClaimPeak | None
) -> ClaimAnswer:
    best = min(readings, key=lambda reading: ORDER.index(reading.verdict))
    work = _work(best, premises, peak)
    if work is None:
        return _without_work(claimed, premises)
    match best.verdict:
        case "impossible":
            return ImpossibleClaim(work=work)
        case "implausible" if work.share > HIGHEST_SHARE:
            return TooHigh(work=work, limit=HIGHEST_SHARE)
        case "implausible":
            return TooLow(work=work, limit=LOWEST_SHARE)
    for other in readings:
        if other is not best:
            return _of_two(work, best, other)
    return Possible(work=work)


def _without_work(claimed: Claimed, premises: Premises) -> ClaimAnswer:
    """Return the answer about a claim whose share of a peak is unknown."""
    if claimed.kind == "MFU" and claimed.value > HIGHEST_PERCENT:
        return OverPeak(share=claimed.value / 100)
    if counts_images(claimed.text):
        return ImagesNotJudged(claim=claimed.text)
    return NotJudged(missing=_missing(claimed, premises))


def _work(reading: Reading, premises: Premises, peak: ClaimPeak | None) -> DeviceWork | None:
    """Return the arithmetic of a reading, with attention in full if the reading is possible by
    that formula, too, else the least; None if its share of the peak is unknown."""
    work = _least(reading.utilizations)
    for utilization in reading.utilizations:
        if utilization.mfu and _verdict_of_share(utilization.mfu) == "possible":
            work = utilization
            break
    if peak is None or work is None or work.mfu is None or work.tflops_per_device is None:
        return None
    states_flops = reading.tokens_per_device is None
    return DeviceWork(
        gpu=peak.gpu,
        tflops=work.tflops_per_device,
        share=work.mfu,
        formula=None if states_flops else work.formula,
        devices=premises.devices if reading.of == "all" else None,
    )


def _of_two(work: DeviceWork, best: Reading, other: Reading) -> ClaimAnswer:
    """Return the answer about a claim that is possible in one way to read it, or in both."""
    other_share = least_share(other.utilizations) or 0.0
    if other.verdict == "possible":
        return PossibleBoth(work=work, share_of_one=other_share)
    if best.of == "all":
        return PossibleForAll(work=work, share_of_one=other_share)
    return PossibleForOne(work=work, share_of_all=other_share)


def _missing(claimed: Claimed, premises: Premises) -> list[str]:
    """Return the options without which this claim can't be judged."""
    counts_work = claimed.kind in ("TFLOP/s", "MFU")
    counts_samples = claimed.kind not in ("tokens/s", "TFLOP/s", "MFU")
    is_of_all = claimed.of == "all" or claimed.kind in ("s/step", "steps/s")
    missing = []
    if not premises.gpu:
        missing.append("-p gpu_model NAME")
    if not premises.parameters and not counts_work:
        missing.append("-p parameters COUNT")
    if not premises.sequence_length and counts_samples:
        missing.append("-p sequence_length TOKENS")
    if not premises.devices and is_of_all:
        missing.append("-p devices COUNT")
    return missing


def _verdict(answer: ClaimAnswer) -> Verdict:
    match answer:
        case ImpossibleClaim() | OverPeak():
            return "impossible"
        case TooHigh() | TooLow():
            return "implausible"
        case ShapeContradicts():
            return "contradictory"
        case NotJudged() | ImagesNotJudged():
            return "not judged"
    return "possible"
