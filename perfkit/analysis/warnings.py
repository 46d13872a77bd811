"""Warnings about a measurement, as codes with parameters; see text/warnings.toml."""

from collections.abc import Iterable, Iterator
from math import log
from typing import Any, Literal, NamedTuple

import pandas as pd

from perfkit.analysis.steady import TOLERANCE, RepeatProfile, profile_repeats
from perfkit.analysis.utilization import datasheet, share_of_datasheet, utilization
from perfkit.messages import Message
from perfkit.models import MODELS, units_per_sample
from perfkit.results.frames import load_steps
from perfkit.results.schema import STOPPING_LEVEL, Evaluation, Result
from perfkit.results.store import Measurement, ResultError
from perfkit.results.summarize import check_against_raw
from perfkit.results.telemetry import SAMPLING_SECONDS
from perfkit.statistics import median, outliers, relative_width
from perfkit.text.messages import worst_first

OTHER_LOAD_SHARE = 0.1
"""A repeat is disturbed if other processes were busy on more of the usable cores than this."""
STEAL_SHARE = 0.02
"""Or if the hypervisor withheld more of the cores' time than this."""
PROTECTING = {"thermal", "hardware_slowdown", "software_thermal", "hardware_thermal"}
PROTECTING |= {"power_brake"}
"""Or if clocks were lowered for one of these reasons. A GPU at its power cap, or whose owner
has set its clocks, is in its usual state."""


class Disturbance(NamedTuple):
    """One way in which a repeat was disturbed: `value` over `limit`, in cores for `other_load`,
    as a share for `steal_time`, in samples for `throttled`, which has `device` and `reason`."""

    repeat: int
    what: Literal["other_load", "steal_time", "throttled"]
    value: float
    limit: float
    device: str = ""
    reason: str = ""


def disturbances(result: Result) -> list[Disturbance]:
    """What disturbed the complete repeats, as far as the machine tells."""
    found = []
    for repeat in result.complete_repeats:
        seen, index = repeat.telemetry, repeat.index
        if not seen:
            continue
        limit = OTHER_LOAD_SHARE * seen.cores
        other, stolen = seen.other_load_cores or 0.0, seen.steal_share or 0.0
        if other > limit:
            found.append(Disturbance(index, "other_load", other, limit))
        if stolen > STEAL_SHARE:
            found.append(Disturbance(index, "steal_time", stolen, STEAL_SHARE))
        found += [
            Disturbance(index, "throttled", count, 0, device, reason)
            for device, reasons in seen.throttled.items()
            for reason, count in reasons.items()
            if reason in PROTECTING
        ]
    return found


NEAR_CHANCE = (0.75, 1.5)
"""Between which multiples of a guesser's loss an untrained network's first one lies."""
STANDING = 1e-4
"""A loss that differs by less from the first step to the last does not move: NaN in images or
weights can leave it finite, where operators take NaN for zero."""
ROUNDING = 0.01


def untrained_losses(model: str) -> tuple[float, float]:
    """The lowest and the highest first loss of an untrained network, which guesses: all choices
    of each part of its cross entropy are alike to it. No training should end above the
    highest."""
    guess = sum(map(log, MODELS[model].choices))
    return NEAR_CHANCE[0] * guess, NEAR_CHANCE[1] * guess


def accuracy_is_possible(seen: Evaluation) -> bool:
    """Whether accuracy and loss of one forward pass fit together.

    A sample that is not guessed right has a probability of at most one half, and so a loss of
    log 2 at least: the share of those is at most the mean loss over log 2.
    """
    least = 1 - seen.loss / log(2)
    return least - ROUNDING <= seen.accuracy <= 1 and seen.accuracy >= 0


