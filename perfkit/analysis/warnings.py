"""The warnings about a measurement, the most severe first; each has the function that finds it.

error    the number is wrong
caution  it may not hold, or may not be compared with others
notice   it is right; something about it is worth knowing

The docstring of a class says when a measurement has this warning. A wide interval is none: its
width stands beside the number (`perfkit.measuring.format.plus_minus`).
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from math import log
from typing import Any, ClassVar, Self

import pandas as pd

from perfkit.analysis.utilization import datasheet, share_of_datasheet, utilization
from perfkit.analysis.verdicts import are_few
from perfkit.measuring.config import Config
from perfkit.measuring.request.contradictions import contradictions
from perfkit.measuring.results.frames import steps_of
from perfkit.measuring.results.repeat import Repeat, TelemetrySummary
from perfkit.measuring.results.schema import Result
from perfkit.measuring.results.store import Measurement, ResultError
from perfkit.measuring.results.summarize import check_against_raw
from perfkit.measuring.results.telemetry import SAMPLING_SECONDS
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
from perfkit.measuring.statistics import median, outliers
from perfkit.measuring.steady import TOLERANCE, RepeatProfile, Steadiness, profile_repeats
from perfkit.measuring.work import ModelWork
from perfkit.training.effective import TENSOR_CORES_SINCE, TF32_SINCE
from perfkit.training.models import (
    Model,
    flops_in_fast_convolutions,
    flops_with_backward,
    multiply_adds,
)


class MeasurementWarning(Statement):
    """A reason to doubt a measurement's number, or something to know about it."""

    classes: ClassVar[dict[str, type["MeasurementWarning"]]] = {}
    severity: ClassVar[Severity]

    @classmethod
    def find(cls, checks: "MeasurementChecks") -> Self | None:
        """Return this warning if a measurement has it."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class MeasurementChecks:
    """What a measurement and its raw files show: all that its warnings follow from."""

    result: Result
    profiles: list[RepeatProfile]
    """Profiles of the complete repeats."""
    steps: pd.DataFrame
    """The raw steps, empty if they can't be read."""
    difference: str = ""
    """The first difference between the result and its raw files; empty if there is none."""

    @cached_property
    def warnings(self) -> list[MeasurementWarning]:
        """All warnings, the most severe first."""
        found = [kind.find(self) for kind in MeasurementWarning.classes.values()]
        return [warning for warning in found if warning]

    @property
    def repeats(self) -> list[Repeat]:
        """The complete repeats."""
        return self.result.complete_repeats

    @property
    def steadiness(self) -> dict[int, Steadiness]:
        """The steady states of the repeats with enough steps to judge."""
        every = self.profiles
        return {profile.repeat: profile.steadiness for profile in every if profile.steadiness}

    @property
    def telemetry(self) -> dict[int, TelemetrySummary]:
        """The telemetry of the repeats that have one."""
        repeats = self.repeats
        return {repeat.index: repeat.telemetry for repeat in repeats if repeat.telemetry}

    @property
    def rows(self) -> set[int]:
        """The fewest and the most rows that steps of a script read; empty if unknown."""
        rows: set[int] = set()
        for repeat in self.repeats:
            rows |= {*(repeat.rows or ())}
        return rows

    @property
    def aspects(self) -> dict[str, bool]:
        """The possible sources of warnings, and whether this measurement has each."""
        repeats = self.repeats
        aspects = {
            "spread": not are_few(len(repeats)),
            "step times": bool(self.steadiness),
            "telemetry": bool(self.telemetry),
            "losses": any(repeat.loss_first is not None for repeat in repeats),
            "measured peak": utilization(self.result) is not None,
        }
        if self.result.told:
            # Only a script knows its samples per step.
            aspects["samples per step"] = False
        return aspects


def check(measurement: Measurement) -> MeasurementChecks:
    """Return what a measurement's result and raw files show."""
    result = measurement.result
    try:
        steps = steps_of(measurement)
        profiles = profile_repeats(steps, result.counts.units_per_sample)
    except ResultError:
        steps, profiles = pd.DataFrame(), []
    # A failed repeat may have reached its window.
    complete = {repeat.index for repeat in result.complete_repeats}
    profiles = [profile for profile in profiles if profile.repeat in complete]
    difference = check_against_raw(measurement)
    return MeasurementChecks(result, profiles, steps, difference)


