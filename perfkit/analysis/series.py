"""Levels of a series of measurements, and whether the newest one dropped: pure functions on
throughputs.

Each measurement counts by the logarithm of its median. The levels are those that minimize the
sum of squares around their means plus a penalty for each change of level (PELT; Killick,
Fearnhead and Eckley, 2012; by the ruptures package). The penalty is the larger of

    4 ln(m) scatter²   for m measurements: twice the Bayesian information criterion's, since
                       noise is rarely normal
    threshold²         so that a single measurement that differs by less is no level of its own

`scatter` is the standard deviation between measurements, from the median of their moving ranges
(Shewhart; ISO 7870-2). It includes what sessions differ by, for instance in temperature or in
the load of other tenants, and is robust against a few changes of level.

A change that the repeats do not show, since its ratio has an exact interval around 1, is none.

The newest level dropped if it is below the best accepted one by more than the threshold, with
an exact interval of the ratio below 1. Every level is accepted until a lower one begins; a
measurement that accepts its level begins the judging anew. `benchmarks/simulations.py drops`
shows how often this is wrong, and which drops it finds.
"""

from collections.abc import Sequence
from itertools import chain, pairwise
from math import log, sqrt
from statistics import median
from typing import NamedTuple

from perfkit.analysis.verdicts import LEVEL, has_regressed
from perfkit.measuring.statistics import Estimate, ratio_interval

Repeats = Sequence[Sequence[float]]
"""Throughputs of the repeats of each measurement, in chronological order."""
FEWEST_MEASUREMENTS = 3
NEAREST = 10
"""Most measurements on each side of a change from which its ratio follows."""
CRITERION = 4.0
LEAST_PENALTY = 1e-12
"""Penalty of a series of equal measurements, where every difference counts."""


class LevelChange(NamedTuple):
    """A level that begins at measurement `start` (from 0). `ratio`: this level / another."""

    start: int
    ratio: Estimate


def level_starts(throughputs: Repeats, threshold: float) -> list[int]:
    """Return the first measurement of each level, beginning with 0. Throughputs are positive;
    `threshold` is the smallest share that matters."""
    # Imported here because the two take half a second.
    import numpy as np
    from ruptures import KernelCPD

    criterion = CRITERION * log(len(throughputs)) * scatter(throughputs) ** 2
    penalty = max(criterion, threshold**2, LEAST_PENALTY)
    detector = KernelCPD("linear", min_size=1)
    detector.fit(np.asarray(_heights(throughputs))[:, None])
    *changes, _end = detector.predict(pen=penalty)
    starts = [0, *map(int, changes)]
    while hidden := _hidden_change(throughputs, starts):
        starts.remove(hidden.start)
    return starts


def _hidden_change(throughputs: Repeats, starts: Sequence[int]) -> LevelChange | None:
    """Return the first change of level that the repeats do not show; None if they show all."""
    for change in level_changes(throughputs, starts):
        if change.ratio.low <= 1 <= change.ratio.high:
            return change
    return None


def scatter(throughputs: Repeats) -> float:
    """Return the relative standard deviation between measurements, of at least two."""
    ranges = [abs(later - earlier) for earlier, later in pairwise(_heights(throughputs))]
    return 1.4826 * median(ranges) / sqrt(2)


def _heights(throughputs: Repeats) -> list[float]:
    return [log(median(repeats)) for repeats in throughputs]


def level_changes(throughputs: Repeats, starts: Sequence[int]) -> list[LevelChange]:
    """Return the change at the begin of each level but the first, from the level before."""
    changes = []
    for before, after in pairwise(_levels(throughputs, starts)):
        changes.append(LevelChange(after[0], _ratio_of_levels(throughputs, before, after)))
    return changes


def newest_drop(
    throughputs: Repeats, starts: Sequence[int], judged_from: int, threshold: float
) -> LevelChange | None:
    """Return the newest level / the best one since the measurement `judged_from`, whose level
    is accepted, with the first measurement below that best one. None if the newest level is
    not lower by more than the threshold."""
    levels = [level for level in _levels(throughputs, starts) if level[-1] >= judged_from]
    heights = []
    for level in levels:
        heights.append(median(median(throughputs[index]) for index in level))
    best = heights.index(max(heights))
    if best == len(levels) - 1:
        return None
    ratio = _ratio_of_levels(throughputs, levels[best], levels[-1])
    if not has_regressed(ratio, LEVEL, threshold):
        return None
    return LevelChange(levels[best + 1][0], ratio)


def _levels(throughputs: Repeats, starts: Sequence[int]) -> list[range]:
    """Return the indices of each level's measurements."""
    ends = [*starts[1:], len(throughputs)]
    return [range(start, end) for start, end in zip(starts, ends, strict=True)]


def _ratio_of_levels(throughputs: Repeats, before: range, after: range) -> Estimate:
    """Return the ratio after / before of two levels, from the measurements nearest to the
    change."""
    earlier = [throughputs[index] for index in before[-NEAREST:]]
    later = [throughputs[index] for index in after[:NEAREST]]
    return ratio_interval([*chain(*later)], [*chain(*earlier)], LEVEL)
