"""What an audit states: the origin of a fact, and findings about logs and claims.

A finding is an observation with its figures; it is not necessarily a mistake. The docstring of
each class says when the finding is reported.
"""

from math import isfinite
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import BeforeValidator

from perfkit.audit.figure import Figure
from perfkit.core.format import change, number
from perfkit.core.results.base import Stored
from perfkit.core.statements import N_, Digits2, Digits3, Format, Share, Statement, Verbatim

DIGITS = 6
"""Significant digits of a rate, about as many as logs print."""
FactValue = Annotated[bool | int | float | str, Format(lambda value, _language: str(value))]
"""Value of a fact about the configuration, written as it is."""


def _storable(value: Any) -> Any:
    """Return a number, or its text if JSON lacks it: infinity."""
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    return value


Printed = Annotated[
    float | str,
    BeforeValidator(_storable),
    Format(lambda value, _language: value if isinstance(value, str) else number(value, DIGITS)),
]
"""A rate or a loss, with about as many digits as logs print."""
Teraflops = Annotated[float, Format(lambda value, _language: number(value, 4))]
"""TFLOP/s, with about as many digits as datasheets print."""
Difference = Annotated[float, Format(lambda share, _language: change(share, 3))]
"""A relative difference, written in percent with its sign."""
NamedFigures = Annotated[
    dict[str, Figure], Format(lambda figures, _language: ", ".join(figures))
]
"""Place of a published number -> the figure that explains it."""


class Origin(Statement):
    """Where a fact about the configuration comes from."""

    classes: ClassVar = {}


class ByLine(Origin):
    code = "by_line"
    sentence = N_("line %(line)s")
    line: Verbatim


class ByName(Origin):
    code = "by_name"
    sentence = N_("the file name")


class ByFormat(Origin):
    code = "by_format"
    sentence = N_("the log format")


class ByCommand(Origin):
    code = "by_command"
    sentence = N_("the command line")


class ByRule(Origin):
    code = "by_rule"
    how: str
    """formula with the names of other facts"""

    def english(self) -> str:
        return self.how


PrintedStatistic = Literal["first", "median", "last", "mean", "harmonic mean", "harmonic rest"]


class Basis(Statement):
    """What a number of a log is that is no throughput of its prints."""

    classes: ClassVar = {}


class PrintedBasis(Basis):
    """A quantity that the log prints, or a mean of it."""

    code = "printed"
    name: str
    """its name in the log"""
    statistic: PrintedStatistic
    """mean and harmonic mean: of the prints of steps 21 to 120; harmonic rest: harmonic mean
    without the first print"""

    def english(self) -> str:
        match self.statistic:
            case "first":
                return N_("first printed “%(name)s”")
            case "median":
                return N_("median of printed “%(name)s”")
            case "last":
                return N_("last printed “%(name)s”")
            case "mean":
                return N_("mean of printed “%(name)s”, steps 21–120")
            case "harmonic mean":
                return N_("harmonic mean of printed “%(name)s”, steps 21–120")
        return N_("harmonic mean of printed “%(name)s” without the first")


class StepTimeBasis(Basis):
    """The time of a step."""

    code = "step_time"
    statistic: Literal["mean", "median"]
    basis: Literal["printed", "clock"]
    first: Verbatim
    last: Verbatim

    def english(self) -> str:
        match self.statistic, self.basis:
            case "mean", "printed":
                return N_("mean time of steps %(first)s–%(last)s")
            case "mean", "clock":
                return N_("mean time of steps %(first)s–%(last)s by the lines' timestamps")
            case "median", "printed":
                return N_("median time of steps %(first)s–%(last)s")
        return N_("median time of steps %(first)s–%(last)s by the lines' timestamps")


class ReportedBasis(Basis):
    code = "reported"
    sentence = N_("the log's own “%(name)s”")
    name: str


class Conversion(Statement):
    """How a throughput of the log becomes the claimed quantity."""

    classes: ClassVar = {}


class TimesSequence(Conversion):
    code = "times_sequence"
    sentence = N_("× %(length)s tokens of a sequence")
    length: int


