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
    """An observation about a log, a claim, or several of them."""

    classes: ClassVar = {}


# Reading a file.


class NulBytes(Finding):
    """The file has NUL bytes, as after a crash of the machine."""

    code = "nul_bytes"
    sentence = N_("%(count)s NUL bytes were left out.")
    count: int

    def english(self) -> str:
        return N_("A NUL byte was left out.") if self.count == 1 else self.sentence


class NoLineEnd(Finding):
    """The file does not end with a line end. A number at its very end is ignored."""

    code = "no_line_end"
    sentence = N_("The last line has no line end: the file may be cut off.")


class MedianTimes(Finding):
    """The log prints medians of the times of steps. Steps that are much slower than the others,
    such as those with a checkpoint, do not count in them."""

    code = "median_times"
    sentence = N_(
        "Each printed time is the median of the last %(steps)s steps: slow steps do not count, "
        "so throughputs computed from it may be too high."
    )
    steps: int


class LaggingMeans(Finding):
    """Each printed time is the mean of the log's own window of steps, whose length the file
    does not tell."""

    code = "lagging_means"
    sentence = N_(
        "Each printed time is the mean of the last 10, 50 or another number of steps, which "
        "this file does not tell: it is taken for the steps since the print before, and lags "
        "behind a change. The .log file beside it tells the number (window_size)."
    )


class MedianRepeats(Finding):
    """The file is a measurement of perfkit, of which the repeats in the middle are read."""

    code = "median_repeats"
    sentence = N_(
        "The steps are those of the repeats %(indices)s, whose throughput is the median of "
        "%(repeats)s."
    )
    indices: list[int]
    repeats: int

    def english(self) -> str:
        if len(self.indices) == 1:
            return N_(
                "The steps are those of repeat %(indices)s, whose throughput is the median of "
                "%(repeats)s."
            )
        return self.sentence


class EpochTimes(Finding):
    """The log has the time of each epoch, with its validation, but not that of a step."""

    code = "epoch_times"
    sentence = N_(
        "The log has only the time of each epoch, which includes validation and checkpoints: "
        "the throughput of the training steps does not follow from it."
    )


class FiguresOfEach(Finding):
    """Each record of the file has figures of its own, such as those of a node; their medians
    are taken."""

    code = "figures_of_each"
    sentence = N_(
        "The file has %(rates)s throughputs, each in up to %(records)s records, such as one "
        "per node: their medians are told."
    )
    rates: int
    records: int

    def english(self) -> str:
        if self.rates == 1:
            return N_(
                "The file has a throughput in %(records)s records, such as one per node: their "
                "median is told."
            )
        return self.sentence


class LineTooLong(Finding):
    """A line is so long that only its beginning was read."""

    code = "line_too_long"
    sentence = N_("The line is longer than %(characters)s characters: the rest was ignored.")
    characters: int


class OtherFormat(Finding):
    """The file also has printed lines of another known format."""

    code = "other_format"
    sentence = N_("Lines of another format were ignored: %(format)s.")
    format: str


class Contradiction(Finding):
    """The log states a fact twice, differently. The last value before the first print of a
    training holds; the command line wins over the log, and the log over the file's name."""

    code = "contradiction"
    sentence = N_(
        "%(name)s is %(value)s by %(by)s, but %(other)s by %(whom)s: %(value)s is used."
    )
    name: str
    value: FactValue
    """the value that holds"""
    by: Origin
    other: FactValue
    whom: Origin
    """origin of the other value"""


class UnknownSamples(Finding):
    """MLPerf's epochs or blocks have no number that is known to be one of samples: neither
    `samples_count` nor a logged throughput nor the benchmark tells what is counted."""

    code = "unknown_samples"
    sentence = N_(
        "Nothing tells the samples of the %(spans)s: their numbers may be epochs, batches, "
        "samples or tokens. No throughput is computed of them."
    )
    spans: str


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


