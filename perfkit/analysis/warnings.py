"""Which warnings a measurement has: disturbed repeats, implausible losses, unsteady steps.

`perfkit.analysis.warning_types` has the warnings with their severities and sentences.
"""

from collections.abc import Iterable, Iterator, Mapping
from math import log
from typing import Any, NamedTuple

import pandas as pd

from perfkit.analysis.utilization import datasheet, share_of_datasheet, utilization
from perfkit.analysis.warning_types import (
    AboveDatasheet,
    AbovePeak,
    ConstantLoss,
    Drift,
    HighLastLoss,
    ImplausibleFirstLoss,
    ImpossibleAccuracy,
    Incomplete,
    IntervalMissed,
    KilledAfterEnd,
    LateExchange,
    LateModules,
    LossNotFalling,
    MeasurementWarning,
    NcclOverSockets,
    NeverSteady,
    OtherLoad,
    Outlier,
    RawFilesDiffer,
    RawStepsUnreadable,
    SamplesNotOfRows,
    ShortWindow,
    SingleRepeat,
    SkippedSteps,
    SteadyDiffers,
    StealTime,
    TelemetryGap,
    TensorCoresUnused,
    Throttled,
    ToldAbovePeak,
    UnevenBatches,
    VeryWideInterval,
    WarmUpLimited,
    WarmUpLonger,
    WideInterval,
    WindowMismatch,
    worst_first,
)
from perfkit.measuring.config import Config
from perfkit.measuring.request.contradictions import contradictions
from perfkit.measuring.results.frames import steps_of
from perfkit.measuring.results.repeat import Evaluation, Peak, Repeat, TelemetrySummary
from perfkit.measuring.results.schema import STOPPING_LEVEL, Result
from perfkit.measuring.results.store import Measurement, ResultError
from perfkit.measuring.results.summarize import check_against_raw
from perfkit.measuring.results.telemetry import SAMPLING_SECONDS
from perfkit.measuring.statistics import median, outliers, relative_width
from perfkit.measuring.steady import TOLERANCE, RepeatProfile, Steadiness, profile_repeats
from perfkit.measuring.work import ModelWork
from perfkit.training.effective import (
    EXCHANGED_AFTERWARDS,
    TENSOR_CORES_SINCE,
    TF32_SINCE,
)
from perfkit.training.models import (
    Model,
    flops_in_fast_convolutions,
    flops_with_backward,
    multiply_adds,
)

Warnings = Iterator[MeasurementWarning]
OTHER_LOAD_SHARE = 0.1
"""Share of the usable cores above which the load of other processes disturbs a repeat."""
STEAL_SHARE = 0.02
"""Share of the cores' time above which the hypervisor's steal time disturbs a repeat."""
PROTECTING = {"thermal", "hardware_slowdown", "software_thermal", "hardware_thermal"}
PROTECTING |= {"power_brake"}
"""Reasons for lower clocks that disturb a repeat. A power cap or clocks set by the owner are a
GPU's usual state."""
NEAR_CHANCE = (0.75, 1.5)
"""Range of an untrained network's first loss, in multiples of the loss of random guessing."""
STANDING = 1e-4
"""A loss that changes by less from the first step to the last is constant. NaN in images or
weights can leave a loss finite if operators treat NaN as zero."""
ROUNDING = 0.01
SOCKETS = "Socket"
"""NCCL's name of a TCP network."""
FEWEST_GUESSES = 16
"""The first loss of fewer predictions depends on chance: of untrained VGG-16 networks, 17 % are
outside the plausible range with a single image, 3 % with 4, fewer than 0.1 % with 16."""
FEWEST_UPDATES = 20
"""Fewer steps do not show a divergence: the loss may overshoot until a momentum of 0.9 has its
full strength, 88 % of it after 20 updates."""


def untrained_losses(model: Model) -> tuple[float, float]:
    """Return the lowest and the highest plausible first loss. An untrained network guesses: all
    choices of each part of its cross entropy are equally likely. No training of FEWEST_UPDATES
    should end above the highest."""
    guess = sum(log(choices) for choices in model.choices)
    return NEAR_CHANCE[0] * guess, NEAR_CHANCE[1] * guess