def worst_first(codes: Collection[str]) -> list[str]:
    """Return the codes of warnings, the most severe first, without unknown ones."""
    return [code for code in MeasurementWarning.classes if code in codes]


def severity(codes: Collection[str]) -> Severity | None:
    """Return the highest severity of these warning codes; None without a known code."""
    worst = worst_first(codes)[:1]
    return MeasurementWarning.classes[worst[0]].severity if worst else None


# Errors: the number is wrong.


class RawFilesDiffer(MeasurementWarning):
    """The numbers do not follow from the raw files, or these were changed or can't be read."""

    code = "raw_files_differ"
    severity = "error"
    sentence = N_("The raw files do not agree with the result: %(difference)s")
    difference: str

    @classmethod
    def find(cls, checks: "MeasurementChecks") -> Self | None:
        return cls(difference=checks.difference) if checks.difference else None


SAME_WINDOW = 0.02
"""Largest difference between a window and the sum of its steps, as a share of the window."""


class WindowMismatch(MeasurementWarning):
    """A rank's window differs by over 2 % from the sum of its steps."""

    code = "window_mismatch"
    severity = "error"
    sentence = N_(
        "%(repeats)s: the step times do not add up to the window. The device was not "
        "synchronized, or a clock is wrong."
    )
    repeats: Repeats

    @classmethod
    def find(cls, checks: "MeasurementChecks") -> Self | None:
        mismatched = []
        steps = {profile.repeat: profile.window_steps for profile in checks.profiles}
        for repeat in checks.repeats:
            of_rank = steps.get(repeat.index, {})
            ranks = [rank for rank in repeat.ranks if rank.rank in of_rank]
            if any(window_disagrees(rank.window_seconds, of_rank[rank.rank]) for rank in ranks):
                mismatched.append(repeat.index)
        return cls(repeats=mismatched) if mismatched else None


def window_disagrees(window_seconds: float, step_seconds: list[float]) -> bool:
    """Return whether the sum of one rank's steps differs from its window by more than
    SAME_WINDOW.

    On a GPU, the host times the window and the device times the steps. If they differ, the
    device was not synchronized at the window's ends, or one of the clocks is wrong.
    """
    # A sum that is not a number disagrees, too.
    return not abs(sum(step_seconds) - window_seconds) <= SAME_WINDOW * window_seconds


FEWER_MULTIPLICATIONS = 4.0
"""Factor by which fast algorithms reduce the multiplications of 3x3 convolutions with stride 1
(Winograd's F(4x4, 3x3): Lavin and Gray, 2016), so that a network of them may exceed 100 % of
the peak. Published fp32 runs of VGG-16 do."""


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

    @classmethod
    def find(cls, checks: "MeasurementChecks") -> Self | None:
        result = checks.result
        used = utilization(result) if result.work.facts else None
        if not used:
            return None
        # A framework's convolutions may also exceed its own matrix product: on one CPU, that of
        # PyTorch reaches less than half of JAX's.
        plausible = FEWER_MULTIPLICATIONS if result.built_in.facts.sample == "image" else 1.0
        with_peaks = [repeat.index for repeat in checks.repeats if repeat.peak]
        exceeding = []
        for repeat, share in zip(with_peaks, used.shares, strict=True):
            if share > plausible:
                exceeding.append(repeat)
        return cls(repeats=exceeding, share=max(used.shares)) if exceeding else None


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

    @classmethod
    def find(cls, checks: "MeasurementChecks") -> Self | None:
        result = checks.result
        sheet = datasheet(result) if result.work.facts else None
        if not sheet:
            return None
        share = share_of_datasheet(result, sheet) or 0.0
        highest = highest_share(result.built_in)
        return cls(share=share, gpu=sheet.gpu, highest=highest) if share > highest else None