class PerSequence(Conversion):
    code = "per_sequence"
    sentence = N_("/ %(length)s tokens of a sequence")
    length: int


class TimesFlops(Conversion):
    code = "times_flops"
    sentence = N_("× (%(formula)s) FLOPs of a token, N = %(parameters)s")
    formula: str
    parameters: int


class FlopsOverPeak(Conversion):
    """TFLOP/s or tokens/s as a share of the dense peak, or of the peak with sparsity."""

    code = "flops_over_peak"
    formula: str | None = None
    """FLOPs of a token; None for printed TFLOP/s"""
    parameters: int | None = None
    peak: Teraflops
    """TFLOP/s"""
    gpu: str
    sparse: bool = False

    def english(self) -> str:
        match self.formula is None, self.sparse:
            case True, False:
                return N_("/ %(peak)s TFLOP/s, the dense peak of %(gpu)s")
            case True, True:
                return N_("/ %(peak)s TFLOP/s, the peak of %(gpu)s with sparsity")
            case False, False:
                return N_(
                    "× (%(formula)s) FLOPs of a token, N = %(parameters)s, / %(peak)s TFLOP/s, "
                    "the dense peak of %(gpu)s"
                )
        return N_(
            "× (%(formula)s) FLOPs of a token, N = %(parameters)s, / %(peak)s TFLOP/s, the "
            "peak of %(gpu)s with sparsity"
        )


class SourcedFact(Stored):
    """A fact about the configuration and its source: a line, a name, the format, or a rule."""

    value: FactValue
    """the fact"""
    by: Origin
    """its source"""


class Finding(Statement):
    """An observation about a log or a claim."""

    classes: ClassVar = {}


# Findings about the answer's time.


class ClockDiffers(Finding):
    """Samples / time by the timestamps differs by over 2 % from the printed times of the same
    steps."""

    code = "clock_differs"
    sentence = N_(
        "Over steps %(first)s to %(last)s, samples / time is %(reference)s %(unit)s by the "
        "printed times, and %(clock)s by the timestamps of the lines, %(difference)s."
    )
    clock: Printed
    reference: Printed
    unit: str
    difference: Difference
    first: Verbatim
    last: Verbatim


class Pauses(Finding):
    """Some of the answer's printed lines, of at least 8, take over 1.5 times the median time of
    a step, and together over 2 % of the time above it; not if over a fifth of the lines do, or
    more than 5 of them more often than every 50 steps."""

    code = "pauses"
    sentence = N_(
        "Pauses, such as checkpoints, take %(share)s of the time of steps %(first)s–%(last)s: "
        "%(count)s, at steps %(places)s; without them: %(without)s %(unit)s."
    )
    count: int
    places: list[str]
    """steps of the first three"""
    share: Share
    """share of the time that they take above the median"""
    without: Printed
    """the answer without these lines; if the answer is the log's own figure or a printed rate,
    steps/s"""
    unit: str
    first: Verbatim
    last: Verbatim

    def parts(self) -> dict[str, Any]:
        others = ["…"] if self.count > len(self.places) else []
        return {"places": [*self.places, *others]}


class FirstStepsIncluded(Finding):
    """The log has no steps behind the warm-up, so that the answer is of all its steps, and the
    first take over 1.3 times the median time of the others. Steps right behind them that take
    less than half of it count among the first, which must take over 1.3 times also together."""

    code = "first_steps_included"
    sentence = N_(
        "Steps %(first)s–%(last)s include the warm-up: up to step %(warm)s, a step takes "
        "%(times)s times the median of the others; without: %(without)s %(unit)s."
    )
    warm: Verbatim
    """last step of the warm-up"""
    times: Digits2
    """time of a step of the warm-up / median of the others"""
    without: Printed
    """as of `pauses`"""
    unit: str
    first: Verbatim
    last: Verbatim


class TwoLevels(Finding):
    """The time of a step changes within the answer's steps and stays at its new level."""

    code = "two_levels"
    sentence = N_(
        "The level changes at step %(step)s: %(before)s %(unit)s before, %(after)s after."
    )
    before: Printed
    after: Printed
    unit: str
    step: Verbatim


