"""Warnings about a measurement, as codes with parameters; sentences in text/warnings.toml."""

from collections.abc import Iterable, Iterator
from math import log
from typing import Any, NamedTuple

import pandas as pd

from perfkit.analysis.utilization import datasheet, share_of_datasheet, utilization
from perfkit.core.messages import Message
from perfkit.core.models import model_of, units_per_sample
from perfkit.core.models.model import Model
from perfkit.core.results.frames import steps_of
from perfkit.core.results.schema import STOPPING_LEVEL, Evaluation, Result
from perfkit.core.results.store import Measurement, ResultError
from perfkit.core.results.summarize import check_against_raw
from perfkit.core.results.telemetry import SAMPLING_SECONDS
from perfkit.core.statistics import median, outliers, relative_width
from perfkit.core.steady import TOLERANCE, RepeatProfile, profile_repeats
from perfkit.report.text.messages import worst_first

OTHER_LOAD_SHARE = 0.1
"""Share of the usable cores above which the load of other processes disturbs a repeat."""
STEAL_SHARE = 0.02
"""Share of the cores' time above which the hypervisor's steal time disturbs a repeat."""
PROTECTING = {"thermal", "hardware_slowdown", "software_thermal", "hardware_thermal"}
PROTECTING |= {"power_brake"}
"""Reasons for lower clocks that disturb a repeat. A power cap or clocks set by the owner are a
GPU's usual state."""


def disturbances(result: Result) -> Iterator[Message]:
    """Yield the disturbances of the complete repeats that telemetry shows."""
    seen = {r.index: r.telemetry for r in result.complete_repeats if r.telemetry}
    limits = {repeat: OTHER_LOAD_SHARE * found.cores for repeat, found in seen.items()}
    loads = {repeat: found.other_load_cores or 0.0 for repeat, found in seen.items()}
    if loaded := [repeat for repeat in seen if loads[repeat] > limits[repeat]]:
        most = max(loaded, key=loads.__getitem__)
        known = {"repeats": loaded, "cores": loads[most], "core_limit": limits[most]}
        yield Message("other_load", known)
    shares = {repeat: found.steal_share or 0.0 for repeat, found in seen.items()}
    if stolen := {repeat: share for repeat, share in shares.items() if share > STEAL_SHARE}:
        most_stolen = {"share": max(stolen.values()), "share_limit": STEAL_SHARE}
        yield Message("steal_time", {"repeats": [*stolen], **most_stolen})
    reasons = {
        (repeat, f"{device}: {reason}")
        for repeat, found in seen.items()
        for device, counts in found.throttled.items()
        for reason in PROTECTING & counts.keys()
    }
    if reasons:
        repeats, named = (sorted({*values}) for values in zip(*reasons, strict=True))
        yield Message("throttled", {"repeats": repeats, "reasons": named})


NEAR_CHANCE = (0.75, 1.5)
"""Range of an untrained network's first loss, in multiples of the loss of random guessing."""
STANDING = 1e-4
"""A loss that changes by less from the first step to the last is constant. NaN in images or
weights can leave a loss finite if operators treat NaN as zero."""
ROUNDING = 0.01
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
    guess = sum(map(log, model.choices))
    return NEAR_CHANCE[0] * guess, NEAR_CHANCE[1] * guess


def has_few_guesses(model: Model, samples: int) -> bool:
    """Return whether the loss of these samples is that of fewer than FEWEST_GUESSES
    predictions. A sequence alone has as many: its tokens, or BERT's masked ones."""
    return model.sample == "image" and samples < FEWEST_GUESSES


def accuracy_is_possible(seen: Evaluation) -> bool:
    """Return whether accuracy and loss of one forward pass are consistent.

    A misclassified sample's label has a probability of at most one half, so its loss is at
    least log 2: the share of such samples is at most the mean loss over log 2.
    """
    least = 1 - seen.loss / log(2)
    return least - ROUNDING <= seen.accuracy <= 1 and seen.accuracy >= 0


WIDE, VERY_WIDE = 0.05, 0.5
"""Shares of the median above which an interval is called wide, or says little."""
FEWER_MULTIPLICATIONS = 4.0
"""Factor by which fast algorithms reduce the multiplications of 3x3 convolutions (Winograd's
F(4x4, 3x3): Lavin and Gray, 2016), so that a network of them may exceed 100 % of the peak.
Published fp32 runs of VGG-16 do."""
DISTURBED_PEAK = 0.1
"""Largest relative difference between two peaks of one device within a repeat."""
GAP_SECONDS, GAP_SHARE = 5.0, 0.2
"""Telemetry may miss this much of a window, or this share of it."""
SAME_WINDOW = 0.02
"""Largest difference between a window and the sum of its steps, as a share of the window."""


def warnings_of(result: Result, profiles: Iterable[RepeatProfile]) -> list[Message]:
    """Return all warnings about a measurement whose repeats have these profiles."""
    found = list(_about_throughputs(result))
    found += _about_profiles(result, counting(result, profiles))
    abouts = (disturbances, _about_gaps, _about_losses, _about_samples, _about_peaks)
    found += (warning for about in abouts for warning in about(result))
    return found


class Checks(NamedTuple):
    """Checks of a measurement against its raw files. If these can't be read, `steps` is empty
    and `problem` says why. `profiles` are the complete repeats'; `warnings` are sorted worst
    first; `disagreements` say where the result does not follow from the raw files, None if
    these are on other machines."""

    steps: pd.DataFrame
    profiles: list[RepeatProfile]
    warnings: list[Message]
    problem: str
    disagreements: list[str] | None