def highest_share(work: ModelWork) -> float:
    """Return the highest possible share of a device's peak: above 1 for a network whose
    convolutions fast algorithms compute with FEWER_MULTIPLICATIONS."""
    every = flops_with_backward(work, multiply_adds(work))
    fast = flops_in_fast_convolutions(work)
    return every / (every - fast + fast / FEWER_MULTIPLICATIONS)


STANDING = 1e-4
"""A loss that changes by less from the first step to the last is constant. NaN in images or
weights can leave a loss finite if operators treat NaN as zero."""


class ConstantLoss(MeasurementWarning):
    """The last loss equals the first, to 0.0001."""

    code = "constant_loss"
    severity = "error"
    sentence = N_("%(repeats)s: the loss did not change from the first step to the last.")
    repeats: Repeats

    @classmethod
    def find(cls, checks: "MeasurementChecks") -> Self | None:
        constant = [repeat for repeat, rise in _rises(checks.result) if abs(rise) < STANDING]
        return cls(repeats=constant) if constant else None


def _rises(result: Result) -> Iterator[tuple[int, float]]:
    """Yield the repeats and by how much the loss rose from the first of several steps to the
    last. A log prints few digits of a loss, in which two steps may agree."""
    if result.told and result.told.log_format:
        return
    for repeat in result.complete_repeats:
        first, last = repeat.loss_first, repeat.loss_last
        if first is not None and last is not None and result.protocol.steps > 1:
            yield repeat.index, last - first


class LossNotFalling(MeasurementWarning):
    """With synthetic input, which repeats one batch, the last loss is not below the first."""

    code = "loss_not_falling"
    severity = "error"
    sentence = N_("%(repeats)s: the loss did not fall, although every step had the same batch.")
    repeats: Repeats

    @classmethod
    def find(cls, checks: "MeasurementChecks") -> Self | None:
        if checks.result.input != "synthetic":
            return None
        rising = [repeat for repeat, rise in _rises(checks.result) if rise >= 0]
        return cls(repeats=rising) if rising else None


NEAR_CHANCE = (0.75, 1.5)
"""Range of an untrained network's first loss, in multiples of the loss of random guessing."""
FEWEST_UPDATES = 20
"""Fewer steps do not show a divergence: the loss may overshoot until a momentum of 0.9 has its
full strength, 88 % of it after 20 updates."""


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

    @classmethod
    def find(cls, checks: "MeasurementChecks") -> Self | None:
        result = checks.result
        if not result.work.facts:
            return None
        _low, high = untrained_losses(result.work.facts)
        losses = []
        for repeat in checks.repeats:
            if repeat.loss_last is not None and result.steps(repeat) >= FEWEST_UPDATES:
                losses.append(repeat.loss_last)
        highest = max(losses, default=high)
        return cls(loss=highest, high=high) if highest > high else None


def untrained_losses(model: Model) -> tuple[float, float]:
    """Return the lowest and the highest plausible first loss. An untrained network guesses: all
    choices of each part of its cross entropy are equally likely. No training of FEWEST_UPDATES
    should end above the highest."""
    guess = sum(log(choices) for choices in model.choices)
    return NEAR_CHANCE[0] * guess, NEAR_CHANCE[1] * guess


# Cautions: the number may not hold, or may not be compared with others.


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

    @classmethod
    def find(cls, checks: "MeasurementChecks") -> Self | None:
        loads, limits = {}, {}
        for repeat, summary in checks.telemetry.items():
            if summary.is_disturbed:
                loads[repeat] = summary.other_load_cores or 0.0
                limits[repeat] = summary.most_other_load_cores
        if not loads:
            return None
        most = max(loads, key=loads.__getitem__)
        return cls(repeats=[*loads], cores=loads[most], core_limit=limits[most])


STEAL_SHARE = 0.02
"""Share of the cores' time above which the hypervisor's steal time disturbs a repeat."""


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

    @classmethod
    def find(cls, checks: "MeasurementChecks") -> Self | None:
        shares = {}
        for repeat, summary in checks.telemetry.items():
            if (summary.steal_share or 0.0) > STEAL_SHARE:
                shares[repeat] = summary.steal_share or 0.0
        if not shares:
            return None
        return cls(repeats=[*shares], share=max(shares.values()), share_limit=STEAL_SHARE)


