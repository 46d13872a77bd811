"""What is odd about a log, or about several together: stated as it was seen."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from math import isfinite
from typing import Any

from perfkit.analysis.losses import STANDING, untrained_losses
from perfkit.audit.blocks import END, WARMUP
from perfkit.audit.course import Course
from perfkit.audit.figures import Figures, Whose
from perfkit.audit.stored import AuditedLog, Claim, Finding, Period
from perfkit.importers.log import Log
from perfkit.models import MODELS
from perfkit.text.terminal import plain

INPUT_BOUND = 0.05
"""Waiting for input for more than this share of the time is told."""
CLOCK_APART = 0.02
"""Printed times that differ from the prints' clock by more than this share are told."""
SLOW = 0.1
"""One print that takes more than this share of the time, and SLOW_TIMES the share of its steps,
is told."""
SLOW_TIMES = 3
APART = 0.005
"""Figures that differ by more than this share are told apart."""
ALIKE = 3
"""So many losses to all their digits are the same in two files by no chance."""
CHANCE = 0.2
"""So many figures expected to agree by chance make an explanation weak."""


def findings_of(log: Log, name: str, figures: Figures, course: Course) -> list[Finding]:
    """What one log shows."""
    found: list[tuple[str, int | None, dict[str, Any]]] = [
        ("note", note.line or None, {"words": plain(note.words)}) for note in log.notes
    ]
    found += [*_of_steps(log, figures, course), *_of_rates(log, figures, course)]
    found += _of_training(log, course)
    return [Finding(name=n, file=name, line=line, figures=told) for n, line, told in found]


Seen = Iterator[tuple[str, int | None, dict[str, Any]]]


def _of_steps(log: Log, figures: Figures, course: Course) -> Seen:
    prints = [one for one in figures.shown if one.period]
    if not log.windows.count:
        yield "no_prints", None, {}
        return
    steps = max((one.steps for one in prints if one.period == "protocol"), default=0)
    if steps < END - WARMUP:
        yield "fewer_steps", None, {"steps": steps, "first": WARMUP + 1, "last": END}
    if course.restarts:
        yield "restarts", course.restart_line, {"count": course.restarts}
    if course.gaps:
        told = {"count": course.gaps, "spacing": course.spacing}
        yield "missing_prints", course.gap_line, told


def _of_rates(log: Log, figures: Figures, course: Course) -> Seen:
    by = {(one.statistic, one.period): one for one in figures.shown}
    for period in ("protocol", "all"):
        mean, right = by.get(("mean of rates", period)), by.get(("samples/time", period))
        if mean and right and (share := _ratio(mean, right) - 1) > APART:
            values = {"mean": mean.throughput or mean.per_device}
            values |= {"right": right.throughput or right.per_device, "share": share}
            steps = {"first": mean.first, "last": mean.last}
            yield "mean_of_rates", None, {**values, **steps}
            break
    timed: tuple[Period, ...] = ("protocol", "warm")
    for of_steps in timed:
        right, clock = by.get(("samples/time", of_steps)), by.get(("clock", of_steps))
        if not right or not clock or (right.first, right.last) != (clock.first, clock.last):
            continue
        apart = _ratio(clock, right) - 1
        if abs(apart) > CLOCK_APART + right.rounding + clock.rounding:
            values = {"right": right.throughput or right.per_device, "difference": apart}
            values |= {"clock": clock.throughput or clock.per_device}
            yield "clock_differs", None, {**values, "first": right.first, "last": right.last}
            break
    slow = figures.slowest
    if slow and slow.share > max(SLOW, SLOW_TIMES * slow.steps / slow.of):
        told = {"share": slow.share, "steps": slow.steps, "of": slow.of}
        yield "slow_print", slow.line, told
    if figures.input_share and figures.input_share > INPUT_BOUND:
        yield "input_wait", None, {"share": figures.input_share}
    if course.odd_rates:
        yield "odd_rates", course.odd_rate_line, {"count": course.odd_rates}
    whose = Whose.of(log)
    of = 1 if whose.rate_of == "device" else whose.ranks
    if whose.samples and of and isfinite(course.samples_by_rate):
        expected = whose.samples * of
        if abs(course.samples_by_rate / expected - 1) > APART:
            told = {"samples": course.samples_by_rate, "batch": expected}
            yield "rate_not_time", None, told


def _ratio(one: Any, other: Any) -> float:
    if one.per_device and other.per_device:
        return float(one.per_device / other.per_device)
    return float(one.throughput / other.throughput)