def check(measurement: Measurement) -> Checks:
    """Return all checks of a measurement's result and raw files."""
    result = measurement.result
    steps, profiles, problem = _profiled(measurement)
    found = warnings_of(result, profiles)
    differ = check_against_raw(measurement)
    if differ:
        found.append(Message("raw_files_differ", {"reasons": differ}))
    unread = steps.empty and result.complete_repeats
    if problem or unread:
        found.append(Message("raw_steps_unreadable", {}))
    if result.status != "complete":
        done = {"complete": len(result.complete_repeats), "planned": result.protocol.repeats}
        found.append(Message("incomplete", done))
    by_code = {warning.code: warning for warning in found}
    return Checks(steps, profiles, [by_code[c] for c in worst_first(by_code)], problem, differ)


def _profiled(measurement: Measurement) -> tuple[pd.DataFrame, list[RepeatProfile], str]:
    """Return the raw steps and the profiles of the complete repeats, both empty if the steps
    can't be read, and the reason."""
    result, folder = measurement.result, measurement.folder
    try:
        steps = steps_of(measurement)
    except ResultError as error:
        return pd.DataFrame(), [], error.relative_to(folder)
    return steps, counting(result, profile_repeats(steps, units_per_sample(result.config))), ""


def counting(result: Result, every: Iterable[RepeatProfile]) -> list[RepeatProfile]:
    """Return the complete repeats' profiles: a failed repeat may have reached its window."""
    complete = {repeat.index for repeat in result.complete_repeats}
    return [profile for profile in every if profile.repeat in complete]


def checked_aspects(result: Result, profiles: Iterable[RepeatProfile]) -> dict[str, bool]:
    """Return the possible sources of warnings, and whether this measurement has each."""
    repeats = result.complete_repeats
    return {
        "spread": len(repeats) > 1,
        "step times": any(profile.steadiness for profile in counting(result, profiles)),
        "telemetry": any(repeat.telemetry for repeat in repeats),
        "losses": any(repeat.loss_first is not None for repeat in repeats),
        "accuracy": any(repeat.evaluation for repeat in repeats),
        "measured peak": utilization(result) is not None,
    }


def _about_throughputs(result: Result) -> Iterator[Message]:
    values = result.throughputs
    if len(values) == 1:
        yield Message("single_repeat", {})
    width = result.throughput.relative_width if result.throughput else None
    if width is not None and width > VERY_WIDE:
        yield Message("very_wide_interval", {"share": width})
    elif width is not None and width > WIDE:
        yield Message("wide_interval", {"share": width})
    # On a quiet machine, an outlier by z-score may still differ by a negligible share.
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


def _about_gaps(result: Result) -> Iterator[Message]:
    """Yield a warning about windows that telemetry missed."""
    gaps = {}
    for repeat in result.complete_repeats:
        window = max(rank.window_seconds for rank in repeat.ranks)
        samples = repeat.telemetry.samples if repeat.telemetry else 0
        gap = window - samples * SAMPLING_SECONDS
        # Repeats without `began` predate telemetry.
        if repeat.began and gap > max(GAP_SECONDS, GAP_SHARE * window):
            gaps[repeat.index] = gap
    if gaps:
        longest = round(max(gaps.values()))
        yield Message("telemetry_gap", {"repeats": [*gaps], "seconds": longest})


def _about_profiles(result: Result, profiles: list[RepeatProfile]) -> Iterator[Message]:
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
    """Return whether the sum of one rank's steps differs from its window by more than
    SAME_WINDOW.

    On a GPU, the host times the window and the device times the steps. If they differ, the
    device was not synchronized at the window's ends, or one of the clocks is wrong.
    """
    return not abs(sum(step_seconds) - window_seconds) <= SAME_WINDOW * window_seconds


def _about_losses(result: Result) -> Iterator[Message]:
    """Yield warnings about losses and accuracies that training can't have."""
    repeats, config = result.complete_repeats, result.config
    low, high = untrained_losses(model_of(config))
    firsts = {r.index: r.loss_first for r in repeats if r.loss_first is not None}
    lasts = {r.index: r.loss_last for r in repeats if r.loss_last is not None}
    few = {r.index for r in repeats if result.steps(r) < FEWEST_UPDATES}
    odd = [loss for loss in firsts.values() if not low <= loss <= high]
    # The losses are those of rank 0.
    if odd and not has_few_guesses(model_of(config), config.samples_per_step):
        yield Message("first_loss", {"loss": odd[0], "low": low, "high": high})
    if (worst := max((lasts[k] for k in lasts.keys() - few), default=low)) > high:
        yield Message("last_loss", {"loss": worst, "high": high})
    common = sorted(firsts.keys() & lasts.keys()) if result.protocol.steps > 1 else []
    rises = {k: lasts[k] - firsts[k] for k in common}
    rising = [k for k, rise in rises.items() if rise >= 0]
    if rising and config.input == "synthetic":
        yield Message("loss_not_falling", {"repeats": rising})
    if constant := [k for k, rise in rises.items() if abs(rise) < STANDING]:
        yield Message("constant_loss", {"repeats": constant})
    seen = {r.index: r.evaluation for r in repeats if r.evaluation}
    if impossible := [k for k, found in seen.items() if not accuracy_is_possible(found)]:
        yield Message("accuracy", {"repeats": impossible})


def _about_samples(result: Result) -> Iterator[Message]:
    """Yield warnings about skipped steps and missing samples."""
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
    """Yield warnings about a throughput above the devices' peak."""
    most = FEWER_MULTIPLICATIONS if model_of(result.config).sample == "image" else 1.0
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