def has_few_guesses(model: Model, samples: int) -> bool:
    """Return whether the loss of these samples is that of fewer than FEWEST_GUESSES
    predictions. A sequence alone has as many: its tokens, or BERT's masked ones."""
    return model.sample == "image" and samples < FEWEST_GUESSES


def accuracy_is_possible(evaluation: Evaluation) -> bool:
    """Return whether accuracy and loss of one forward pass are consistent.

    A misclassified sample's label has a probability of at most one half, so its loss is at
    least log 2: the share of such samples is at most the mean loss over log 2.
    """
    least = 1 - evaluation.loss / log(2)
    return max(least - ROUNDING, 0) <= evaluation.accuracy <= 1


WIDE, VERY_WIDE = 0.05, 0.5
"""Shares of the median above which an interval is called wide, or says little."""
FEWER_MULTIPLICATIONS = 4.0
"""Factor by which fast algorithms reduce the multiplications of 3x3 convolutions with stride 1
(Winograd's F(4x4, 3x3): Lavin and Gray, 2016), so that a network of them may exceed 100 % of
the peak. Published fp32 runs of VGG-16 do."""
GAP_SECONDS, GAP_SHARE = 5.0, 0.2
"""Telemetry may miss this much of a window, or this share of it."""
SAME_WINDOW = 0.02
"""Largest difference between a window and the sum of its steps, as a share of the window."""


SHORT_WINDOW = 0.1
"""Seconds of a window below which a few milliseconds without a core are a large share of it."""


class MeasurementChecks(NamedTuple):
    """What checking a measurement against its raw files has shown."""

    steps: pd.DataFrame
    """The raw steps, empty if they can't be read."""
    profiles: list[RepeatProfile]
    """Profiles of the complete repeats."""
    warnings: list[MeasurementWarning]
    """All warnings, the most severe first."""
    problem: str
    """Why the raw steps can't be read; empty if they can."""
    difference: str
    """The first difference between the result and its raw files; empty if there is none."""


def check(measurement: Measurement) -> MeasurementChecks:
    """Return all checks of a measurement's result and raw files."""
    result = measurement.result
    steps, profiles, problem = _profiled(measurement)
    warnings = warnings_of(result, profiles)
    difference = check_against_raw(measurement)
    complete = len(result.complete_repeats)
    if difference:
        warnings.append(RawFilesDiffer(difference=difference))
    if problem or (steps.empty and complete):
        warnings.append(RawStepsUnreadable())
    if result.status != "complete":
        warnings.append(Incomplete(complete=complete, planned=result.protocol.repeats))
    by_code = {warning.code: warning for warning in warnings}
    warnings = [by_code[code] for code in worst_first(by_code)]
    return MeasurementChecks(steps, profiles, warnings, problem, difference)


def _profiled(measurement: Measurement) -> tuple[pd.DataFrame, list[RepeatProfile], str]:
    """Return the raw steps and the profiles of the complete repeats, both empty if the steps
    can't be read, and the reason."""
    result, folder = measurement.result, measurement.folder
    try:
        steps = steps_of(measurement)
    except ResultError as error:
        return pd.DataFrame(), [], error.relative_to(folder)
    profiles = profile_repeats(steps, result.counts.units_per_sample)
    return steps, of_complete_repeats(result, profiles), ""


def of_complete_repeats(
    result: Result, profiles: Iterable[RepeatProfile]
) -> list[RepeatProfile]:
    """Return the profiles of complete repeats: a failed repeat may have reached its window."""
    complete = {repeat.index for repeat in result.complete_repeats}
    return [profile for profile in profiles if profile.repeat in complete]