def _of_training(log: Log, course: Course) -> Seen:
    """Whether it was training at all; the bounds are those of `perfkit.analysis.losses`."""
    if course.negatives:
        told = {"count": course.negatives, "lowest": course.lowest}
        yield "negative_accuracy", course.negative_line, told
    if not course.losses:
        return
    if course.lost_at:
        yield "loss_not_finite", course.lost_at, {}
    model = log.facts["model"].value if "model" in log.facts else None
    first, last = course.ends
    if model in MODELS:
        low, high = untrained_losses(str(model))
        earliest = course.first_losses[0]
        if course.first_loss_step <= WARMUP and not low <= earliest <= high:
            yield "first_loss", None, {"loss": earliest, "low": low, "high": high}
        if last > high:
            yield "last_loss", None, {"loss": last, "high": high}
    if course.losses > 1 and course.highest_loss - course.lowest_loss < STANDING:
        yield "loss_standing", None, {"loss": course.lowest_loss, "count": course.losses}
    elif course.losses > 1 and last >= first:
        yield "loss_not_falling", None, {"first": first, "last": last}


# Of several logs and claims together.


def together(
    logs: list[AuditedLog], courses: Iterable[Course], claims: list[Claim]
) -> list[Finding]:
    """What several logs or claims show together."""
    found: list[tuple[str, dict[str, Any]]] = []
    found += _same_files(logs)
    found += _same_losses(logs, list(courses))
    found += _super_linear(logs)
    found += _mixed_statistics(claims)
    found += _one_for_two(claims)
    return [Finding(name=name, file="", line=None, figures=told) for name, told in found]


Together = Iterator[tuple[str, dict[str, Any]]]


def _same_files(logs: list[AuditedLog]) -> Together:
    by_content: dict[str, list[str]] = defaultdict(list)
    for log in logs:
        by_content[log.sha256].append(log.name)
    for names in by_content.values():
        if len(names) > 1:
            yield "same_file", {"files": names}


def _same_losses(logs: list[AuditedLog], courses: list[Course]) -> Together:
    """Files of different content that begin with the same losses."""
    alike: dict[tuple[float, ...], dict[str, str]] = defaultdict(dict)
    for log, course in zip(logs, courses, strict=True):
        begin = tuple(course.first_losses[:ALIKE])
        if len({*begin}) == ALIKE:
            alike[begin].setdefault(log.sha256, log.name)
    for begin, files in alike.items():
        if len(files) > 1:
            yield "same_losses", {"files": [*files.values()], "losses": [*begin]}


def _super_linear(logs: list[AuditedLog]) -> Together:
    alike: dict[tuple[Any, ...], list[tuple[float, AuditedLog]]] = defaultdict(list)
    for log in logs:
        right = log.right
        known = log.fact("model") is not None and log.fact("batch_size") is not None
        if known and right and right.throughput and right.per_device:
            keys = ("model", "framework", "precision", "batch_size", "accumulate")
            ranks = right.throughput / right.per_device
            alike[tuple(log.fact(key) for key in keys)].append((ranks, log))
    for some in alike.values():
        fewest, base = min(some, key=lambda one: one[0])
        for ranks, log in some:
            assert log.right and base.right and log.right.per_device and base.right.per_device
            share = log.right.per_device / base.right.per_device - 1
            if ranks > fewest and share > APART:
                told = {"file": log.name, "base": base.name, "share": share}
                yield "super_linear", {**told, "ranks": round(ranks), "of": round(fewest)}


def _mixed_statistics(claims: list[Claim]) -> Together:
    """Sides of a speed-up that no one statistic explains."""
    sides: dict[tuple[Any, ...], list[Claim]] = defaultdict(list)
    for claim in claims:
        if claim.table and claim.explanations:
            key = (claim.table, claim.gpu, claim.framework, claim.precision)
            sides[key].append(claim)
    for (table, _gpu, framework, precision), some in sides.items():
        ways = [{one.figure.way for one in claim.explanations} for claim in some]
        if len(some) > 1 and not set.intersection(*ways):
            how = {
                f"{c.topology}, {c.batch_size}": c.explanations[0].figure.model_dump()
                for c in some
            }
            told = {"table": table, "framework": framework, "precision": precision}
            yield "mixed_statistics", {**told, "figures": how}


def _one_for_two(claims: list[Claim]) -> Together:
    places: dict[str, list[str]] = defaultdict(list)
    for claim in claims:
        if claim.log and claim.explanations:
            places[claim.log].append(claim.place)
    for log, found in places.items():
        if len(found) > 1:
            yield "one_for_two", {"file": log, "places": found}