class NotTraining(Finding):
    """The log is of inference."""

    code = "not_training"
    sentence = N_("This is inference, not training: it is compared with no published number.")


class NoPrints(Finding):
    """No line could be read as a step."""

    code = "no_prints"
    sentence = N_(
        "No printed line names a step; only the figures that the log reports are available."
    )


Unknown = Literal["batch size", "sequence length", "accumulation", "unit", "contradicted"]
"""What is not known of the samples of a step."""


class NoBatchSize(Finding):
    """There are steps and times, but neither rates nor the samples of a step."""

    code = "no_batch_size"
    sentence = N_(
        "No throughput: the log prints no rate, and the samples of a step (batch size, with "
        "BERT also accumulation) are unknown: give the batch size by -p batch_size N."
    )
    unknown: Unknown = "batch size"
    batch: Verbatim | None = None
    """the batch size that the log, its name or the command line tells"""

    @property
    def option(self) -> str:
        """The option that tells what is unknown."""
        return "-p sequence_length N" if self.unknown == "sequence length" else ""

    def english(self) -> str:
        match self.unknown:
            case "sequence length":
                return N_(
                    "No throughput: the log prints no rate, and the tokens of its batch of "
                    "%(batch)s sequences are unknown: give their length by -p sequence_length "
                    "N."
                )
            case "accumulation":
                return N_(
                    "No throughput: the log prints no rate, and how many batches of %(batch)s "
                    "make a step is unknown: give the samples of an update by -p batch_size N."
                )
            case "unit":
                return N_(
                    "No throughput: the log prints no rate, and how many of its units a batch "
                    "of %(batch)s has is unknown."
                )
            case "contradicted":
                return N_(
                    "No throughput: the log prints no rate that it can be computed from, and "
                    "contradicts the batch of %(batch)s in its name: give the batch size by -p "
                    "batch_size N."
                )
        return self.sentence


class FewerSteps(Finding):
    """No epoch has all of the protocol's steps, 21 to 120."""

    code = "fewer_steps"
    sentence = N_(
        "Only %(steps)s of the steps that the protocol measures, %(first)s to %(last)s of "
        "an epoch, have printed lines of their own."
    )
    steps: Verbatim
    first: Verbatim
    last: Verbatim

    def english(self) -> str:
        if not self.steps:
            return N_(
                "No printed line is of the steps %(first)s to %(last)s alone, which the "
                "protocol measures."
            )
        return self.sentence


class Pauses(Finding):
    """Some of the answer's printed lines, of at least 8, take over 1.5 times the median time of
    a step, and together over 2 % of the time above it; not if over a fifth of the lines do."""

    code = "pauses"
    sentence = N_(
        "%(count)s pauses, such as checkpoints, take %(share)s of the answer's time, at "
        "steps %(places)s; without them, the answer is %(without)s %(unit)s."
    )
    count: int
    places: list[str]
    """steps of the first three"""
    share: Share
    """share of the answer's time that they take above the median"""
    without: Printed
    """the answer without these lines"""
    unit: str
    timed: str | None = None
    """the steps whose time is told, if the answer is the log's own figure or a printed rate:
    `without` is then a rate of these steps"""

    def english(self) -> str:
        if self.timed:
            return self._english_of_timed()
        if self.count == 1:
            return N_(
                "A pause, such as a checkpoint, takes %(share)s of the answer's time, at step "
                "%(places)s; without it, the answer is %(without)s %(unit)s."
            )
        if self.count > len(self.places):
            return N_(
                "%(count)s pauses, such as checkpoints, take %(share)s of the answer's time, "
                "at steps %(places)s and others; without them, the answer is %(without)s "
                "%(unit)s."
            )
        return self.sentence

    def _english_of_timed(self) -> str:
        if self.count == 1:
            return N_(
                "A pause, such as a checkpoint, takes %(share)s of the time of steps "
                "%(timed)s, at step %(places)s; without it, they run at %(without)s %(unit)s."
            )
        if self.count > len(self.places):
            return N_(
                "%(count)s pauses, such as checkpoints, take %(share)s of the time of steps "
                "%(timed)s, at steps %(places)s and others; without them, they run at "
                "%(without)s %(unit)s."
            )
        return N_(
            "%(count)s pauses, such as checkpoints, take %(share)s of the time of steps "
            "%(timed)s, at steps %(places)s; without them, they run at %(without)s %(unit)s."
        )