def checked_aspects(result: Result, profiles: Iterable[RepeatProfile]) -> dict[str, bool]:
    """Return the possible sources of warnings, and whether this measurement has each."""
    repeats = result.complete_repeats
    profiles = of_complete_repeats(result, profiles)
    aspects = {
        "spread": len(repeats) > 1,
        "step times": any(profile.steadiness for profile in profiles),
        "telemetry": any(repeat.telemetry for repeat in repeats),
        "losses": any(repeat.loss_first is not None for repeat in repeats),
        "accuracy": any(repeat.evaluation for repeat in repeats),
        "measured peak": utilization(result) is not None,
    }
    if result.told:
        # A script is not asked for its accuracy, and only it knows its samples per step.
        del aspects["accuracy"]
        aspects["samples per step"] = False
    return aspects


def warnings_of(result: Result, profiles: Iterable[RepeatProfile]) -> list[MeasurementWarning]:
    """Return all warnings about a measurement whose repeats have these profiles."""
    profiles = of_complete_repeats(result, profiles)
    warnings = [*_about_throughputs(result)]
    warnings += _about_step_times(result, profiles)
    warnings += _about_telemetry(result)
    warnings += _about_learning(result)
    if result.work.facts:
        warnings += _about_work(result)
    else:
        warnings += _about_told(result)
    warnings += _about_network(result)
    warnings += _about_batches(result)
    warnings += _about_processes(result.complete_repeats)
    return warnings


# Throughputs.


def _about_throughputs(result: Result) -> Warnings:
    throughputs = result.throughputs
    if len(throughputs) == 1:
        yield SingleRepeat()
    width = result.throughput.relative_width if result.throughput else None
    if width is not None and width > VERY_WIDE:
        yield VeryWideInterval(share=width)
    elif width is not None and width > WIDE:
        yield WideInterval(share=width)
    shares = _outlying_shares(result)
    if shares:
        yield Outlier(repeats=[*shares], shares=[*shares.values()])
    target = result.protocol.interval_target
    if target is not None and result.ended_by in ("budget", "repeats"):
        reached = relative_width(throughputs, STOPPING_LEVEL)
        if reached is None or reached > target:
            yield IntervalMissed(n=len(throughputs), share=target)


def _outlying_shares(result: Result) -> dict[int, float]:
    """Return the outlying repeats and their relative distances from the median. On a quiet
    machine, an outlier by z-score may still differ by a negligible share."""
    throughputs = result.throughputs
    shares = {}
    for position in outliers(throughputs):
        share = throughputs[position] / median(throughputs) - 1
        if abs(share) > TOLERANCE:
            shares[result.complete_repeats[position].index] = share
    return shares


# Step times.


def _about_step_times(result: Result, profiles: list[RepeatProfile]) -> Warnings:
    yield from _about_steadiness(result, profiles)
    yield from _about_windows(result, profiles)
    yield from _about_warm_up(result)
    yield from _about_steady_throughput(profiles)


def _steadiness(profiles: list[RepeatProfile]) -> dict[int, Steadiness]:
    """Return the steady states of the repeats with enough steps to judge."""
    return {profile.repeat: profile.steadiness for profile in profiles if profile.steadiness}


def _about_steadiness(result: Result, profiles: list[RepeatProfile]) -> Warnings:
    unsettled, late, drifts = [], [], {}
    warmups = {repeat.index: result.warmup_steps(repeat) for repeat in result.complete_repeats}
    steadiness = _steadiness(profiles)
    for repeat, steady in steadiness.items():
        if not steady.settled:
            unsettled.append(repeat)
        elif steady.begin > warmups[repeat]:
            late.append(repeat)
        if steady.drift:
            drifts[repeat] = steady.drift
    if unsettled:
        yield NeverSteady(repeats=unsettled)
    if drifts:
        yield Drift(repeats=[*drifts], shares=[*drifts.values()])
    if late:
        steps = max(steadiness[repeat].begin for repeat in late)
        warmup = min(warmups[repeat] for repeat in late)
        yield WarmUpLonger(repeats=late, steps=steps, warmup=warmup)