WIDE = 0.05
"""An interval as wide as this share of the median is called wide."""
FEWER_MULTIPLICATIONS = 4.0
"""Convolutions of 3x3 can be computed with up to so many times fewer multiplications than they
have (Winograd's F(4x4, 3x3): Lavin and Gray, 2016), so that a network of them may use more than
100 % of a peak of multiplications. Published fp32 runs of VGG-16 do."""
DISTURBED_PEAK = 0.1
"""Two peaks of one device within a repeat that are further apart are not both its peak."""
GAP_SECONDS, GAP_SHARE = 5.0, 0.2
"""Telemetry may miss so much of a window, or this share of it."""
SAME_WINDOW = 0.02
"""By how much of it a window may differ from its steps' sum."""


def warnings_of(result: Result, profiles: Iterable[RepeatProfile]) -> list[Message]:
    """All warnings about a measurement with these profiles of its repeats."""
    found = [*_about_origin(result), *_about_throughputs(result)]
    found += _about_profiles(result, counting(result, profiles))
    for about in (_about_telemetry, _about_losses, _about_samples, _about_peaks):
        found += about(result)
    return found


def warnings_about(measurement: Measurement) -> list[Message]:
    """All warnings about a measurement; of one whose raw steps can't be read or are not here,
    those that the result gives alone, and that."""
    result = measurement.result
    steps, _problem = _steps(measurement)
    unread = steps.empty and result.complete_repeats and not result.imported
    found = [Message("raw_steps_unreadable", {})] if unread else []
    profiles = [] if steps.empty else profile_repeats(steps, units_per_sample(result.config))
    return [*warnings_of(result, profiles), *found]


class Checks(NamedTuple):
    """What the raw files of a measurement show. `steps` is empty and `problem` says why if they
    can't be read; `profiles` are those of the repeats that count; `warnings` are all about the
    measurement, the worst first; `disagreements` say where the result does not follow from the
    raw files, None where these are on other machines."""

    steps: pd.DataFrame
    profiles: list[RepeatProfile]
    warnings: list[Message]
    problem: str
    disagreements: list[str] | None


def check(measurement: Measurement) -> Checks:
    """All that can be said of a measurement from its result and its raw files."""
    result, profiles = measurement.result, list[RepeatProfile]()
    steps, problem = _steps(measurement)
    if not problem:
        profiles = counting(result, profile_repeats(steps, units_per_sample(result.config)))
    found = warnings_of(result, profiles)
    differ = check_against_raw(measurement)
    if differ:
        found.append(Message("raw_files_differ", {"reasons": differ}))
    if problem:
        found.append(Message("raw_steps_unreadable", {}))
    if result.status != "complete":
        done = {"complete": len(result.complete_repeats), "planned": result.protocol.repeats}
        found.append(Message("incomplete", done))
    by_code = {warning.code: warning for warning in found}
    return Checks(steps, profiles, [by_code[c] for c in worst_first(by_code)], problem, differ)


def _steps(measurement: Measurement) -> tuple[pd.DataFrame, str]:
    """The raw steps; empty, and why, if they can't be read."""
    try:
        return load_steps(measurement.folder), ""
    except ResultError as error:
        return pd.DataFrame(), str(error).replace(f"{measurement.folder}/", "")


def counting(result: Result, every: Iterable[RepeatProfile]) -> list[RepeatProfile]:
    """The profiles of the complete repeats: a failed one may have got as far as its window."""
    complete = {repeat.index for repeat in result.complete_repeats}
    return [profile for profile in every if profile.repeat in complete]


def checked_aspects(result: Result, profiles: Iterable[RepeatProfile]) -> dict[str, bool]:
    """What a warning could come from, and whether this measurement shows it."""
    repeats = result.complete_repeats
    return {
        "spread": len(repeats) > 1,
        "step times": any(profile.steadiness for profile in counting(result, profiles)),
        "telemetry": any(repeat.telemetry for repeat in repeats),
        "losses": any(repeat.loss_first is not None for repeat in repeats),
        "accuracy": any(repeat.evaluation for repeat in repeats),
        "measured peak": utilization(result) is not None,
    }


