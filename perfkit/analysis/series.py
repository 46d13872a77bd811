"""Where the level of a series of measurements changes: pure functions on throughputs.

Candidates are penalized change points of the measurements' medians (PELT, by the ruptures
package) and every change of environment that the caller declares. A candidate is accepted if
the repeats on its two sides differ by an exact Mann-Whitney test: those of the REACH nearest
measurements, no further than the neighbouring candidates. The least significant candidate is
dropped until all that are left are accepted.

Which measurements stand on the two sides depends on the data. So the level of a single test is
the family-wise `level` divided by the number of all tests that there could be: a series of m
measurements has C(m + 1, 3) ways to choose two adjacent runs of measurements (Bonferroni).
Where all repeats are alike but for noise, a series has a false change point with at most that
probability, whatever the noise's form.

Sessions may differ by more than their repeats do: another temperature, another neighbour. So a
change must also exceed LIMIT standard errors of the two levels by the scatter from one
measurement to the next, as in a chart of individuals and moving ranges (Shewhart; ISO 7870-2).
"""

from collections.abc import Collection, Sequence
from itertools import pairwise
from math import comb, log, sqrt
from statistics import median
from typing import NamedTuple

from perfkit.statistics import Estimate, ratio_interval

Repeats = Sequence[Sequence[float]]
"""Throughputs of the repeats of each measurement, in the order of time."""
LEVEL = 0.05
"""Probability of a false change point in a series without any."""
FEWEST_MEASUREMENTS = 3
REACH = 20
"""Measurements on each side of a candidate that are tested; more would decide no better."""
LIMIT = 4.0
"""Standard errors between two levels, by the scatter between measurements. With it, one in
twenty series of 50 measurements has a false change where sessions scatter as much as repeats do
(benchmarks/simulations.py)."""
PENALTY = 4.0
"""Of a candidate, in variances of the scatter: low, for the test decides."""


class ChangePoint(NamedTuple):
    """The level changes with measurement `start` (from 0). `ratio` is the level from there on,
    up to the next change point, over the level before it, with an exact interval;
    `p_value` is that of the exact test."""

    start: int
    ratio: Estimate
    p_value: float


class Segmentation(NamedTuple):
    """The change points of a series, with the level of a single test that keeps the family-wise
    level, and the relative scatter (standard deviation) from one measurement to the next."""

    change_points: list[ChangePoint]
    test_level: float
    scatter: float


def segment(
    throughputs: Repeats, declared: Collection[int] = (), level: float = LEVEL
) -> Segmentation:
    """The change points of a series: `throughputs` of the repeats of each measurement, in the
    order of time, all positive. `declared` are the indices of measurements whose environment
    differs from that of the measurement before. Without change points for fewer than
    FEWEST_MEASUREMENTS."""
    count = len(throughputs)
    medians = [log(median(values)) for values in throughputs]
    # By the median of the moving ranges, which few changes of level do not move.
    ranges = [abs(later - earlier) for earlier, later in pairwise(medians)]
    scatter = 1.4826 * median(ranges) / sqrt(2) if ranges else 0.0
    if count < FEWEST_MEASUREMENTS:
        return Segmentation([], level, scatter)
    test_level = level / comb(count + 1, 3)
    changes = sorted({*_candidates(medians, scatter), *declared})
    p_values: dict[int, float] = {}
    while changes:
        p_values = {
            start: _p_value(*_sides(throughputs, changes, start), scatter) for start in changes
        }
        worst = max(p_values, key=lambda start: p_values[start])
        if p_values[worst] <= test_level:
            break
        changes.remove(worst)
    found = []
    for start in changes:
        before, after = map(_joined, _sides(throughputs, changes, start))
        found.append(ChangePoint(start, ratio_interval(after, before), p_values[start]))
    return Segmentation(found, test_level, scatter)


def _candidates(medians: Sequence[float], scatter: float) -> list[int]:
    """Where the level of the medians may change."""
    # Not above: these take half a second to import.
    import numpy as np
    from ruptures import KernelCPD

    penalty = PENALTY * max(scatter, 1e-6) ** 2
    found = KernelCPD("linear", min_size=1).fit(np.asarray(medians)[:, None])
    *changes, _end = found.predict(pen=penalty)
    return [int(change) for change in changes]


def _sides(throughputs: Repeats, changes: Sequence[int], start: int) -> tuple[Repeats, Repeats]:
    """The measurements before and after the change at `start`, REACH of each at most."""
    first = max([0, start - REACH, *(change for change in changes if change < start)])
    end = min([start + REACH, *(change for change in changes if change > start)])
    return throughputs[first:start], throughputs[start:end]


def _p_value(before: Repeats, after: Repeats, scatter: float) -> float:
    """Of the exact test between two levels; 1 where the scatter between measurements explains
    their difference."""
    from scipy.stats import mannwhitneyu

    error = scatter * sqrt(1 / len(before) + 1 / len(after))
    shift = log(median(map(median, after)) / median(map(median, before)))
    if abs(shift) <= LIMIT * error:
        return 1.0
    return float(mannwhitneyu(_joined(after), _joined(before), method="exact").pvalue)


def _joined(throughputs: Repeats) -> list[float]:
    return [value for values in throughputs for value in values]
