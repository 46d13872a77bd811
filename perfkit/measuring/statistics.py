"""Statistics over repeats: pure functions on floats."""

from collections.abc import Iterable, Sequence
from functools import cache
from itertools import accumulate, count
from math import comb, exp, log
from statistics import NormalDist, median
from typing import NamedTuple

MOST_EXACT, FEW = 20_000, 9
"""The level of `ratio_interval`, which takes cubic time, is exact for at most so many ratios,
and for at most so few values on a side."""


class Interval(NamedTuple):
    """An interval and the level it achieves (0 to 1)."""

    low: float
    high: float
    level: float


class Estimate(NamedTuple):
    """An estimate, its interval and the level the interval achieves (0 to 1)."""

    value: float
    low: float
    high: float
    level: float


def median_interval(values: Sequence[float], level: float = 0.95) -> Interval | None:
    """Return the narrowest interval of two order statistics that covers the median at `level`.

    [x(k), x(n+1-k)] covers the median of any continuous distribution with a probability of
    exactly 1 - 2 P(Binomial(n, 1/2) < k) (David and Nagaraja, Order Statistics, 3rd ed.,
    section 7.1). If even minimum to maximum falls short of `level`, that interval is returned
    with the level it achieves. None for fewer than two values.
    """
    n = len(values)
    if n < 2:
        return None
    ordered = sorted(values)
    k, achieved = _largest((comb(n, i) for i in range(n // 2)), 2**n, level)
    return Interval(ordered[k - 1], ordered[n - k], achieved)


def _largest(ways: Iterable[int], total: int, level: float) -> tuple[int, float]:
    """Return the largest k with 1 - 2 P(X < k) >= `level`, at least 1, and its level. Of
    `total` outcomes, `ways` have X = 0, 1, …"""
    k, achieved = 0, 0.0
    for below in accumulate(ways):
        reached = 1 - 2 * below / total
        if k and reached < level:
            break
        k, achieved = k + 1, reached
    return k, achieved


def median_estimate(values: Sequence[float], level: float = 0.95) -> Estimate:
    """Return the median of at least one value with its `median_interval`. The interval of a
    single value is the value itself, at level 0."""
    middle = median(values)
    interval = median_interval(values, level) or Interval(middle, middle, 0.0)
    return Estimate(middle, *interval)


def fewest_values(level: float) -> int:
    """Return the number of values from which on minimum to maximum cover the median at
    `level`."""
    return next(n for n in count(2) if 1 - 2 / 2**n >= level)


def relative_width(values: Sequence[float], level: float = 0.95) -> float | None:
    """Return the width of the median's interval as a share of the median; None if the values
    are too few for that level."""
    interval = median_interval(values, level)
    if not interval or interval.level < level:
        return None
    return (interval.high - interval.low) / median(values)


def outliers(values: Sequence[float]) -> list[int]:
    """Return the positions of values with a modified z-score above 3.5.

    The score is 0.6745 |value - median| / (median of |value - median|): Iglewicz and Hoaglin,
    How to detect and handle outliers, 1993. Empty if half of the values are equal.
    """
    if not values:
        return []
    middle = median(values)
    deviations = [abs(value - middle) for value in values]
    usual = median(deviations)
    if not usual:
        return []
    scores = [0.6745 * deviation / usual for deviation in deviations]
    return [position for position, score in enumerate(scores) if score > 3.5]


def ratio_interval(
    values: Sequence[float], base: Sequence[float], level: float = 0.95
) -> Estimate:
    """Return the ratio of `values` to `base`, with at least one positive value in each.

    The estimate is the median of all ratios of a value to a value of `base`, taken on
    logarithms (Hodges and Lehmann). The interval lies between two of these ratios,
    [D(k), D(mn + 1 - k)]: the factors that a Mann-Whitney test does not reject. Its level is
    1 - 2 P(U < k), exact for any continuous distributions that differ by a factor alone
    (Hollander, Wolfe and Chicken, Nonparametric Statistical Methods, 3rd ed., sections 4.2 and
    4.3); k is the largest that achieves `level`. For more than MOST_EXACT ratios of more than
    FEW values each, the level is that of the normal approximation. If even the smallest and the
    largest ratio fall short of `level`, they are returned with the level they achieve.
    """
    logarithms = [log(value) for value in base]
    ratios: list[float] = []
    for value in values:
        logarithm = log(value)
        ratios += [logarithm - other for other in logarithms]
    ratios.sort()
    k, achieved = _rank(len(values), len(base), level)
    return Estimate(exp(median(ratios)), exp(ratios[k - 1]), exp(ratios[-k]), achieved)


@cache
def _rank(m: int, n: int, level: float) -> tuple[int, float]:
    """Return the largest k with 1 - 2 P(U < k) >= `level`, at least 1, and its level."""
    if m * n <= MOST_EXACT or min(m, n) <= FEW:
        return _largest(mann_whitney_counts(m, n), comb(m + n, m), level)
    variance = m * n * (m + n + 1) / 12
    u = NormalDist(m * n / 2, variance**0.5)
    critical = u.inv_cdf((1 - level) / 2)
    k = max(1, int(critical + 0.5))
    return k, 1 - 2 * u.cdf(k - 0.5)


def mann_whitney_counts(m: int, n: int) -> list[int]:
    """Return how many orderings of m and n distinct values have U = 0, 1, … mn, where U is the
    number of pairs whose first value is the greater.

    The counts are the coefficients of the product of (1 - x^(n+i)) / (1 - x^i) for i = 1 … m,
    the closed form of the recurrence of Mann and Whitney (1947).
    """
    counts = [1] + [0] * (m * n)
    for i in range(1, m + 1):
        for u in range(m * n, n + i - 1, -1):
            counts[u] -= counts[u - n - i]
        for u in range(i, m * n + 1):
            counts[u] += counts[u - i]
    return counts