def _about_origin(result: Result) -> Iterator[Message]:
    """Whether perfkit was there."""
    if imported := result.imported:
        yield Message("imported", {"format": imported.format})
        kind = (imported.basis, imported.reader)
        if kind == ("seconds", "apart") and result.data_wait_share is None:
            yield Message("input_wait_excluded", {})


def _about_throughputs(result: Result) -> Iterator[Message]:
    values = result.throughputs
    if len(values) == 1:
        yield Message("single_repeat", {})
    width = result.throughput.relative_width if result.throughput else None
    if width is not None and width > WIDE:
        yield Message("wide_interval", {"share": width})
    # Among few repeats of a quiet machine one is often far in units of their own small spread.
    usual = median(values) if values else 0.0
    apart = {result.complete_repeats[k].index: values[k] / usual - 1 for k in outliers(values)}
    if far := {repeat: share for repeat, share in apart.items() if abs(share) > TOLERANCE}:
        yield Message("outlier", _by_repeat(far))
    target = result.protocol.interval_target
    if target is not None and result.ended_by in ("budget", "repeats"):
        reached = relative_width(values, STOPPING_LEVEL)
        if reached is None or reached > target:
            yield Message("interval_missed", {"share": target, "n": len(values)})


def _by_repeat(shares: dict[int, float]) -> dict[str, Any]:
    return {"repeats": [*shares], "shares": [*shares.values()]}


def _about_telemetry(result: Result) -> Iterator[Message]:
    """What else the machine did."""
    found = disturbances(result)
    for code in ("other_load", "steal_time", "throttled"):
        if some := [one for one in found if one.what == code]:
            most = max(some, key=lambda one: one.value)
            known: dict[str, dict[str, Any]] = {
                "other_load": {"cores": most.value, "core_limit": most.limit},
                "steal_time": {"share": most.value, "share_limit": most.limit},
                "throttled": {"reasons": sorted({f"{x.device}: {x.reason}" for x in some})},
            }
            repeats = sorted({one.repeat for one in some})
            yield Message(code, {"repeats": repeats, **known[code]})
    gaps = {}
    for repeat in result.complete_repeats:
        window = max((rank.window_seconds for rank in repeat.ranks), default=0.0)
        samples = repeat.telemetry.samples if repeat.telemetry else 0
        gap = window - samples * SAMPLING_SECONDS
        # Without `began`, it is from before there was telemetry.
        if repeat.began and gap > max(GAP_SECONDS, GAP_SHARE * window):
            gaps[repeat.index] = gap
    if gaps and not result.imported:
        longest = round(max(gaps.values()))
        yield Message("telemetry_gap", {"repeats": [*gaps], "seconds": longest})


def _about_profiles(result: Result, profiles: list[RepeatProfile]) -> Iterator[Message]:
    """What the step times of the repeats that count show."""
    known = {c.repeat: c.steadiness for c in profiles if c.steadiness}
    if unsettled := [repeat for repeat, seen in known.items() if not seen.settled]:
        yield Message("never_steady", {"repeats": unsettled})
    if drifts := {repeat: seen.drift for repeat, seen in known.items() if seen.drift}:
        yield Message("drift", _by_repeat(drifts))
    windows = {
        (r.index, rank.rank): rank.window_seconds for r in result.repeats for rank in r.ranks
    }
    apart = {
        profile.repeat
        for profile in profiles
        for rank, seconds in profile.window_steps.items()
        if (profile.repeat, rank) in windows
        and window_disagrees(windows[profile.repeat, rank], seconds)
    }
    if apart:
        yield Message("window_mismatch", {"repeats": sorted(apart)})
    repeats = result.complete_repeats
    lengths = {repeat.index: result.warmup_steps(repeat) for repeat in repeats}
    begins = {repeat: seen.begin for repeat, seen in known.items() if seen.settled}
    if late := [repeat for repeat, begin in begins.items() if begin > lengths[repeat]]:
        steps = {"steps": max(begins[r] for r in late), "warmup": min(lengths[r] for r in late)}
        yield Message("warm_up_longer", {"repeats": late, **steps})
    limits = {r.index: r.warmup for r in repeats if r.warmup and r.warmup.ended_by != "steady"}
    if limits:
        most = max(warmup.steps for warmup in limits.values())
        yield Message("warm_up_limited", {"repeats": [*limits], "steps": most})
    differ = {c.repeat: c.disagreement for c in profiles if abs(c.disagreement) > TOLERANCE}
    if differ:
        yield Message("steady_differs", _by_repeat(differ))


