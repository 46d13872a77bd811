"""The kinds of warnings about a measurement, the most severe first.

An error means that the number can't be trusted, a caution that it may be inaccurate. A notice
says that the number is right, but that something else deserves a look. The docstring of a class
says when a measurement has this warning. `perfkit.analysis.warnings` finds out which warnings a
measurement has.
"""

from collections.abc import Iterable
from typing import ClassVar

from perfkit.measuring.statements import (
    N_,
    Changes,
    Digits2,
    Digits3,
    Repeats,
    Severity,
    Share,
    Statement,
)

SEVERITIES: tuple[Severity, ...] = ("error", "caution", "notice")
"""Severities of warnings, the highest first."""


class MeasurementWarning(Statement):
    """A reason to doubt a measurement's number."""

    classes: ClassVar = {}
    severity: ClassVar[Severity]


class RawFilesDiffer(MeasurementWarning):
    """The numbers do not follow from the raw files, or these were changed or can't be read."""

    code = "raw_files_differ"
    severity = "error"
    sentence = N_("The raw files do not agree with the result: %(difference)s")
    difference: str


class WindowMismatch(MeasurementWarning):
    """A rank's window differs by over 2 % from the sum of its steps."""

    code = "window_mismatch"
    severity = "error"
    sentence = N_(
        "%(repeats)s: the step times do not add up to the window. The device was not "
        "synchronized, or a clock is wrong."
    )
    repeats: Repeats


class AbovePeak(MeasurementWarning):
    """The model's arithmetic exceeds the measured peak; for convolutional networks 4 times the
    peak, because algorithms such as Winograd's need up to 4 times fewer multiplications."""

    code = "above_peak"
    severity = "error"
    sentence = N_(
        "%(repeats)s: %(share)s of the measured peak, more than faster convolution algorithms "
        "explain. Work was skipped, time was not counted, or the peak was measured under other "
        "load."
    )
    repeats: Repeats
    share: Share


class AboveDatasheet(MeasurementWarning):
    """The model's arithmetic exceeds the datasheet's peak, by more than Winograd's algorithm
    F(4x4, 3x3) explains, which needs 4 times fewer multiplications for 3x3 convolutions with
    stride 1: 139 % for ResNet-50 at 224 pixels, 391 % for VGG-16, 100 % for other models."""

    code = "above_datasheet"
    severity = "error"
    sentence = N_(
        "%(share)s of the datasheet's peak of %(gpu)s; with Winograd's convolution algorithm "
        "F(4x4, 3x3), which needs 4 times fewer multiplications, this model can reach at most "
        "%(highest)s. Work was skipped, or time was not counted."
    )
    share: Share
    gpu: str
    highest: Share

    def english(self) -> str:
        if self.highest == 1:
            return N_(
                "%(share)s of the datasheet's peak of %(gpu)s. Work was skipped, or time was "
                "not counted."
            )
        return self.sentence


class ConstantLoss(MeasurementWarning):
    """The last loss equals the first, to 0.0001."""

    code = "constant_loss"
    severity = "error"
    sentence = N_("%(repeats)s: the loss did not change from the first step to the last.")
    repeats: Repeats


class LossNotFalling(MeasurementWarning):
    """With synthetic input, which repeats one batch, the last loss is not below the first."""

    code = "loss_not_falling"
    severity = "error"
    sentence = N_("%(repeats)s: the loss did not fall, although every step had the same batch.")
    repeats: Repeats


class ImpossibleAccuracy(MeasurementWarning):
    """Accuracy is below 1 - loss / ln 2 of the same forward pass, although a wrong prediction
    has a loss of at least ln 2."""

    code = "accuracy"
    severity = "error"
    sentence = N_("%(repeats)s: accuracy and loss of one forward pass contradict each other.")
    repeats: Repeats


class HighLastLoss(MeasurementWarning):
    """The last loss is over 1.5 times the loss of guessing; not checked after fewer than 20
    steps, because the loss may overshoot until momentum has its full strength."""

    code = "last_loss"
    severity = "error"
    sentence = N_(
        "The last loss is %(loss)s, above %(high)s, the highest plausible loss of guessing: "
        "the training diverges."
    )
    loss: Digits3
    high: Digits3


class VeryWideInterval(MeasurementWarning):
    """The interval is wider than half of the median."""

    code = "very_wide_interval"
    severity = "error"
    sentence = N_(
        "The interval spans %(share)s of the median, more than half: measure again on a "
        "quieter machine."
    )
    share: Share


class Incomplete(MeasurementWarning):
    """Repeats are missing."""

    code = "incomplete"
    severity = "caution"
    sentence = N_("Only %(complete)s of %(planned)s repeats are complete.")
    complete: int
    planned: int