class FirstStepsIncluded(Finding):
    """The log has no steps behind the warm-up, so that the answer is of all its steps, and the
    first take over 1.3 times the median time of the others. Steps right behind them that take
    less than half of it count among the first, which must take over 1.3 times also together."""

    code = "first_steps_included"
    sentence = N_(
        "The answer includes the warm-up: the first %(steps)s steps take %(times)s times "
        "the median of the others. Without them, the answer is %(without)s %(unit)s."
    )
    steps: int
    times: Digits2
    """time of a first step / median of the others"""
    without: Printed
    """the answer without the first steps"""
    unit: str
    timed: str | None = None
    """as of `pauses`"""

    def english(self) -> str:
        if self.timed and self.steps == 1:
            return N_(
                "Steps %(timed)s include the warm-up: the first takes %(times)s times the "
                "median of the others. Without it, they run at %(without)s %(unit)s."
            )
        if self.timed:
            return N_(
                "Steps %(timed)s include the warm-up: the first %(steps)s take %(times)s times "
                "the median of the others. Without them, they run at %(without)s %(unit)s."
            )
        if self.steps == 1:
            return N_(
                "The answer includes the warm-up: the first step takes %(times)s times the "
                "median of the others. Without it, the answer is %(without)s %(unit)s."
            )
        return self.sentence


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


class Resumed(Finding):
    """The training went on from a checkpoint: its warm-up and the protocol's steps are counted
    from there."""

    code = "resumed"
    sentence = N_(
        "The training was resumed after step %(step)s: the warm-up is counted from there, and "
        "steps %(first)s to %(last)s are the protocol's."
    )
    step: Verbatim
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


class OfRates(Finding):
    """A finding about throughputs. Their `unit` is empty if it is unknown."""

    unit: str = ""

    def with_unit(self, rate: float | str) -> str:
        """Return a rate as text with its unit."""
        text = rate if isinstance(rate, str) else number(rate, DIGITS)
        return f"{text} {self.unit}".rstrip()


class MeanOfRates(OfRates):
    """The mean of the printed rates is over 0.5 % above samples / time."""

    code = "mean_of_rates"
    sentence = N_(
        "Over steps %(first)s to %(last)s, the mean of the printed rates is %(mean)s, "
        "%(share)s higher than samples / time, %(reference)s."
    )
    mean: Printed
    reference: Printed
    share: Share
    first: Verbatim
    last: Verbatim

    def parts(self) -> dict[str, Any]:
        mean, reference = self.with_unit(self.mean), self.with_unit(self.reference)
        return {"mean": mean, "reference": reference}


class ClockDiffers(OfRates):
    """Samples / time by the timestamps differs by over 2 % from the printed times of the same
    steps."""

    code = "clock_differs"
    sentence = N_(
        "Over steps %(first)s to %(last)s, samples / time is %(reference)s by the printed "
        "times, and %(clock)s by the timestamps of the lines, %(difference)s."
    )
    clock: Printed
    reference: Printed
    difference: Difference
    first: Verbatim
    last: Verbatim

    def parts(self) -> dict[str, Any]:
        clock, reference = self.with_unit(self.clock), self.with_unit(self.reference)
        return {"clock": clock, "reference": reference}


