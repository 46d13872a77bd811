"""Change points of a series of measurements: pure functions on throughputs.

Candidates are penalized change points of the measurements' medians (PELT, by the ruptures
package) and every change of environment that the caller declares. A candidate is accepted if an
exact Mann-Whitney test separates the repeats before and after it, from up to REACH measurements
on each side, of these the nearest MOST_REPEATS repeats, and no further than the neighbouring
candidates. The least significant candidate is dropped until all others are accepted.

The data decide which measurements are tested. So the level of a single test is the family-wise
`level` divided by the number of possible tests (Bonferroni): a series of m measurements has
C(m + 1, 3) pairs of adjacent runs of measurements. If repeats differ by noise alone, a series
has a false change point with at most the probability `level`, whatever the noise distribution.

Sessions may differ more than the repeats of a session, for instance in temperature or in the
load of other tenants. So a change must also exceed LIMIT standard errors of the two levels,
estimated from the scatter between consecutive measurements, as in a chart of individuals and
moving ranges (Shewhart; ISO 7870-2).
"""

from collections.abc import Collection, Sequence
from itertools import chain, pairwise
from math import comb, exp, inf, log, sqrt
from statistics import median
from typing import NamedTuple

from perfkit.core.statistics import Estimate, ratio_interval

Repeats = Sequence[Sequence[float]]
"""Throughputs of the repeats of each measurement, in chronological order."""
LEVEL = 0.05
"""Probability of a false change point in a series without any."""
FEWEST_MEASUREMENTS = 3
REACH = 20
"""Most measurements tested on each side of a candidate; more would not improve the test."""
MOST_REPEATS = 140
"""Most repeats tested on each side: 7 of each measurement. An exact test takes cubic time."""
LIMIT = 4.0
"""Standard errors between two levels, from the scatter between measurements. With this limit,
one in twenty series of 50 measurements has a false change if sessions scatter as much as
repeats do (benchmarks/simulations.py)."""
PENALTY = 4.0
"""Penalty of a candidate in variances of the scatter; low, since the test decides."""


class ChangePoint(NamedTuple):
    """A change of level at measurement `start` (from 0). `ratio` is the level from there to the
    next change point over the level before, with an exact interval; `p_value` is from the exact
    test."""

    start: int
    ratio: Estimate
    p_value: float


class Segmentation(NamedTuple):
    """The change points of a series, the level of a single test that keeps the family-wise
    level, and the relative scatter (standard deviation) between consecutive measurements."""

    change_points: list[ChangePoint]
    test_level: float
    scatter: float


def segment(
    throughputs: Repeats, declared: Collection[int] = (), level: float = LEVEL
) -> Segmentation:
    """Return the change points of a series, none for fewer than FEWEST_MEASUREMENTS.

    `throughputs` are positive. `declared` are the indices of measurements whose environment
    differs from the previous measurement's, perhaps all."""
    count = len(throughputs)
    medians = [log(median(values)) for values in throughputs]
    scatter = _scatter(medians)
    if count < FEWEST_MEASUREMENTS:
        return Segmentation([], level, scatter)
    test_level = _test_level(count, level)
    changes = sorted({*_candidates(medians, scatter), *declared})
    p_values = _accepted(throughputs, changes, scatter, test_level)
    change_points = []
    for start, p_value in p_values.items():
        before, after = repeats_around(*_neighbours(throughputs, [*p_values], start))
        change_points.append(ChangePoint(start, ratio_interval(after, before), p_value))
    return Segmentation(change_points, test_level, scatter)


def _test_level(measurements: int, level: float) -> float:
    """Return the level of a single test that keeps the level of a series: it has so many pairs
    of adjacent runs of measurements."""
    return level / comb(measurements + 1, 3)


def detectable_drop(
    throughputs: Repeats, starts: Collection[int], level: float = LEVEL
) -> float | None:
    """Return the smallest drop at the newest measurement, as a share, that would have been
    found; None if none would have been, however large. `starts` are the change points.

    Each measurement of the newest level takes the place of the newest one in turn, with its own
    repeats: a drop as large as returned would have been found at any of them. So it includes
    how much the series' repeats and sessions scatter. A drop that lasts is found by and by even
    if it is smaller."""
    count = len(throughputs)
    test_level = _test_level(count, level)
    scatter = _scatter_with_a_drop(throughputs)
    begin = max(start for start in (0, *starts) if start < count - 1)
    end = count - 1 if count - 1 in starts else count
    alike = throughputs[begin:end][-REACH - 1 :]
    shifts = []
    for position, newest in enumerate(alike):
        others = [*alike[:position], *alike[position + 1 :]] or alike
        shift = _shift_found(others, newest, scatter, test_level)
        if shift is None:
            return None
        shifts.append(shift)
    return 1 - exp(-max(0.0, *shifts))


def _scatter_with_a_drop(throughputs: Repeats) -> float:
    """Return the scatter that the series would have after a large drop at the newest
    measurement; infinite if the drop itself would be half of the ranges."""
    medians = [log(median(values)) for values in throughputs]
    ranges = [abs(later - earlier) for earlier, later in pairwise(medians[:-1])]
    return 1.4826 * median([*ranges, inf]) / sqrt(2)