class RawStepsUnreadable(MeasurementWarning):
    """The raw steps can't be read."""

    code = "raw_steps_unreadable"
    severity = "caution"
    sentence = N_("The raw steps can't be read, so step times were not checked.")


class ShortWindow(MeasurementWarning):
    """A repeat's window is shorter than 0.1 s."""

    code = "short_window"
    severity = "caution"
    sentence = N_(
        "%(repeats)s: a window of %(seconds)s s is too short for its throughput to be trusted "
        "(under 0.1 s). For windows of seconds: -p measured_seconds 3"
    )
    repeats: Repeats
    seconds: Digits3


class OtherLoad(MeasurementWarning):
    """Other load takes over 0.1 of the usable cores."""

    code = "other_load"
    severity = "caution"
    sentence = N_(
        "%(repeats)s: other processes used up to %(cores)s cores; more than %(core_limit)s "
        "disturb the measurement."
    )
    repeats: Repeats
    cores: Digits2
    core_limit: Digits2


class StealTime(MeasurementWarning):
    """The hypervisor's steal time is over 0.02 of the usable cores' time."""

    code = "steal_time"
    severity = "caution"
    sentence = N_(
        "%(repeats)s: the hypervisor withheld up to %(share)s of the CPU time; more than "
        "%(share_limit)s disturb the measurement."
    )
    repeats: Repeats
    share: Share
    share_limit: Share


class Throttled(MeasurementWarning):
    """A clock was lowered to protect the device."""

    code = "throttled"
    severity = "caution"
    sentence = N_("%(repeats)s: clocks were throttled (%(reasons)s).")
    repeats: Repeats
    reasons: list[str]


class TelemetryGap(MeasurementWarning):
    """Over 5 s and over a fifth of the window have no telemetry."""

    code = "telemetry_gap"
    severity = "caution"
    sentence = N_(
        "%(repeats)s: no telemetry for up to %(seconds)s s of the window. The driver was "
        "stopped or could not see the workers; other load and throttling in that time are "
        "unknown."
    )
    repeats: Repeats
    seconds: int


class NeverSteady(MeasurementWarning):
    """With 30 steps or more: step times are not at one level for the last third of the
    steps."""

    code = "never_steady"
    severity = "caution"
    sentence = N_("%(repeats)s: step times never reached a steady state.")
    repeats: Repeats


class ToldAbovePeak(MeasurementWarning):
    """The FLOPs that a script told exceed the measured peak, or the datasheet's."""

    code = "told_above_peak"
    severity = "caution"
    sentence = N_(
        "By what the script told, the training runs at %(share)s of the device's peak. It told "
        "too many samples per step, which makes the throughput too high, or too many FLOPs per "
        "sample; only fast convolution algorithms can exceed the peak."
    )
    share: Share


class WarmUpLimited(MeasurementWarning):
    """The warm-up ended at `warmup_limit` or `warmup_seconds`, before the steps were steady."""

    code = "warm_up_limited"
    severity = "caution"
    sentence = N_(
        "%(repeats)s: the warm-up ended at its limit, after up to %(steps)s steps, before the "
        "steps were shown to be steady."
    )
    repeats: Repeats
    steps: int


class WarmUpLonger(MeasurementWarning):
    """With 30 steps or more: step times become steady only after the warm-up."""

    code = "warm_up_longer"
    severity = "caution"
    sentence = N_(
        "%(repeats)s: steps are steady only after up to %(steps)s steps; the warm-up has "
        "%(warmup)s."
    )
    repeats: Repeats
    steps: int
    warmup: int


class SteadyDiffers(MeasurementWarning):
    """The throughput of the steady steps differs by over 1 % from the window's."""

    code = "steady_differs"
    severity = "caution"
    sentence = N_(
        "%(repeats)s: the throughput of the steady steps differs from the window's by "
        "%(shares)s."
    )
    repeats: Repeats
    shares: Changes


class Drift(MeasurementWarning):
    """With 30 steps or more: the steady steps have a trend of over 1 %."""

    code = "drift"
    severity = "caution"
    sentence = N_("%(repeats)s: step times drift by %(shares)s over the steady steps.")
    repeats: Repeats
    shares: Changes


class Outlier(MeasurementWarning):
    """A repeat has a modified z-score over 3.5 (Iglewicz and Hoaglin, 1993) and is over 1 %
    from the median."""

    code = "outlier"
    severity = "caution"
    sentence = N_(
        "%(repeats)s: %(shares)s from the median, far outside the spread of the others "
        "(modified z-score over 3.5). It is not removed."
    )
    repeats: Repeats
    shares: Changes


class WideInterval(MeasurementWarning):
    """The interval is wider than 5 % of the median."""

    code = "wide_interval"
    severity = "caution"
    sentence = N_(
        "The interval spans %(share)s of the median. More repeats or a quieter machine narrow "
        "it."
    )
    share: Share