class SlowPrint(Finding):
    """One printed line takes over 10 % of the time of the protocol's steps, and over three
    times its share of them."""

    code = "slow_print"
    sentence = N_(
        "One printed line, of %(steps)s of the %(of)s steps, takes %(share)s of their time."
    )
    share: Share
    steps: Verbatim
    of: Verbatim


class ProtocolNotSteady(OfRates):
    """Samples / time over the protocol's steps differs by over 1 % from all steady steps."""

    code = "protocol_not_steady"
    sentence = N_(
        "Samples / time over steps %(first)s to %(last)s is %(protocol)s, %(difference)s "
        "from %(steady)s over all steady steps."
    )
    protocol: Printed
    steady: Printed
    difference: Difference
    first: Verbatim
    last: Verbatim
    basis: Literal["printed", "clock"] = "printed"
    """clock: both are by the timestamps of the lines"""

    def parts(self) -> dict[str, Any]:
        protocol, steady = self.with_unit(self.protocol), self.with_unit(self.steady)
        return {"protocol": protocol, "steady": steady}

    def english(self) -> str:
        if self.basis == "clock":
            return N_(
                "By the timestamps of the lines, samples / time over steps %(first)s to "
                "%(last)s is %(protocol)s, %(difference)s from %(steady)s over all steady "
                "steps."
            )
        return self.sentence


class InputLimit(Finding):
    """Data wait takes over 5 % of the time, and windows that wait less are faster by as much
    (Theil-Sen slope 0.5 to 1.5, Kendall's tau at 1 %)."""

    code = "input_limit"
    sentence = N_(
        "Data wait limits the throughput: it takes %(share)s of the steps' time, and steps "
        "that wait less are faster by as much."
    )
    share: Share
    slope: float


class InputWait(Finding):
    """Data wait takes over 5 % of the time; what limits the throughput is open."""

    code = "input_wait"
    sentence = N_(
        "Data wait takes %(share)s of the steps' time. This does not show that it limits the "
        "throughput: steps that wait less are not faster by as much, and an asynchronous loop "
        "may wait for the devices there."
    )
    share: Share


class ImpossibleUtilization(Finding):
    """The MFU of the answer is over 100 %, also with causal attention."""

    code = "impossible_utilization"
    sentence = N_(
        "The MFU of %(share)s is impossible: the parameters (of a mixture of experts those "
        "that a token uses), the batch, the devices, the precision or the GPU are wrong."
    )
    share: Share


class EveryExpertCounted(Finding):
    """The log's parameters count every expert, but a token uses some of them: the parameters
    that a token uses are unknown, and with them its FLOPs."""

    code = "every_expert_counted"
    sentence = N_(
        "No TFLOP/s or MFU by parameters: the log's %(parameters)s count every expert of "
        "the mixture; give the active parameters by -p parameters N."
    )
    parameters: int


class FlopsApart(Finding):
    """The TFLOP/s that the log prints differ from those of the answer by a factor over 1.5,
    over the same steps, whether attention counts in full or causally."""

    code = "flops_apart"
    sentence = N_(
        "The answer's %(tflops)s TFLOP/s are %(times)s times the log's own %(own)s "
        "(“%(name)s”): the parameters (of experts: the active ones), the batch, the devices "
        "or the log's number may be wrong."
    )
    name: str
    own: Teraflops
    tflops: Teraflops
    times: Digits3
    """TFLOP/s of the answer / the log's own"""


class CoarseClock(Finding):
    """The answer is by timestamps whose last digit may move it by over 2 %."""

    code = "coarse_clock"
    sentence = N_(
        "The answer may be off by up to %(share)s: the timestamps of the lines are coarse for "
        "the %(seconds)s s that these steps take."
    )
    share: Share
    seconds: Digits3


class PrintedUtilization(Finding):
    """The median of the printed MFU is over 100 %."""

    code = "printed_utilization"
    sentence = N_(
        "The printed “%(name)s” of %(share)s is impossible: the log's suite assumes the peak "
        "of another GPU, or more FLOPs than the model has."
    )
    name: str
    share: Share