PROTECTING = {"thermal", "hardware_slowdown", "software_thermal", "hardware_thermal"}
PROTECTING |= {"power_brake"}
"""Reasons for lower clocks that disturb a repeat. A power cap or clocks set by the owner are a
GPU's usual state."""


class Throttled(MeasurementWarning):
    """A clock was lowered to protect the device."""

    code = "throttled"
    severity = "caution"
    sentence = N_("%(repeats)s: clocks were throttled (%(reasons)s).")
    repeats: Repeats
    reasons: list[str]

    @classmethod
    def find(cls, checks: "MeasurementChecks") -> Self | None:
        repeats: set[int] = set()
        reasons: set[str] = set()
        for repeat, summary in checks.telemetry.items():
            for device, counts in summary.throttled.items():
                for reason in PROTECTING & counts.keys():
                    repeats.add(repeat)
                    reasons.add(f"{device}: {reason}")
        return cls(repeats=sorted(repeats), reasons=sorted(reasons)) if repeats else None


GAP_SECONDS, GAP_SHARE = 5.0, 0.2
"""Telemetry may miss this much of a window, or this share of it."""


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

    @classmethod
    def find(cls, checks: "MeasurementChecks") -> Self | None:
        gaps = {}
        for repeat in checks.repeats:
            window = max(rank.window_seconds for rank in repeat.ranks)
            samples = repeat.telemetry.samples if repeat.telemetry else 0
            gap = window - samples * SAMPLING_SECONDS
            if repeat.began and gap > max(GAP_SECONDS, GAP_SHARE * window):
                gaps[repeat.index] = gap
        return cls(repeats=[*gaps], seconds=round(max(gaps.values()))) if gaps else None


class Incomplete(MeasurementWarning):
    """Repeats are missing."""

    code = "incomplete"
    severity = "caution"
    sentence = N_("Only %(complete)s of %(planned)s repeats are complete.")
    complete: int
    planned: int

    @classmethod
    def find(cls, checks: "MeasurementChecks") -> Self | None:
        result = checks.result
        if result.status == "complete":
            return None
        return cls(complete=len(checks.repeats), planned=result.protocol.repeats)


SHORT_WINDOW = 0.1
"""Seconds of a window below which a few milliseconds without a core are a large share of it."""


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

    @classmethod
    def find(cls, checks: "MeasurementChecks") -> Self | None:
        short = {}
        for repeat in checks.repeats:
            seconds = max(rank.window_seconds for rank in repeat.ranks)
            if seconds < SHORT_WINDOW:
                short[repeat.index] = seconds
        return cls(repeats=[*short], seconds=min(short.values())) if short else None


class RawStepsUnreadable(MeasurementWarning):
    """The raw steps can't be read."""

    code = "raw_steps_unreadable"
    severity = "caution"
    sentence = N_("The raw steps can't be read, so step times were not checked.")

    @classmethod
    def find(cls, checks: "MeasurementChecks") -> Self | None:
        return cls() if checks.steps.empty and checks.repeats else None


class NeverSteady(MeasurementWarning):
    """With 30 steps or more: step times are not at one level for the last third of the
    steps."""

    code = "never_steady"
    severity = "caution"
    sentence = N_("%(repeats)s: step times never reached a steady state.")
    repeats: Repeats

    @classmethod
    def find(cls, checks: "MeasurementChecks") -> Self | None:
        steadiness = checks.steadiness
        unsettled = [repeat for repeat in steadiness if not steadiness[repeat].settled]
        return cls(repeats=unsettled) if unsettled else None


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

    @classmethod
    def find(cls, checks: "MeasurementChecks") -> Self | None:
        steps = {}
        for repeat in checks.repeats:
            if repeat.warmup and repeat.warmup.ended_by in ("steps", "seconds"):
                steps[repeat.index] = repeat.warmup.steps
        return cls(repeats=[*steps], steps=max(steps.values())) if steps else None


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

    @classmethod
    def find(cls, checks: "MeasurementChecks") -> Self | None:
        begins, warmups = {}, []
        for repeat in checks.repeats:
            steady = checks.steadiness.get(repeat.index)
            warmup = checks.result.warmup_steps(repeat)
            if steady and steady.settled and steady.begin > warmup:
                begins[repeat.index] = steady.begin
                warmups.append(warmup)
        if not begins:
            return None
        return cls(repeats=[*begins], steps=max(begins.values()), warmup=min(warmups))


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

    @classmethod
    def find(cls, checks: "MeasurementChecks") -> Self | None:
        shares = {}
        for profile in checks.profiles:
            if abs(profile.disagreement) > TOLERANCE:
                shares[profile.repeat] = profile.disagreement
        return cls(repeats=[*shares], shares=[*shares.values()]) if shares else None