def _about_windows(result: Result, profiles: list[RepeatProfile]) -> Warnings:
    steps = {profile.repeat: profile.window_steps for profile in profiles}
    mismatched = []
    for repeat in result.complete_repeats:
        steps_of_ranks = steps.get(repeat.index, {})
        for rank in repeat.ranks:
            step_seconds = steps_of_ranks.get(rank.rank)
            if step_seconds is not None and window_disagrees(rank.window_seconds, step_seconds):
                mismatched.append(repeat.index)
                break
    if mismatched:
        yield WindowMismatch(repeats=mismatched)
    yield from _about_short_windows(result)


def _about_short_windows(result: Result) -> Warnings:
    short = {}
    for repeat in result.complete_repeats:
        seconds = max(rank.window_seconds for rank in repeat.ranks)
        if seconds < SHORT_WINDOW:
            short[repeat.index] = seconds
    if short:
        yield ShortWindow(repeats=[*short], seconds=min(short.values()))


def window_disagrees(window_seconds: float, step_seconds: list[float]) -> bool:
    """Return whether the sum of one rank's steps differs from its window by more than
    SAME_WINDOW.

    On a GPU, the host times the window and the device times the steps. If they differ, the
    device was not synchronized at the window's ends, or one of the clocks is wrong.
    """
    # A sum that is not a number disagrees, too.
    return not abs(sum(step_seconds) - window_seconds) <= SAME_WINDOW * window_seconds


def _about_warm_up(result: Result) -> Warnings:
    steps = {}
    for repeat in result.complete_repeats:
        if repeat.warmup and repeat.warmup.ended_by in ("steps", "seconds"):
            steps[repeat.index] = repeat.warmup.steps
    if steps:
        yield WarmUpLimited(repeats=[*steps], steps=max(steps.values()))


def _about_steady_throughput(profiles: list[RepeatProfile]) -> Warnings:
    shares = {}
    for profile in profiles:
        if abs(profile.disagreement) > TOLERANCE:
            shares[profile.repeat] = profile.disagreement
    if shares:
        yield SteadyDiffers(repeats=[*shares], shares=[*shares.values()])


# Telemetry.


def _about_telemetry(result: Result) -> Warnings:
    repeats = result.complete_repeats
    telemetry = {repeat.index: repeat.telemetry for repeat in repeats if repeat.telemetry}
    yield from _about_other_load(telemetry)
    yield from _about_steal_time(telemetry)
    yield from _about_throttling(telemetry)
    yield from _about_gaps(repeats)


def _about_other_load(telemetry: Mapping[int, TelemetrySummary]) -> Warnings:
    loads, limits = {}, {}
    for repeat, summary in telemetry.items():
        load = summary.other_load_cores or 0.0
        limit = OTHER_LOAD_SHARE * summary.cores
        if load > limit:
            loads[repeat] = load
            limits[repeat] = limit
    if loads:
        most = max(loads, key=loads.__getitem__)
        yield OtherLoad(repeats=[*loads], cores=loads[most], core_limit=limits[most])


def _about_steal_time(telemetry: Mapping[int, TelemetrySummary]) -> Warnings:
    shares = {}
    for repeat, summary in telemetry.items():
        share = summary.steal_share or 0.0
        if share > STEAL_SHARE:
            shares[repeat] = share
    if shares:
        most = max(shares.values())
        yield StealTime(repeats=[*shares], share=most, share_limit=STEAL_SHARE)


def _about_throttling(telemetry: Mapping[int, TelemetrySummary]) -> Warnings:
    repeats: set[int] = set()
    reasons: set[str] = set()
    for repeat, summary in telemetry.items():
        for device, counts in summary.throttled.items():
            for reason in PROTECTING & counts.keys():
                repeats.add(repeat)
                reasons.add(f"{device}: {reason}")
    if repeats:
        yield Throttled(repeats=sorted(repeats), reasons=sorted(reasons))