class SingleRepeat(MeasurementWarning):
    """There is one repeat."""

    code = "single_repeat"
    severity = "caution"
    sentence = N_("A single repeat has no interval.")


class IntervalMissed(MeasurementWarning):
    """`budget` or all repeats were used up before a 98 % interval was as narrow as
    `interval_target`."""

    code = "interval_missed"
    severity = "caution"
    sentence = N_(
        "After %(n)s repeats the 98 %% interval was still wider than %(share)s of the median."
    )
    n: int
    share: Share


class NcclOverSockets(MeasurementWarning):
    """On several nodes: NCCL connected them over sockets."""

    code = "nccl_over_sockets"
    severity = "caution"
    sentence = N_(
        "NCCL connected the nodes over sockets, not over InfiniBand, RoCE or the plugin of "
        "another network. If the nodes have one of these, NCCL_DEBUG=INFO logs why it is not "
        "used."
    )


class SkippedSteps(MeasurementWarning):
    """Loss scaling skipped steps."""

    code = "skipped_steps"
    severity = "caution"
    sentence = N_("Loss scaling skipped %(count)s of %(steps)s steps after an overflow.")
    count: int
    steps: int


class LateExchange(MeasurementWarning):
    """Paddle's ranks exchange their gradients only after the backward pass: all gradients are
    in one bucket, or are computed by one program. Not checked for other frameworks."""

    code = "late_exchange"
    severity = "caution"
    sentence = N_(
        "Paddle's ranks exchange all gradients after the backward pass, so that the exchange "
        "is not hidden behind computation."
    )


class LateModules(MeasurementWarning):
    """A script imported modules that its digest does not cover: of its folder, but named by no
    import statement, such as a configuration, or of another folder that holds no installed
    packages."""

    code = "late_modules"
    severity = "caution"
    sentence = N_(
        "The script imported modules that its digest does not cover: %(modules)s. A change of "
        "these does not start another measurement; give it another label."
    )
    modules: list[str]


class UnevenBatches(MeasurementWarning):
    """The steps of a script read batches of different sizes, of which it told one."""

    code = "uneven_batches"
    severity = "caution"
    sentence = N_(
        "The steps read %(fewest)s to %(most)s rows, and the script told %(samples)s samples "
        "for each. Short batches count with what they had only if all others have one size."
    )
    fewest: int
    most: int
    samples: int


class SamplesNotOfRows(MeasurementWarning):
    """A script told a number of samples for a step that is no whole multiple of the rows that
    its steps read."""

    code = "samples_not_of_rows"
    severity = "caution"
    sentence = N_(
        "The script told %(samples)s samples for each step, which is no whole multiple of the "
        "%(rows)s rows that a step read: one of the two numbers may be wrong."
    )
    samples: int
    rows: int


class ImplausibleFirstLoss(MeasurementWarning):
    """The first loss is not 0.75 to 1.5 times the loss of guessing; not checked for fewer than
    16 images in a rank's step, whose loss depends on chance."""

    code = "first_loss"
    severity = "caution"
    sentence = N_(
        "The first loss is %(loss)s; an untrained network that guesses has %(low)s to %(high)s."
    )
    loss: Digits3
    low: Digits3
    high: Digits3


class TensorCoresUnused(MeasurementWarning):
    """fp32 without TF32 on a GPU with tensor cores (compute capability 7.0 or later), if the
    framework supports a parameter that uses them."""

    code = "tensor_cores_unused"
    severity = "notice"
    sentence = N_(
        "fp32 without TF32 does not use the tensor cores of this GPU (compute capability "
        "%(capability)s). These parameters would: %(parameters)s"
    )
    capability: str
    parameters: list[str]


class KilledAfterEnd(MeasurementWarning):
    """Processes of a script that ran on for 20 s after the end of every rank's window were
    killed."""

    code = "killed_after_end"
    severity = "notice"
    sentence = N_(
        "%(repeats)s: the script ran on for 20 s after the last step of the window and was "
        "killed. It catches SystemExit, or waits for something that does not end."
    )
    repeats: Repeats


def worst_first(codes: Iterable[str]) -> list[str]:
    """Return warning codes sorted by severity, unknown codes last."""
    order = [*MeasurementWarning.classes]
    return sorted(codes, key=lambda code: order.index(code) if code in order else len(order))


def severity(codes: Iterable[str]) -> Severity | None:
    """Return the highest severity of these warning codes; None without a code. An unknown code
    is a caution."""
    severities = {_severity_of(code) for code in codes}
    return next((level for level in SEVERITIES if level in severities), None)


def _severity_of(code: str) -> Severity:
    kind = MeasurementWarning.classes.get(code)
    if kind is None:
        return "caution"
    assert issubclass(kind, MeasurementWarning)
    return kind.severity