class CoarseClock(Finding):
    """The answer is by timestamps whose last digit may move it by over 2 %."""

    code = "coarse_clock"
    sentence = N_(
        "The answer may be off by up to %(share)s: the timestamps of the lines are coarse for "
        "the %(seconds)s s that these steps take."
    )
    share: Share
    seconds: Digits3


class EpochTimes(Finding):
    """The log has the time of each epoch, with its validation, but not that of a step."""

    code = "epoch_times"
    sentence = N_(
        "The log has only the time of each epoch, which includes validation and checkpoints: "
        "the throughput of the training steps does not follow from it."
    )


class LaggingMeans(Finding):
    """Each printed time is one of the log's own window of steps: a mean over a length that the
    file does not tell, or a median."""

    code = "lagging_means"
    sentence = N_(
        "Each printed time is the mean or the median of the log's own window of steps, and is "
        "taken for the steps since the print before: it lags behind a change, and slow steps "
        "do not count in a median."
    )


class EvaluationTime(Finding):
    """MLPerf's epochs or blocks contain evaluations. Their time does not count in the
    throughput if the log tells it; the reported samples / time of epochs and blocks includes
    it. Else the results stand right at the ends of epochs or blocks."""

    code = "evaluations"
    sentence = N_(
        "Evaluations within the %(spans)s, together %(seconds)s s, are left out of the "
        "throughput, but not of the reported samples / time."
    )
    spans: str
    seconds: Printed | None = None

    def english(self) -> str:
        if self.seconds is None:
            return N_(
                "The time of the %(spans)s includes evaluations, whose time the log does not "
                "tell: the training alone is faster than samples / time."
            )
        return self.sentence


class InputWait(Finding):
    """Data wait takes over 5 % of the time."""

    code = "input_wait"
    sentence = N_(
        "Data wait takes %(share)s of the steps' time; only a run with other input shows "
        "whether it limits the throughput."
    )
    share: Share


# Findings about figures that disagree.


class MeanOfRates(Finding):
    """The mean of the printed rates is over 0.5 % above samples / time."""

    code = "mean_of_rates"
    sentence = N_(
        "Over steps %(first)s to %(last)s, the mean of the printed rates is %(mean)s %(unit)s, "
        "%(share)s higher than samples / time, %(reference)s."
    )
    mean: Printed
    reference: Printed
    unit: str
    share: Share
    first: Verbatim
    last: Verbatim


class RateContradictsBatch(Finding):
    """A printed rate differs by over 10 % from the samples of a step / its time (median of
    the lines)."""

    code = "rate_contradicts_batch"
    sentence = N_(
        "The printed %(name)s is %(ratio)s times the samples of a step / its time"
        ": the batch size, the accumulation or the number of devices is another one."
    )
    name: str
    """printed name"""
    ratio: Printed
    cause: Literal["accumulated twice", "not accumulated", "devices", ""]
    """what explains the ratio"""
    named: bool
    """whether only the file's name tells the batch size"""

    def english(self) -> str:
        if self.named:
            return N_(
                "The printed %(name)s is %(ratio)s times the samples of a step / its time"
                ": the batch size in the file's name is not the log's."
            )
        if self.cause == "accumulated twice":
            return N_(
                "The printed %(name)s is %(ratio)s times the samples of a step / its time"
                ": it counts the accumulated batches twice."
            )
        if self.cause == "not accumulated":
            return N_(
                "The printed %(name)s is %(ratio)s times the samples of a step / its time"
                ": it does not count the accumulated batches."
            )
        if self.cause == "devices":
            return N_(
                "The printed %(name)s is %(ratio)s times the samples of a step / its time"
                ": one of the two is of one device, the other of all."
            )
        return self.sentence


class OwnFlopsDiffer(Finding):
    """The TFLOP/s that the log prints differ from those of the answer by a factor over 1.5,
    over the same steps, whether attention counts in full or causally."""

    code = "own_flops_differ"
    sentence = N_(
        "The answer's %(answer)s %(quantity)s are %(times)s times the log's own %(own)s "
        "(“%(name)s”): the parameters (of experts: the active ones), the batch, the devices "
        "or the log's number may be wrong."
    )
    name: str
    quantity: str
    """TFLOP/s, or % MFU"""
    own: Teraflops
    answer: Teraflops
    times: Digits3
    """that of the answer / the log's own"""