def _about_gaps(repeats: list[Repeat]) -> Warnings:
    """Yield a warning about windows that telemetry missed."""
    gaps = {}
    for repeat in repeats:
        window = max(rank.window_seconds for rank in repeat.ranks)
        samples = repeat.telemetry.samples if repeat.telemetry else 0
        gap = window - samples * SAMPLING_SECONDS
        if repeat.began and gap > max(GAP_SECONDS, GAP_SHARE * window):
            gaps[repeat.index] = gap
    if gaps:
        yield TelemetryGap(repeats=[*gaps], seconds=round(max(gaps.values())))


# Losses and accuracies that training can't have.


def _about_learning(result: Result) -> Warnings:
    if result.work.facts:
        yield from _about_losses(result, result.work.facts)
    yield from _about_changes_of_loss(result)
    yield from _about_accuracy(result)


def _about_losses(result: Result, model: Model) -> Warnings:
    """Yield warnings about the losses of rank 0 that are far from the loss of guessing."""
    low, high = untrained_losses(model)
    first_losses, last_losses = [], []
    for repeat in result.complete_repeats:
        if repeat.loss_first is not None:
            first_losses.append(repeat.loss_first)
        if repeat.loss_last is not None and result.steps(repeat) >= FEWEST_UPDATES:
            last_losses.append(repeat.loss_last)
    implausible = [loss for loss in first_losses if not low <= loss <= high]
    if implausible and not has_few_guesses(model, result.built_in.samples_per_step):
        yield ImplausibleFirstLoss(loss=implausible[0], low=low, high=high)
    highest = max(last_losses, default=low)
    if highest > high:
        yield HighLastLoss(loss=highest, high=high)


def _about_changes_of_loss(result: Result) -> Warnings:
    if result.protocol.steps == 1:
        return
    not_falling, constant = [], []
    for repeat in result.complete_repeats:
        if repeat.loss_first is None or repeat.loss_last is None:
            continue
        rise = repeat.loss_last - repeat.loss_first
        if rise >= 0:
            not_falling.append(repeat.index)
        if abs(rise) < STANDING:
            constant.append(repeat.index)
    if not_falling and result.input == "synthetic":
        yield LossNotFalling(repeats=not_falling)
    if constant:
        yield ConstantLoss(repeats=constant)


def _about_accuracy(result: Result) -> Warnings:
    impossible = []
    for repeat in result.complete_repeats:
        if repeat.evaluation and not accuracy_is_possible(repeat.evaluation):
            impossible.append(repeat.index)
    if impossible:
        yield ImpossibleAccuracy(repeats=impossible)


# Work.


def _about_work(result: Result) -> Warnings:
    yield from _about_skipped_steps(result)
    yield from _about_peaks(result)
    yield from _about_execution(result)
    yield from _about_tensor_cores(result)


def _about_told(result: Result) -> Warnings:
    """Yield warnings about a script whose work follows from what it told."""
    used, sheet = utilization(result), datasheet(result)
    shares = [*used.shares] if used else []
    if sheet:
        shares.append(share_of_datasheet(result, sheet) or 0.0)
    highest = max(shares, default=0.0)
    if highest > 1:
        yield ToldAbovePeak(share=highest)


def _about_skipped_steps(result: Result) -> Warnings:
    """Yield a warning about steps that loss scaling has skipped."""
    repeats = result.complete_repeats
    skipped = sum(repeat.skipped_steps or 0 for repeat in repeats)
    if skipped:
        steps = sum(result.steps(repeat) for repeat in repeats)
        yield SkippedSteps(count=skipped, steps=steps)


def _about_execution(result: Result) -> Warnings:
    """Yield a warning about an exchange of gradients that hides behind nothing."""
    settings = result.effective.settings if result.effective else {}
    if settings.get("gradient_exchange") == EXCHANGED_AFTERWARDS:
        yield LateExchange()


def _accepted(config: Config, **changes: Any) -> list[str]:
    """Return the options that set these parameters, each alone, without those that contradict
    the configuration's framework or strategy."""
    options = []
    for name, value in changes.items():
        if not any(contradictions(config.changed(**{name: value}))):
            options.append(f"-p {name} {value}")
    return options


