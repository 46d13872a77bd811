"""What is said about a claim without a log: its verdict, and the mistakes that would explain
it. English only, as terminals are."""

from typing import Annotated, ClassVar, Literal

from perfkit.audit.statements import Teraflops
from perfkit.core.format import number
from perfkit.core.statements import Format, Share, Statement, Verbatim

Scope = Literal["all", "device"]
"""Whether a claim is read as the number of all devices or of one."""
Count = Annotated[float, Format(lambda value, _language: _spelt(value))]
"""A number of weights: 8.03 billion."""


def _spelt(value: float) -> str:
    for name, unit in (("trillion", 1e12), ("billion", 1e9), ("million", 1e6)):
        if value >= unit:
            return f"{number(value / unit, 3)} {name}"
    return number(value, 3)


Name = Annotated[str, Format(lambda name, _language: name)]


class Work(Statement):
    """The arithmetic of a claim, as a part of a sentence."""

    classes: ClassVar = {}


class DeviceWork(Work):
    """What each device has to do if the claim holds."""

    code = "device_work"
    gpu: str
    tflops: Teraflops
    """model's TFLOP/s of a device"""
    share: Share
    """share of the dense peak of a device"""
    formula: str | None = None
    """FLOPs of a token; None if the claim states the FLOPs itself"""
    devices: Verbatim | None = None
    """devices, if the claim is read as the number of all"""

    def english(self) -> str:
        match self.devices is None, self.formula is None:
            case True, True:
                return "one %(gpu)s does %(tflops)s TFLOP/s, %(share)s of its dense peak"
            case True, False:
                return (
                    "one %(gpu)s does %(tflops)s TFLOP/s (%(formula)s), %(share)s of its dense "
                    "peak"
                )
            case False, True:
                return (
                    "each of %(devices)s %(gpu)s does %(tflops)s TFLOP/s, %(share)s of its "
                    "dense peak"
                )
        return (
            "each of %(devices)s %(gpu)s does %(tflops)s TFLOP/s (%(formula)s), %(share)s of "
            "its dense peak"
        )


class ClaimAnswer(Statement):
    """The verdict on a claim."""

    classes: ClassVar = {}


class Possible(ClaimAnswer):
    code = "possible"
    sentence = "Possible: %(work)s."
    work: Work


class PossibleForAll(ClaimAnswer):
    """Of the two ways to read a claim, only that as the number of all devices is possible."""

    code = "possible_for_all"
    sentence = (
        "Possible only as the number of all devices: %(work)s; as the number of one device it "
        "would be %(share_of_one)s."
    )
    work: Work
    share_of_one: Share
    """share of the dense peak if it were the number of one device"""


class PossibleForOne(ClaimAnswer):
    """Of the two ways to read a claim, only that as the number of one device is plausible."""

    code = "possible_for_one"
    sentence = (
        "Possible as the number of one device: %(work)s; as the number of all devices it would "
        "be %(share_of_all)s, which is implausible."
    )
    work: Work
    share_of_all: Share
    """share of the dense peak if it were the number of all devices"""


class PossibleBoth(ClaimAnswer):
    """Both ways to read a claim are possible."""

    code = "possible_both"
    sentence = (
        "Possible as the number of all devices, %(work)s, and as that of one device, with "
        "%(share_of_one)s."
    )
    work: Work
    share_of_one: Share
    """share of the dense peak if it were the number of one device"""


class ImpossibleClaim(ClaimAnswer):
    """The least arithmetic of the claim exceeds the dense peak."""

    code = "impossible"
    sentence = "Impossible: %(work)s."
    work: Work


class OverPeak(ClaimAnswer):
    """The claim is a utilization above 100 %, whatever the peak."""

    code = "over_peak"
    sentence = (
        "Impossible: %(share)s is more than the peak of any GPU; mistakes that would explain "
        "it: the peak of another GPU or precision, the number of all devices taken for that of "
        "one, FLOPs counted with recomputation."
    )
    share: Share


class TooHigh(ClaimAnswer):
    """The arithmetic of the claim exceeds what a single large matrix product reaches: 798 of
    the H100's 989.5 TFLOP/s in bf16 for 8192 x 8192 matrices."""

    code = "too_high"
    sentence = "Implausible: %(work)s; a large matrix product alone reaches about %(limit)s."
    work: Work
    limit: Share