class Impossible(Finding):
    """The MFU of the answer, also with causal attention, or the median of a printed MFU or of
    a device's printed TFLOP/s is over 100 % of the peak: of printed TFLOP/s in FP8 if the GPU
    has it."""

    code = "impossible"
    sentence = N_(
        "The printed “%(name)s” is impossible, %(share)s of the peak: the log's suite assumes "
        "the peak of another GPU, or more FLOPs than the model has."
    )
    name: str = ""
    """the quantity's name in the log; empty for the answer's MFU"""
    share: Share

    def english(self) -> str:
        if not self.name:
            return N_(
                "The MFU of %(share)s is impossible: the parameters (of experts: the active "
                "ones), the batch, the devices, the precision or the GPU are wrong."
            )
        return self.sentence


class EveryExpertCounted(Finding):
    """The log's parameters count every expert, but a token uses some of them: the parameters
    that a token uses are unknown, and with them its FLOPs."""

    code = "every_expert_counted"
    sentence = N_(
        "No TFLOP/s or MFU by parameters: the log's %(parameters)s count every expert of "
        "the mixture; give the active parameters by -p parameters N."
    )
    parameters: int


# Findings about what the log is, and of what.


class SeveralTrainings(Finding):
    """The file has several trainings, one after the other."""

    code = "several_trainings"
    sentence = N_(
        "The file has %(count)s trainings: this is the longest, steps %(first)s–%(last)s; the "
        "others are rows of their own."
    )
    count: int
    first: Verbatim
    last: Verbatim


class BatchSizeChanges(Finding):
    """Printed lines have different global batch sizes, so none is used: samples per step of one
    part of the log are not those of another."""

    code = "batch_size_changes"
    sentence = N_(
        "The global batch size changes within the log (%(lowest)s to %(highest)s), so that no "
        "throughput can be computed: give the part of the log with one batch size."
    )
    lowest: int
    highest: int


class Contradiction(Finding):
    """The log states a fact twice, differently. The first value is used."""

    code = "contradiction"
    sentence = N_("%(name)s is %(value)s by %(by)s, but %(other)s by %(whom)s.")
    name: str
    value: FactValue
    by: Origin
    other: FactValue
    """the first value"""
    whom: Origin
    """origin of the first value"""


class UnknownSamples(Finding):
    """MLPerf's epochs or blocks have no number that is known to be one of samples: neither
    `samples_count` nor a logged throughput nor the benchmark tells what is counted."""

    code = "unknown_samples"
    sentence = N_(
        "Nothing tells the samples of the %(spans)s: their numbers may be epochs, batches, "
        "samples or tokens. No throughput is computed of them."
    )
    spans: str


class NotTraining(Finding):
    """The log is of inference."""

    code = "not_training"
    sentence = N_("This is inference, not training: it is compared with no published number.")


class LossNotFalling(Finding):
    """The mean of the last 10 losses (of fewer than 20: the last half) is not 0.0001 below the
    mean of the first, or no number."""

    code = "loss_not_falling"
    sentence = N_(
        "The loss did not fall: its mean is %(first)s in the first lines and %(last)s in the "
        "last."
    )
    first: Printed
    last: Printed


# One claim.


class OtherWork(Finding):
    """The log has another batch size, or float16 instead of automatic mixed precision or the
    reverse, than the number that it reproduces."""

    code = "other_work"
    sentence = N_("The log has %(key)s %(log)s; the published number has %(claimed)s.")
    key: str
    """name of the fact"""
    claimed: FactValue
    log: FactValue


class Ambiguous(Finding):
    """The log has too few facts to choose among the cells of a table."""

    code = "ambiguous"
    sentence = N_("The log matches several published numbers equally well.")


class ClaimNeeds(Finding):
    """The log has no number in the claimed quantity, but would have one with further facts."""

    code = "claim_needs"
    sentence = N_("To convert the log's throughput to %(quantity)s, add %(options)s.")
    quantity: str
    options: list[str]
    """options of the command line that state the facts"""