def _shift_found(
    before: Repeats, newest: Sequence[float], scatter: float, test_level: float
) -> float | None:
    """Return by how much the logarithm of the newest measurement must fall until the exact
    test and the scatter both show a change; None if no fall is enough."""
    error = scatter * sqrt(1 / len(before) + 1)
    repeats_before, repeats_after = repeats_around(before, [newest])
    counts = len(repeats_before), len(repeats_after)
    if error == inf or not _can_be_significant(*counts, test_level):
        return None
    shift = log(median(newest) / median(map(median, before)))
    ratio = ratio_interval(repeats_after, repeats_before, 1 - test_level)
    return max(shift + LIMIT * error, log(ratio.high))


def _can_be_significant(before: int, after: int, test_level: float) -> bool:
    """Return whether the exact test of so many repeats can reach its level at all."""
    return 2 / comb(before + after, after) <= test_level


def can_find_drop(measurements: int, of_level: int, repeats: int, level: float) -> bool:
    """Return whether a drop, if large enough, is found at the newest of so many measurements
    with so many repeats each, `of_level` of them since the last change."""
    before = min(repeats * min(of_level - 1, REACH), MOST_REPEATS)
    is_seen = measurements > FEWEST_MEASUREMENTS
    test_level = _test_level(measurements, level)
    return is_seen and _can_be_significant(before, repeats, test_level)


def untested_measurements(throughputs: Repeats, level: float = LEVEL) -> int:
    """Return how many of the newest measurements have together too few repeats to be a level of
    their own, however much they differ."""
    count = len(throughputs)
    test_level = _test_level(count, level)
    for size in range(1, count):
        before, after = repeats_around(throughputs[:-size][-REACH:], throughputs[-size:])
        if _can_be_significant(len(before), len(after), test_level):
            return size - 1
    return count - 1


def _scatter(medians: Sequence[float]) -> float:
    """Return the standard deviation between consecutive measurements, from the logarithms of
    their medians. The median of the moving ranges is robust against a few changes of level."""
    ranges = [abs(later - earlier) for earlier, later in pairwise(medians)]
    return 1.4826 * median(ranges) / sqrt(2) if ranges else 0.0


def _accepted(
    throughputs: Repeats, candidates: Sequence[int], scatter: float, test_level: float
) -> dict[int, float]:
    """Drop the least significant candidate until the p-values of all others are at most
    `test_level`; return these with their p-values."""
    changes = [*candidates]
    while changes:
        tests = {}
        for start in changes:
            before, after = _neighbours(throughputs, changes, start)
            tests[start] = _compare_levels(before, after, scatter)
        worst = max(changes, key=lambda start: tests[start].weakness)
        if tests[worst].p_value <= test_level:
            return {start: test.p_value for start, test in tests.items()}
        changes.remove(worst)
    return {}


def _candidates(medians: Sequence[float], scatter: float) -> list[int]:
    # Imported here because the two take half a second.
    import numpy as np
    from ruptures import KernelCPD

    penalty = PENALTY * max(scatter, 1e-6) ** 2
    detector = KernelCPD("linear", min_size=1)
    detector.fit(np.asarray(medians)[:, None])
    *changes, _end = detector.predict(pen=penalty)
    return [int(change) for change in changes]


def _neighbours(
    throughputs: Repeats, changes: Sequence[int], start: int
) -> tuple[Repeats, Repeats]:
    """Return the measurements before and after the change at `start`, at most REACH each."""
    earlier = [change for change in changes if change < start]
    later = [change for change in changes if change > start]
    first = max([0, start - REACH, *earlier])
    end = min([start + REACH, *later])
    return throughputs[first:start], throughputs[start:end]


class LevelTest(NamedTuple):
    """The p-value of the exact test between two levels, 1 if the scatter between measurements
    explains their difference, and that difference in standard errors by the scatter."""

    p_value: float
    standard_errors: float

    @property
    def weakness(self) -> tuple[float, float]:
        """What orders candidates from the most to the least significant. Many may have the
        same p-value, such as those whose levels are of one measurement each."""
        return self.p_value, -self.standard_errors


def _compare_levels(before: Repeats, after: Repeats, scatter: float) -> LevelTest:
    from scipy.stats import mannwhitneyu

    error = scatter * sqrt(1 / len(before) + 1 / len(after))
    shift = abs(log(median(map(median, after)) / median(map(median, before))))
    if shift == 0:
        return LevelTest(1.0, 0.0)
    standard_errors = shift / error if error else inf
    if standard_errors <= LIMIT:
        return LevelTest(1.0, standard_errors)
    first, second = repeats_around(before, after)
    p_value = float(mannwhitneyu(second, first, method="exact").pvalue)
    return LevelTest(p_value, standard_errors)


def repeats_around(before: Repeats, after: Repeats) -> tuple[list[float], list[float]]:
    """Return the repeats nearest to a change, at most MOST_REPEATS before and after it."""
    repeats_before = [*chain.from_iterable(before)]
    repeats_after = [*chain.from_iterable(after)]
    return repeats_before[-MOST_REPEATS:], repeats_after[:MOST_REPEATS]