def _about_tensor_cores(result: Result) -> Warnings:
    """Yield a notice about fp32 that could use the GPU's tensor cores."""
    effective = result.effective
    if effective is None or effective.device != "gpu":
        return
    if effective.precision != "fp32" or effective.tf32:
        return
    fact = result.environment.get("compute_capability")
    # One for each GPU, such as "9.0"; a measurement's GPUs are of one kind.
    capabilities = fact.value if fact else None
    if not isinstance(capabilities, list) or not capabilities:
        return
    capability = capabilities[0]
    generation = int(capability.partition(".")[0])
    if generation < TENSOR_CORES_SINCE:
        return
    parameters = _accepted(result.config, precision="amp")
    if generation >= TF32_SINCE[0]:
        parameters += _accepted(result.config, precision="bf16")
        parameters += _accepted(result.config, tf32=True)
    if parameters:
        yield TensorCoresUnused(capability=capability, parameters=parameters)


def _about_network(result: Result) -> Warnings:
    """Yield a warning about nodes that NCCL connected over sockets."""
    if result.nccl_network == SOCKETS:
        yield NcclOverSockets()


def _about_peaks(result: Result) -> Warnings:
    """Yield warnings about a disturbed peak and a throughput above the devices' peak.

    The datasheet's peak is the limit of a device. A measured one is a framework's matrix
    product, which its own convolutions may exceed: on one CPU, that of PyTorch reaches less
    than half of JAX's. Image models are judged by it as if all their convolutions were fast.
    """
    is_convolutional = result.work.kind == "image"
    used = utilization(result)
    if used:
        plausible_share = FEWER_MULTIPLICATIONS if is_convolutional else 1.0
        yield from _about_measured_peaks(result, used.shares, plausible_share)
    sheet = datasheet(result)
    if sheet:
        share = share_of_datasheet(result, sheet) or 0.0
        highest = highest_share(result.built_in)
        if share > highest:
            yield AboveDatasheet(share=share, gpu=sheet.gpu, highest=highest)


def highest_share(work: ModelWork) -> float:
    """Return the highest possible share of a device's peak: above 1 for a network whose
    convolutions fast algorithms compute with FEWER_MULTIPLICATIONS."""
    every = flops_with_backward(work, multiply_adds(work))
    fast = flops_in_fast_convolutions(work)
    return every / (every - fast + fast / FEWER_MULTIPLICATIONS)


def _about_measured_peaks(
    result: Result, shares: list[float], plausible_share: float
) -> Warnings:
    peaks = _peaks(result)
    exceeding = [
        repeat for repeat, share in zip(peaks, shares, strict=True) if share > plausible_share
    ]
    if exceeding:
        yield AbovePeak(repeats=exceeding, share=max(shares))


def _peaks(result: Result) -> dict[int, Peak]:
    """Return the peaks by repeat."""
    return {repeat.index: repeat.peak for repeat in result.complete_repeats if repeat.peak}


# What the processes did besides training.


def _about_batches(result: Result) -> Warnings:
    """Yield a warning if the steps of a script read different numbers of rows, or another
    number than it told."""
    spans = [repeat.rows for repeat in result.complete_repeats if repeat.rows]
    fewest = min((low for low, _high in spans), default=0)
    most = max((high for _low, high in spans), default=0)
    if not result.told or not most:
        return
    samples = result.told.samples_per_step
    if fewest < most:
        yield UnevenBatches(fewest=fewest, most=most, samples=samples)
    elif samples % most:
        yield SamplesNotOfRows(samples=samples, rows=most)


def _about_processes(repeats: list[Repeat]) -> Warnings:
    late_modules: set[str] = set()
    for repeat in repeats:
        late_modules |= {*repeat.late_modules}
    if late_modules:
        yield LateModules(modules=sorted(late_modules))
    killed = [repeat.index for repeat in repeats if repeat.killed_after_end]
    if killed:
        yield KilledAfterEnd(repeats=killed)