class OneLine(Finding):
    """No statistic of the log has the claimed number, but single lines print it."""

    code = "one_line"
    sentence = N_(
        "Printed lines with this number: %(count)s, first this one; no statistic of the log "
        "has it."
    )
    count: int


class PrintedOtherwise(Finding):
    """Nothing of the training has the claimed number, but the log prints it: as the result of
    an evaluation, in a summary, or as another quantity."""

    code = "printed_otherwise"
    sentence = N_(
        "Line %(line)s prints it as “%(name)s”, and no statistic of the training has it: "
        "%(excerpt)s"
    )
    line: Verbatim
    name: str
    """the words before the number; empty without any"""
    excerpt: str
    """the line, or a part of it"""

    def english(self) -> str:
        if self.name:
            return self.sentence
        return N_(
            "Line %(line)s prints it, and no statistic of the training has it: %(excerpt)s"
        )


class Truncated(Finding):
    """Only the truncated digits of a figure are those of the claim."""

    code = "truncated"
    sentence = N_("The digits of %(value)s were truncated instead of rounded to %(claimed)s.")
    value: Printed
    claimed: str


class OtherCount(Finding):
    """The claim is the figure of one device times another number of devices than the log's; it
    is not reproduced."""

    code = "other_count"
    sentence = N_(
        "The number is the figure of one device times %(devices)s; the log has another number "
        "of devices."
    )
    devices: Verbatim
    value: Printed


class OfAllDevices(Finding):
    """The claim is of one device, but equals a number of all; it is not reproduced."""

    code = "of_all_devices"
    sentence = N_("The number is that of all devices, not of one.")


class OfOneDevice(Finding):
    """The claim is of all devices, but equals a number of one; it is not reproduced."""

    code = "of_one_device"
    sentence = N_("The number is that of one device, not of all.")


class SparsePeak(Finding):
    """The claimed MFU is the share of the peak with sparsity."""

    code = "sparse_peak"
    sentence = N_(
        "The MFU is a share of the peak with sparsity, which training does not use: of the "
        "dense peak it is %(share)s."
    )
    share: Share


class OfRates(Finding):
    """A finding about throughputs. Their `unit` is empty if it is unknown."""

    unit: str = ""

    def with_unit(self, rate: float | str) -> str:
        """Return a rate as text with its unit."""
        text = rate if isinstance(rate, str) else number(rate, DIGITS)
        return f"{text} {self.unit}".rstrip()


class OtherStatistic(OfRates):
    """The claim is explained, but not by samples / time, which differs from it by over
    0.5 %."""

    code = "other_statistic"
    sentence = N_(
        "Samples / time over steps %(first)s to %(last)s is %(reference)s, %(difference)s from "
        "the claim."
    )
    difference: Difference
    reference: Printed
    first: Verbatim
    last: Verbatim

    def parts(self) -> dict[str, Any]:
        return {"reference": self.with_unit(self.reference)}


class MeanOfRunning(Finding):
    """The explanation is a mean of rates that are running means themselves."""

    code = "mean_of_running"
    sentence = N_(
        "The printed rates are running means; their mean counts early steps repeatedly."
    )
    skipped: int


class WarmUpInside(OfRates):
    """The explanation includes the first 20 steps, which change it by over 0.1 %."""

    code = "warm_up_inside"
    sentence = N_(
        "The first 20 steps are included; without them it is %(warm)s (%(difference)s)."
    )
    warm: Printed
    difference: Difference

    def parts(self) -> dict[str, Any]:
        return {"warm": self.with_unit(self.warm)}


class ByChance(Finding):
    """Over 0.2 equally simple statistics are expected to match by chance; not for a number that
    the log reports, or prints with the same digits."""

    code = "by_chance"
    sentence = N_(
        "So few digits match easily: %(chance)s equally simple statistics are expected to "
        "match by chance."
    )
    chance: Digits2


class Note(NamedTuple):
    """A finding in a log, and its line; None if it is not a single line."""

    finding: Finding
    line: int | None = None
