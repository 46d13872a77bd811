"""What an audit states: the origin of a fact, and findings about logs and claims.

A finding is an observation with its figures; it is not necessarily a mistake. The docstring of
each class says when the finding is reported.
"""

from math import isfinite
from typing import Annotated, Any, ClassVar, NamedTuple

from pydantic import BeforeValidator

from perfkit.measuring.format import change, number
from perfkit.measuring.results.base import Stored
from perfkit.measuring.statements import (
    N_,
    Digits2,
    Digits3,
    Format,
    Share,
    Statement,
    Verbatim,
)

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
Digits5 = Annotated[float, Format(lambda value, _language: number(value, 5))]
Difference = Annotated[float, Format(lambda share, _language: change(share, 3))]
"""A relative difference, written in percent with its sign."""


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


class SourcedFact(Stored):
    """A fact about the configuration and its source: a line, a name, the format, or a rule."""

    value: FactValue
    """the fact"""
    by: Origin
    """its source"""


class Finding(Statement):
    """An observation about a log."""

    classes: ClassVar = {}


# Findings about the answer's time.


class ClockDiffers(Finding):
    """The timestamps of the lines and the printed times differ by over 2 % beyond what rounding
    may explain; the answer is that of the timestamps."""

    code = "clock_differs"
    sentence = N_(
        "The timestamps of the lines give %(clock)s s/step, the printed times of the same "
        "steps %(printed)s: by these, the throughput would be %(difference)s."
    )
    clock: Digits5
    """seconds of a step by the timestamps"""
    printed: Digits5
    """seconds of a step by the printed times"""
    difference: Difference
    """throughput by the printed times / by the timestamps - 1"""


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


class FirstStepsLeftOut(Finding):
    """The log has no steps behind the usual warm-up, and the first take over 1.3 times the
    median time of the others: the answer is of these. Steps right behind the first that take
    less than half of it count among them."""

    code = "first_steps_left_out"
    sentence = N_(
        "The steps up to %(last)s are left out as a warm-up: they take %(times)s times the "
        "median of the others."
    )
    last: Verbatim
    times: Digits2
    """mean time of a first step / median of the others"""


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
    named: bool
    """whether only the file's name tells the batch size, which then does not count"""

    def english(self) -> str:
        if self.named:
            return N_(
                "The printed %(name)s is %(ratio)s times the samples of a step / its time"
                ": the batch size in the file's name is not the log's."
            )
        return self.sentence


class OwnFlopsDiffer(Finding):
    """The TFLOP/s that the log prints differ from those of the answer by a factor over 1.5,
    over the same steps, whether attention counts in full or causally."""

    code = "own_flops_differ"
    sentence = N_(
        "The answer's %(answer)s TFLOP/s are %(times)s times the log's own %(own)s "
        "(“%(name)s”): the parameters (of experts: the active ones), the batch, the devices "
        "or the log's number may be wrong."
    )
    name: str
    own: Teraflops
    """median of the lines of the answer's steps"""
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
    peak: Teraflops | None = None
    """TFLOP/s by which the log's suite computes an MFU whatever the GPU"""
    tflops: Teraflops | None = None
    """what the MFU means: TFLOP/s of a device"""
    devices: Verbatim | None = None
    """devices that alone have these TFLOP/s"""

    def english(self) -> str:
        if not self.name:
            return N_(
                "The MFU of %(share)s is impossible: the parameters (of experts: the active "
                "ones), the batch, the devices, the precision or the GPU are wrong."
            )
        if self.devices:
            return N_(
                "The printed “%(name)s” of %(share)s is that of a peak of %(peak)s TFLOP/s "
                "whatever the GPU: %(tflops)s TFLOP/s per device, which only %(devices)s "
                "devices explain."
            )
        if self.peak:
            return N_(
                "The printed “%(name)s” of %(share)s is that of a peak of %(peak)s TFLOP/s "
                "whatever the GPU: %(tflops)s TFLOP/s per device."
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


class Note(NamedTuple):
    """A finding in a log, and its line; None if it is not a single line."""

    finding: Finding
    line: int | None = None