class Drift(MeasurementWarning):
    """With 30 steps or more: the steady steps have a trend of over 1 %."""

    code = "drift"
    severity = "caution"
    sentence = N_("%(repeats)s: step times drift by %(shares)s over the steady steps.")
    repeats: Repeats
    shares: Changes

    @classmethod
    def find(cls, checks: "MeasurementChecks") -> Self | None:
        drifts = {}
        for repeat, steady in checks.steadiness.items():
            if steady.drift:
                drifts[repeat] = steady.drift
        return cls(repeats=[*drifts], shares=[*drifts.values()]) if drifts else None


FEWEST_GUESSES = 16
"""The first loss of fewer predictions depends on chance: of untrained VGG-16 networks, 17 % are
outside the plausible range with a single image, 3 % with 4, fewer than 0.1 % with 16."""


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

    @classmethod
    def find(cls, checks: "MeasurementChecks") -> Self | None:
        result = checks.result
        model = result.work.facts
        if not model or has_few_guesses(model, result.built_in.samples_per_step):
            return None
        low, high = untrained_losses(model)
        for repeat in checks.repeats:
            if repeat.loss_first is not None and not low <= repeat.loss_first <= high:
                return cls(loss=repeat.loss_first, low=low, high=high)
        return None


def has_few_guesses(model: Model, samples: int) -> bool:
    """Return whether the loss of these samples is that of fewer than FEWEST_GUESSES
    predictions. A sequence alone has as many: its tokens, or BERT's masked ones."""
    return model.sample == "image" and samples < FEWEST_GUESSES


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

    @classmethod
    def find(cls, checks: "MeasurementChecks") -> Self | None:
        result = checks.result
        if result.work.facts:
            return None
        used, sheet = utilization(result), datasheet(result)
        shares = [*used.shares] if used else []
        if sheet:
            shares.append(share_of_datasheet(result, sheet) or 0.0)
        highest = max(shares, default=0.0)
        return cls(share=highest) if highest > 1 else None


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

    @classmethod
    def find(cls, checks: "MeasurementChecks") -> Self | None:
        told, rows = checks.result.told, checks.rows
        if not told or len(rows) < 2:
            return None
        return cls(fewest=min(rows), most=max(rows), samples=told.samples_per_step)


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

    @classmethod
    def find(cls, checks: "MeasurementChecks") -> Self | None:
        told, rows = checks.result.told, checks.rows
        if not told or len(rows) != 1 or rows == {0}:
            return None
        (count,) = rows
        samples = told.samples_per_step
        return cls(samples=samples, rows=count) if samples % count else None


class PrintedTimesDiffer(MeasurementWarning):
    """The times that a command's log prints contradict the time that passed."""

    code = "printed_times_differ"
    severity = "caution"
    sentence = N_(
        "The times that the log prints differ by %(difference)s from the time that passed "
        "until its lines arrived, which gives the throughput. They may leave out a part of "
        "each step, or the log may be buffered."
    )
    difference: Share

    @classmethod
    def find(cls, checks: "MeasurementChecks") -> Self | None:
        told = checks.result.told
        if not told or told.printed_difference is None:
            return None
        return cls(difference=abs(told.printed_difference))


