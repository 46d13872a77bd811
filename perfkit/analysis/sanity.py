"""Warnings about a measurement, as codes with parameters; see text/warnings.toml."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import pandas as pd

from perfkit.analysis.disturbances import disturbances
from perfkit.analysis.losses import STANDING, accuracy_is_possible, untrained_losses
from perfkit.analysis.steady import TOLERANCE, Course, courses
from perfkit.analysis.utilization import (
    datasheet,
    share_of_datasheet,
    share_of_peak,
    utilization,
)
from perfkit.messages import Message
from perfkit.models import MODELS
from perfkit.results.frames import load_steps
from perfkit.results.schema import STOPPING_LEVEL, Result
from perfkit.results.store import Measurement, ResultError
from perfkit.results.summarize import check_against_raw
from perfkit.statistics import median, outliers, relative_width
from perfkit.text.messages import worst_first

WIDE = 0.05
"""An interval as wide as this share of the median is called wide."""
FEWER_MULTIPLICATIONS = 4.0
"""Convolutions of 3x3 can be computed with up to so many times fewer multiplications than they
have (Winograd's F(4x4, 3x3): Lavin and Gray, 2016), so that a network of them may use more than
100 % of a peak of multiplications. Published fp32 runs of VGG-16 do."""
SAME_WINDOW = 0.02
"""By how much of it a window may differ from its steps' sum."""


def warnings_of(result: Result, went: Iterable[Course]) -> list[Message]:
    """All warnings about a measurement, whose repeats went as `went` says."""
    found = [*_about_origin(result), *_about_repeats(result), *_about_courses(result, went)]
    found += [*_about_telemetry(result), *_about_losses(result), *_about_samples(result)]
    return [*found, *_about_peaks(result)]


def warnings_about(measurement: Measurement) -> list[Message]:
    """All warnings about a measurement; of one whose raw steps can't be read or are not here,
    those that the result gives alone."""
    try:
        found = courses(load_steps(measurement.folder))
    except ResultError:
        found = []
    return warnings_of(measurement.result, found)


class Checks(NamedTuple):
    """What the raw files of a measurement show. `steps` is empty and `problem` says why if they
    can't be read; `courses` are those of the repeats that count; `warnings` are all about the
    measurement, the worst first; `disagreements` say where the result does not follow from the
    raw files, None where these are on other machines."""

    steps: pd.DataFrame
    courses: list[Course]
    warnings: list[Message]
    problem: str
    disagreements: list[str] | None


def check(measurement: Measurement) -> Checks:
    """All that can be said of a measurement from its result and its raw files."""
    result, folder, problem = measurement.result, measurement.folder, ""
    try:
        steps = load_steps(folder)
    except ResultError as error:
        steps, problem = pd.DataFrame(), str(error).replace(f"{folder}/", "")
    went = [] if problem else counting(result, courses(steps))
    found = warnings_of(result, went)
    # Of nodes that were started by hand, only the first has raw files.
    elsewhere = result.config.launcher == "manual" and not measurement.raw_files()
    differ = None if elsewhere else check_against_raw(measurement)
    if differ:
        found.append(Message("raw_files_differ", {"reasons": differ}))
    if problem:
        found.append(Message("raw_steps_unreadable", {}))
    if result.status != "complete":
        done = {"complete": len(result.complete_repeats), "planned": result.protocol.repeats}
        found.append(Message("incomplete", done))
    by_code = {warning.code: warning for warning in found}
    return Checks(steps, went, [by_code[c] for c in worst_first(by_code)], problem, differ)


def counting(result: Result, every: Iterable[Course]) -> list[Course]:
    """The courses of the repeats that count: a failed one may have got as far as its window."""
    complete = {repeat.index for repeat in result.complete_repeats}
    return [course for course in every if course.repeat in complete]


def looked_at(result: Result, went: Iterable[Course]) -> dict[str, bool]:
    """What a warning could come from, and whether this measurement tells it."""
    repeats = result.complete_repeats
    return {
        "spread": len(repeats) > 1,
        "step times": any(course.steadiness for course in counting(result, went)),
        "telemetry": any(repeat.telemetry for repeat in repeats),
        "losses": any(repeat.loss_first is not None for repeat in repeats),
        "accuracy": any(repeat.evaluation for repeat in repeats),
        "measured peak": utilization(result) is not None,
    }


def _about_origin(result: Result) -> Iterator[Message]:
    """Whether perfkit was there."""
    if imported := result.imported:
        without_input = (
            imported.basis == "seconds"
            and imported.reader == "apart"
            and result.data_wait_share is None
        )
        yield Message("imported", {"format": imported.format})
        if without_input:
            yield Message("input_wait_excluded", {})


def _about_repeats(result: Result) -> Iterator[Message]:
    values = result.throughputs
    if len(values) == 1:
        yield Message("single_repeat", {})
    width = result.throughput.relative_width if result.throughput else None
    if width is not None and width > WIDE:
        yield Message("wide_interval", {"share": width})
    # Among few repeats of a quiet machine one is often far in units of their own small spread.
    usual = median(values) if values else 0.0
    far = [k for k in outliers(values) if abs(values[k] / usual - 1) > TOLERANCE]
    if far:
        indices = [result.complete_repeats[k].index for k in far]
        ratios = [values[k] / usual - 1 for k in far]
        yield Message("outlier", {"repeats": indices, "shares": ratios})
    target = result.protocol.interval_target
    if target is not None and result.ended_by in ("budget", "repeats"):
        reached = relative_width(values, STOPPING_LEVEL)
        if reached is None or reached > target:
            yield Message("interval_missed", {"share": target, "n": len(values)})


def _about_telemetry(result: Result) -> Iterator[Message]:
    """What else the machine did."""
    found = disturbances(result)
    for code, unit, limit in (
        ("other_load", "cores", "core_limit"),
        ("steal_time", "share", "share_limit"),
    ):
        if some := [one for one in found if one.what == code]:
            most = max(some, key=lambda one: one.value)
            yield Message(
                code,
                {
                    "repeats": [one.repeat for one in some],
                    unit: most.value,
                    limit: most.limit,
                },
            )
    if throttled := [one for one in found if one.what == "throttled"]:
        reasons = sorted({f"{one.device}: {one.reason}" for one in throttled})
        repeats = sorted({one.repeat for one in throttled})
        yield Message("throttled", {"repeats": repeats, "reasons": reasons})


def _about_courses(result: Result, every: Iterable[Course]) -> Iterator[Message]:
    """What the step times of the repeats that count show."""
    went = counting(result, every)
    known = [(c.repeat, c.steadiness) for c in went if c.steadiness]
    if unsettled := [repeat for repeat, seen in known if not seen.settled]:
        yield Message("never_steady", {"repeats": unsettled})
    if drifting := [(repeat, seen.drift) for repeat, seen in known if seen.drift]:
        yield Message("drift", _by_repeat(drifting))
    windows = {
        (r.index, rank.rank): rank.window_seconds for r in result.repeats for rank in r.ranks
    }
    apart = {
        course.repeat
        for course in went
        for rank, seconds in course.window_steps.items()
        if (course.repeat, rank) in windows
        and window_disagrees(windows[course.repeat, rank], seconds)
    }
    if apart:
        yield Message("window_mismatch", {"repeats": sorted(apart)})
    warmup = result.protocol.warmup_steps
    late = [(r, seen.begin) for r, seen in known if seen.settled and seen.begin > warmup]
    if late:
        begins = max(begin for _repeat, begin in late)
        yield Message(
            "warm_up_longer",
            {"repeats": [r for r, _begin in late], "steps": begins, "warmup": warmup},
        )
    differing = [(c.repeat, c.disagreement) for c in went if abs(c.disagreement) > TOLERANCE]
    if differing:
        yield Message("steady_differs", _by_repeat(differing))


def window_disagrees(window_seconds: float, step_seconds: list[float]) -> bool:
    """Whether the steps of one rank's window do not add up to it, to SAME_WINDOW.

    On a GPU the window is the host's time and the steps are the device's: where they differ,
    the device was not synchronized at the window's ends, or one of the clocks is wrong.
    """
    return not abs(sum(step_seconds) - window_seconds) <= SAME_WINDOW * window_seconds


def _by_repeat(found: list[tuple[int, float]]) -> dict[str, Any]:
    return {"repeats": [k for k, _share in found], "shares": [share for _k, share in found]}


def _about_losses(result: Result) -> Iterator[Message]:
    """Whether it was training at all."""
    repeats, config = result.complete_repeats, result.config
    low, high = untrained_losses(config.model)
    firsts = [repeat.loss_first for repeat in repeats if repeat.loss_first is not None]
    if odd := [loss for loss in firsts if not low <= loss <= high]:
        yield Message("first_loss", {"loss": odd[0], "low": low, "high": high})
    lasts = [repeat.loss_last for repeat in repeats if repeat.loss_last is not None]
    if lasts and max(lasts) > high:
        yield Message("last_loss", {"loss": max(lasts), "high": high})
    if config.input == "synthetic" and result.protocol.steps > 1:
        rising = [
            r.index
            for r in repeats
            if r.loss_first is not None
            and r.loss_last is not None
            and r.loss_last >= r.loss_first
        ]
        if rising:
            yield Message("loss_not_falling", {"repeats": rising})
    standing = [
        repeat.index
        for repeat in repeats
        if result.protocol.steps > 1
        and repeat.loss_first is not None
        and repeat.loss_last is not None
        and abs(repeat.loss_last - repeat.loss_first) < STANDING
    ]
    if standing:
        yield Message("constant_loss", {"repeats": standing})
    odd_repeats = [
        repeat.index
        for repeat in repeats
        if repeat.evaluation and not accuracy_is_possible(repeat.evaluation)
    ]
    if odd_repeats:
        yield Message("accuracy", {"repeats": odd_repeats})


def _about_samples(result: Result) -> Iterator[Message]:
    """Whether all that was asked for was trained on."""
    repeats = result.complete_repeats
    if skipped := sum(repeat.skipped_steps or 0 for repeat in repeats):
        steps = len(repeats) * result.protocol.steps
        yield Message("skipped_steps", {"count": skipped, "steps": steps})
    wanted = result.protocol.steps * result.config.samples_per_step
    seen = [
        rank.samples_seen
        for repeat in repeats
        for rank in repeat.ranks
        if rank.samples_seen is not None
    ]
    if seen and min(seen) < wanted:
        yield Message("fewer_samples", {"seen": min(seen), "wanted": wanted})


def _about_peaks(result: Result) -> Iterator[Message]:
    """Whether it was faster than the devices can be."""
    most = FEWER_MULTIPLICATIONS if MODELS[result.config.model].sample == "image" else 1.0
    if known := utilization(result):
        over = [
            (repeat.index, share)
            for repeat in result.complete_repeats
            if repeat.peak and (share := share_of_peak(repeat, known.flops)) > most
        ]
        if over:
            repeats, shares = zip(*over, strict=True)
            yield Message("above_peak", {"repeats": repeats, "share": max(shares)})
    sheet = datasheet(result)
    if sheet and (share := share_of_datasheet(result, sheet) or 0.0) > most:
        yield Message("above_datasheet", {"share": share, "gpu": sheet.gpu})