def window_disagrees(window_seconds: float, step_seconds: list[float]) -> bool:
    """Whether the steps of one rank's window do not add up to it, to SAME_WINDOW.

    On a GPU the window is the host's time and the steps are the device's: where they differ,
    the device was not synchronized at the window's ends, or one of the clocks is wrong.
    """
    return not abs(sum(step_seconds) - window_seconds) <= SAME_WINDOW * window_seconds


def _about_losses(result: Result) -> Iterator[Message]:
    """Whether it was training at all."""
    repeats, config = result.complete_repeats, result.config
    low, high = untrained_losses(config.model)
    firsts = {r.index: r.loss_first for r in repeats if r.loss_first is not None}
    lasts = {r.index: r.loss_last for r in repeats if r.loss_last is not None}
    if odd := [loss for loss in firsts.values() if not low <= loss <= high]:
        yield Message("first_loss", {"loss": odd[0], "low": low, "high": high})
    if (worst := max(lasts.values(), default=low)) > high:
        yield Message("last_loss", {"loss": worst, "high": high})
    both = sorted(firsts.keys() & lasts.keys()) if result.protocol.steps > 1 else []
    rises = {k: lasts[k] - firsts[k] for k in both}
    rising = [k for k, rise in rises.items() if rise >= 0]
    if rising and config.input == "synthetic":
        yield Message("loss_not_falling", {"repeats": rising})
    if standing := [k for k, rise in rises.items() if abs(rise) < STANDING]:
        yield Message("constant_loss", {"repeats": standing})
    seen = {r.index: r.evaluation for r in repeats if r.evaluation}
    if impossible := [k for k, one in seen.items() if not accuracy_is_possible(one)]:
        yield Message("accuracy", {"repeats": impossible})


def _about_samples(result: Result) -> Iterator[Message]:
    """Whether all that was asked for was trained on."""
    repeats, per_step = result.complete_repeats, result.config.samples_per_step
    if skipped := sum(repeat.skipped_steps or 0 for repeat in repeats):
        steps = sum(map(result.steps, repeats))
        yield Message("skipped_steps", {"count": skipped, "steps": steps})
    samples = [
        (rank.samples_seen, result.steps(repeat) * per_step)
        for repeat in repeats
        for rank in repeat.ranks
        if rank.samples_seen is not None
    ]
    if fewer := [(seen, wanted) for seen, wanted in samples if seen < wanted]:
        yield Message("fewer_samples", dict(zip(("seen", "wanted"), min(fewer), strict=True)))


def _about_peaks(result: Result) -> Iterator[Message]:
    """Whether it was faster than the devices can be."""
    most = FEWER_MULTIPLICATIONS if MODELS[result.config.model].sample == "image" else 1.0
    if known := utilization(result):
        peaks = {r.index: r.peak for r in result.complete_repeats if r.peak}
        lower = {k: peak.disturbance or 0.0 for k, peak in peaks.items()}
        if disturbed := [k for k, share in lower.items() if share > DISTURBED_PEAK]:
            share = max(lower.values())
            yield Message("peak_disturbed", {"repeats": disturbed, "share": share})
        shares = dict(zip(peaks, known.shares, strict=True))
        if over := [k for k, share in shares.items() if share > most]:
            yield Message("above_peak", {"repeats": over, "share": max(known.shares)})
    sheet = datasheet(result)
    if sheet and (share := share_of_datasheet(result, sheet) or 0.0) > most:
        yield Message("above_datasheet", {"share": share, "gpu": sheet.gpu})