class LateModules(MeasurementWarning):
    """A script imported modules that its digest does not cover: of its folder, but named by no
    import statement, such as a configuration, or of another folder that holds no installed
    packages. Measurements of different versions of these count as the same work."""

    code = "late_modules"
    severity = "caution"
    sentence = N_(
        "The script imported modules that its digest does not cover: %(modules)s. A change of "
        "these does not start another measurement; give it another label."
    )
    modules: list[str]

    @classmethod
    def find(cls, checks: "MeasurementChecks") -> Self | None:
        modules: set[str] = set()
        for repeat in checks.repeats:
            modules |= {*repeat.late_modules}
        return cls(modules=sorted(modules)) if modules else None


SOCKETS = "Socket"
"""NCCL's name of a TCP network."""


class NcclOverSockets(MeasurementWarning):
    """On several nodes: NCCL connected them over sockets. The number may not be compared with
    one over a faster network."""

    code = "nccl_over_sockets"
    severity = "caution"
    sentence = N_(
        "NCCL connected the nodes over sockets, not over InfiniBand, RoCE or the plugin of "
        "another network. If the nodes have one of these, NCCL_DEBUG=INFO logs why it is not "
        "used."
    )

    @classmethod
    def find(cls, checks: "MeasurementChecks") -> Self | None:
        return cls() if checks.result.nccl_network == SOCKETS else None


# Notices: the number is right; know this about it.


class Outlier(MeasurementWarning):
    """A repeat has a modified z-score over 3.5 (Iglewicz and Hoaglin, 1993) and is over 1 %
    from the median, which hardly depends on a single repeat. Fewer than four do not show their
    spread."""

    code = "outlier"
    severity = "notice"
    sentence = N_(
        "%(repeats)s: %(shares)s from the median, far outside the spread of the others "
        "(modified z-score over 3.5). It is not removed."
    )
    repeats: Repeats
    shares: Changes

    @classmethod
    def find(cls, checks: "MeasurementChecks") -> Self | None:
        result = checks.result
        if are_few(len(checks.repeats)):
            return None
        shares = {}
        for position in outliers(result.throughputs):
            share = result.throughputs[position] / median(result.throughputs) - 1
            # On a quiet machine, an outlier by z-score may still differ by a negligible share.
            if abs(share) > TOLERANCE:
                shares[checks.repeats[position].index] = share
        return cls(repeats=[*shares], shares=[*shares.values()]) if shares else None


class SkippedSteps(MeasurementWarning):
    """Loss scaling skipped steps, which did everything but the optimizer's update."""

    code = "skipped_steps"
    severity = "notice"
    sentence = N_("Loss scaling skipped %(count)s of %(steps)s steps after an overflow.")
    count: int
    steps: int

    @classmethod
    def find(cls, checks: "MeasurementChecks") -> Self | None:
        result = checks.result
        skipped = sum(repeat.skipped_steps or 0 for repeat in checks.repeats)
        steps = sum(map(result.steps, checks.repeats))
        return cls(count=skipped, steps=steps) if skipped else None


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

    @classmethod
    def find(cls, checks: "MeasurementChecks") -> Self | None:
        effective, config = checks.result.effective, checks.result.config
        if not (effective and config.work.facts and effective.device == "gpu"):
            return None
        if effective.precision != "fp32" or effective.tf32:
            return None
        # One for each GPU, such as "9.0"; a measurement's GPUs are of one kind.
        capabilities = checks.result.fact("compute_capability")
        if not isinstance(capabilities, list) or not capabilities:
            return None
        generation = int(capabilities[0].partition(".")[0])
        if generation < TENSOR_CORES_SINCE:
            return None
        parameters = _accepted(config, precision="amp")
        if generation >= TF32_SINCE[0]:
            parameters += _accepted(config, precision="bf16") + _accepted(config, tf32=True)
        return cls(capability=capabilities[0], parameters=parameters) if parameters else None


def _accepted(config: Config, **changes: Any) -> list[str]:
    """Return the options that set these parameters, each alone, without those that contradict
    the configuration's framework or strategy."""
    options = []
    for name, value in changes.items():
        if not any(contradictions(config.changed(**{name: value}))):
            options.append(f"-p {name} {value}")
    return options


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

    @classmethod
    def find(cls, checks: "MeasurementChecks") -> Self | None:
        killed = [repeat.index for repeat in checks.repeats if repeat.killed_after_end]
        return cls(repeats=killed) if killed else None
