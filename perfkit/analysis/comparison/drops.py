"""Whether a series has dropped, and which drop could have been found.

The newest level of a series is compared with the best accepted one. Every level is accepted
until a lower one begins; a measurement whose label begins with `accepted` accepts the level
that it belongs to, and judging begins there. Newest measurements with too few repeats to be a
level of their own do not end a drop (`without_untested`).

The smallest drop that could have been found follows from the series' own repeats and scatter
(`detectable_drop`): without it, a series without a drop can't be told from one whose drop is
too small to see.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median
from typing import ClassVar

from perfkit.analysis.ratios import Ratio, estimated
from perfkit.analysis.series import (
    REACH,
    Repeats,
    Segmentation,
    can_find_drop,
    detectable_drop,
    repeats_around,
    segment,
    untested_measurements,
)
from perfkit.analysis.verdicts import (
    LEVEL,
    Distance,
    PreciseShare,
    Speed,
    Verdict,
    has_regressed,
)
from perfkit.core.statements import N_, Share, Statement
from perfkit.core.statistics import Estimate, ratio_interval

ACCEPTED = "accepted"
"""A label that begins so accepts the level of its measurement."""


class Drop(Ratio):
    """The newest level is below the best accepted one by more than the threshold; the ratio is
    the newest / the best."""

    start: int
    """the first measurement below the best accepted level (from 0)"""


class DropStatement(Statement):
    """What a series shows about a drop of its newest level."""

    classes: ClassVar = {}
    verdict: ClassVar[Verdict] = "undecided"


class Dropped(DropStatement):
    """A lower level began after the best accepted one, and has not been accepted."""

    code = "dropped"
    verdict = "slower"
    sentence = N_(
        "Regression: the newest level is %(change)s than the best accepted one (%(high)s to "
        "%(low)s at %(level)s), since %(since)s. To accept it: -p label accepted-NAME for the "
        "next measurement, or --since %(since)s."
    )
    change: Speed
    low: Distance
    high: Distance
    level: PreciseShare
    since: str
    """label or time of the first measurement of the drop, as --since takes it"""


class NoDrop(DropStatement):
    """No drop was found, and one over the threshold would have been."""

    code = "no_drop"
    verdict = "no difference"
    sentence = N_(
        "No drop over %(threshold)s: one of %(detectable)s or more at the newest measurement "
        "would have been found."
    )
    threshold: Share
    detectable: Share


class NotYet(DropStatement):
    """The newest measurement is slower than the one before it by more than the threshold, which
    is not yet a lower level."""

    code = "not_yet"
    sentence = N_(
        "Can't tell yet: the newest measurement is %(change)s than the one before, but alone "
        "does not show a lower level. Measure again."
    )
    change: Speed


class JudgingBegins(DropStatement):
    """The newest measurement is the first one that is judged."""

    code = "judging_begins"
    verdict = "no difference"
    sentence = N_("No drop: judging begins at the newest measurement, whose level is accepted.")


class SmallDropsHidden(DropStatement):
    """No drop was found, but only one larger than the threshold would have been."""

    code = "small_drops_hidden"
    sentence = N_(
        "Can't tell whether it dropped by %(threshold)s: only a drop of %(detectable)s or more "
        "at the newest measurement would have been found."
    )
    threshold: Share
    detectable: Share


class TooFewRepeatsForDrops(DropStatement):
    """The newest measurement has too few repeats for any drop to be significant."""

    code = "too_few_repeats_for_drops"
    sentence = N_(
        "Can't tell: no drop, however large, could have been found at the newest measurement. "
        "Its repeats: %(n)s; enough for each measurement: %(enough)s."
    )
    n: int
    enough: int


class TooFewMeasurementsForDrops(DropStatement):
    """The newest level has too few measurements."""

    code = "too_few_measurements_for_drops"
    sentence = N_(
        "Can't tell: no drop, however large, could have been found at the newest measurement. "
        "Measurements of this level: %(n)s; enough: %(enough)s."
    )
    n: int
    enough: int


class NewestUntested(DropStatement):
    """Beside a drop: the newest measurement has too few repeats to end it."""

    code = "newest_untested"
    sentence = N_(
        "The newest measurement has too few repeats to test whether the drop has ended: "
        "%(n)s; enough for each measurement: %(enough)s."
    )
    n: int
    enough: int


@dataclass(frozen=True)
class Judged:
    """What is judged about drops: the repeats of each measurement in chronological order, their
    segmentation, the first measurement whose level counts, the level of the segmentation, and
    the smallest drop that matters, as a share."""

    throughputs: Repeats
    segmentation: Segmentation
    judged_from: int
    level: float
    threshold: float

    @property
    def starts(self) -> list[int]:
        """The first measurement of each level."""
        return [0, *(point.start for point in self.segmentation.change_points)]

    @property
    def of_newest_level(self) -> int:
        """How many measurements the newest level has."""
        return len(self.throughputs) - self.starts[-1]

    @cached_property
    def detectable(self) -> float | None:
        """The smallest drop, as a share, that would have been found at the newest
        measurement."""
        return detectable_drop(self.throughputs, self.starts[1:], self.level)


def accepted_from(labels: Sequence[str]) -> int:
    """Return the newest measurement that accepts its level; 0 without any."""
    accepting = [index for index, label in enumerate(labels) if label.startswith(ACCEPTED)]
    return max(accepting, default=0)


def without_untested(judged: Judged, declared: Collection[int] = ()) -> Judged:
    """Return the series without its newest measurements that together have too few repeats to
    be a level of their own, if they would hide a drop that stood before them; else the series
    as it is. `declared` are the measurements whose environment changed."""
    untested = untested_measurements(judged.throughputs, judged.level)
    if not untested or standing_drop(judged):
        return judged
    throughputs = judged.throughputs[:-untested]
    earlier = [index for index in declared if index < len(throughputs)]
    segmentation = segment(throughputs, earlier, judged.level)
    before = replace(judged, throughputs=throughputs, segmentation=segmentation)
    has_newer_level = judged.starts[-1] > before.starts[-1]
    return before if standing_drop(before) and not has_newer_level else judged


def standing_drop(judged: Judged) -> Drop | None:
    """Return how far the newest level is below the best level since `judged_from`; None if it
    isn't, or by no more than the threshold."""
    throughputs = judged.throughputs
    ends = [*judged.starts[1:], len(throughputs)]
    levels = []
    for start, end in zip(judged.starts, ends, strict=True):
        if end > judged.judged_from:
            levels.append(throughputs[start:end])
    if not levels:
        return None
    heights = [median(map(median, level)) for level in levels]
    best = heights.index(max(heights))
    if best == len(levels) - 1:
        return None
    before, after = repeats_around(levels[best], levels[-1])
    ratio = ratio_interval(after, before, LEVEL)
    if not has_regressed(ratio, LEVEL, judged.threshold):
        return None
    first = judged.starts[best + 1 - len(levels)]
    return Drop(**estimated(ratio), start=first)