class PrintedOverPeak(Finding):
    """The median of the printed TFLOP/s of a device is over the GPU's dense peak, in FP8 if it
    has FP8."""

    code = "printed_over_peak"
    sentence = N_(
        "The printed “%(name)s” of %(tflops)s TFLOP/s is impossible: the dense peak of an "
        "%(gpu)s is %(peak)s TFLOP/s."
    )
    name: str
    tflops: Teraflops
    gpu: str
    peak: Teraflops


class OddRates(Finding):
    """A printed rate can't be one."""

    code = "odd_rates"
    sentence = N_("%(count)s printed rates are zero, negative or infinite; ignored.")
    count: int

    def english(self) -> str:
        if self.count == 1:
            return N_("A printed rate is zero, negative or infinite; ignored.")
        return self.sentence


class NegativeAccuracy(Finding):
    """A printed accuracy is below zero."""

    code = "negative_accuracy"
    sentence = N_("%(count)s printed accuracies are negative; the lowest is %(lowest)s.")
    count: int
    lowest: Printed

    def english(self) -> str:
        if self.count == 1:
            return N_("A printed accuracy is negative: %(lowest)s.")
        return self.sentence


class LossNotFinite(Finding):
    """From some line to the end, every printed loss is infinite or not a number."""

    code = "loss_not_finite"
    sentence = N_("From this line on, no printed loss is finite.")


class FirstLoss(Finding):
    """The first loss, if printed in the first 20 steps, is not that of an untrained network
    (the bounds of a measurement's warning)."""

    code = "first_loss"
    sentence = N_(
        "The first printed loss is %(loss)s; an untrained network that guesses has %(low)s to "
        "%(high)s."
    )
    loss: Printed
    low: Printed
    high: Printed


class LastLoss(Finding):
    """The mean of the last 10 losses (of fewer than 20: the last half) is above that of an
    untrained network (the bounds of a measurement's warning)."""

    code = "last_loss"
    sentence = N_(
        "The mean of the last losses is %(loss)s, above %(high)s, the highest plausible loss "
        "of guessing."
    )
    loss: Printed
    high: Printed


class ConstantLoss(Finding):
    """All losses are equal, to 0.0001."""

    code = "constant_loss"
    sentence = N_("All %(count)s printed losses are %(loss)s.")
    loss: Printed
    count: int


class LossNotFalling(Finding):
    """The mean of the last 10 losses (of fewer than 20: the last half) is not below the mean of
    the first."""

    code = "loss_not_falling"
    sentence = N_(
        "The loss did not fall: its mean is %(first)s in the first lines and %(last)s in the "
        "last."
    )
    first: Printed
    last: Printed


# Several logs or claims.


class SameFile(Finding):
    """Several files have the same content."""

    code = "same_file"
    sentence = N_("These files have the same content: %(files)s.")
    files: list[str]


class SuperLinear(Finding):
    """The throughput per device is over 0.5 % higher with more devices than with fewer."""

    code = "super_linear"
    sentence = N_(
        "%(file)s: each of %(ranks)s devices is %(share)s faster than each of %(of)s in "
        "%(base)s (samples / time)."
    )
    file: str
    base: str
    """log with the fewest devices"""
    share: Share
    ranks: Verbatim
    of: Verbatim


class MixedStatistics(Finding):
    """The numbers of a published table from which speed-ups are derived are explained, but by
    different statistics."""

    code = "mixed_statistics"
    sentence = N_(
        "%(table)s, %(framework)s, %(precision)s: no single statistic explains these numbers, "
        "from which speed-ups are derived. %(figures)s."
    )
    table: str
    framework: str
    precision: str
    figures: NamedFigures


class OneForTwo(Finding):
    """One log explains several published numbers."""

    code = "one_for_two"
    sentence = N_("%(file)s explains several published numbers: %(places)s.")
    file: str
    places: list[str]


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