class TooLow(ClaimAnswer):
    """The arithmetic of the claim is a small fraction of what published trainings do: 21 % of
    the peak for GPT-3 to 46 % for PaLM (Chowdhery et al., 2022, table 3)."""

    code = "too_low"
    sentence = (
        "Implausible: %(work)s, less than %(limit)s; published trainings of large language "
        "models reach 20 to 50 %%."
    )
    work: Work
    limit: Share


class ShapeContradicts(ClaimAnswer):
    """Layers and width give another number of parameters than stated."""

    code = "shape_contradicts"
    sentence = (
        "Contradictory: %(layers)s layers of width %(hidden_size)s have about %(weights)s "
        "weights (12 L d²) besides embeddings, not %(parameters)s. For a mixture of experts, "
        "give the active parameters."
    )
    layers: Verbatim
    hidden_size: Verbatim
    weights: Count
    parameters: Count


class NotJudged(ClaimAnswer):
    """Facts are missing without which no share of the peak can be computed."""

    code = "not_judged"
    sentence = "Not judged: add %(missing)s."
    missing: list[str]
    """options that are missing: -p gpu_model NAME"""


class ImagesNotJudged(ClaimAnswer):
    """Without a log, nothing tells the FLOPs of an image."""

    code = "images_not_judged"
    sentence = (
        "Not judged: images have no tokens, and without a log nothing tells the FLOPs of one; "
        "give a log: perfkit audit LOG --claim '%(claim)s'."
    )
    claim: Name


class Mistake(Statement):
    """A common mistake that would explain an impossible or implausible claim."""

    classes: ClassVar = {}
    share: Share
    """share of the dense peak without the mistake"""


class AllForOne(Mistake):
    code = "all_for_one"
    sentence = "The number is that of all %(devices)s devices, not of one: %(share)s MFU."
    devices: Verbatim


class OneForAll(Mistake):
    code = "one_for_all"
    sentence = "The number is that of one of %(devices)s devices, not of all: %(share)s MFU."
    devices: Verbatim


class OtherPeak(Mistake):
    code = "other_peak"
    sentence = (
        "The MFU was computed with the peak of an %(gpu)s, %(peak)s TFLOP/s, as some suites do "
        "for a GPU that they do not know: %(share)s MFU."
    )
    gpu: str
    peak: Teraflops


class SparseForDense(Mistake):
    code = "sparse_for_dense"
    sentence = (
        "The number was computed from an MFU and the peak with sparsity, %(peak)s TFLOP/s: "
        "%(share)s MFU."
    )
    peak: Teraflops


class DenseForSparse(Mistake):
    code = "dense_for_sparse"
    sentence = (
        "The MFU is a share of the peak with sparsity, %(peak)s TFLOP/s: %(share)s of the "
        "dense one."
    )
    peak: Teraflops


class CountedAgain(Mistake):
    code = "counted_again"
    sentence = (
        "Gradient accumulation is counted twice: with %(least)s micro-batches or more in an "
        "update, at most %(share)s MFU."
    )
    least: Verbatim


class NotCounted(Mistake):
    code = "not_counted"
    sentence = (
        "Gradient accumulation is not counted: with %(least)s micro-batches or more in an "
        "update, at least %(share)s MFU."
    )
    least: Verbatim


class ForwardOnly(Mistake):
    code = "forward_only"
    sentence = (
        "The number counts 2 N FLOPs of a token, those of the forward pass, instead of 6 N: "
        "%(share)s MFU."
    )


class Recomputation(Mistake):
    code = "recomputation"
    sentence = (
        "The number counts recomputed activations (HFU, 8 N instead of 6 N): %(share)s MFU."
    )


class EightBit(Mistake):
    code = "eight_bit"
    sentence = (
        "The training is in FP8, whose dense peak is %(peak)s TFLOP/s: %(share)s MFU; add "
        "-p precision fp8."
    )
    peak: Teraflops


class FrozenWeights(Mistake):
    code = "frozen_weights"
    sentence = (
        "Most weights are frozen (LoRA), so that their gradients are not computed, 4 N instead "
        "of 6 N: %(share)s MFU."
    )


class AllExperts(Mistake):
    code = "all_experts"
    sentence = (
        "The model is a mixture of experts: with %(parameters)s active parameters or fewer, at "
        "most %(share)s MFU; give the active ones."
    )
    parameters: Count