def outcome(judged: Judged, drop: Drop | None, since: str, newest: Estimate) -> DropStatement:
    """Return what a series shows about a drop. `since`: what accepts the drop; `newest`: the
    newest measurement / the one before it."""
    threshold, detectable = judged.threshold, judged.detectable
    if drop:
        low, high = drop.interval
        level = drop.interval_level
        return Dropped(change=drop.ratio, low=low, high=high, level=level, since=since)
    if 0 < judged.judged_from == len(judged.throughputs) - 1:
        return JudgingBegins()
    if has_regressed(newest, LEVEL, threshold):
        return NotYet(change=newest.value)
    if detectable is None:
        return _too_few(judged)
    if detectable > threshold:
        return SmallDropsHidden(threshold=threshold, detectable=detectable)
    return NoDrop(threshold=threshold, detectable=detectable)


def _too_few(judged: Judged) -> DropStatement:
    """Return how many measurements of the newest level with as many repeats as the newest one
    are enough to find a drop; if none are, how many repeats."""
    measurements, of_level = len(judged.throughputs), judged.of_newest_level
    n = len(judged.throughputs[-1])
    for more in range(1, REACH):
        if can_find_drop(measurements + more, of_level + more, n, judged.level):
            return TooFewMeasurementsForDrops(n=of_level, enough=of_level + more)
    return TooFewRepeatsForDrops(n=n, enough=_enough_repeats(judged))


def _enough_repeats(judged: Judged) -> int:
    """Return how many repeats of each measurement are enough to find a drop at the next one."""
    measurements = len(judged.throughputs) + 1
    of_level = judged.of_newest_level + 1
    enough = len(judged.throughputs[-1])
    while not can_find_drop(measurements, of_level, enough, judged.level):
        enough += 1
    return enough


def newest_untested(judged: Judged) -> NewestUntested | None:
    """Return that the newest measurement has too few repeats to be a level of its own, and how
    many are enough; None if it has them."""
    if not untested_measurements(judged.throughputs, judged.level):
        return None
    return NewestUntested(n=len(judged.throughputs[-1]), enough=_enough_repeats(judged))
