"""Statistics over repeats: pure functions on floats."""

from collections.abc import Sequence
from math import comb
from statistics import median, quantiles
from typing import NamedTuple

__all__ = ["Interval", "median", "median_interval", "outliers", "relative_width", "summary"]


class Interval(NamedTuple):
    """An interval for the median and the level that it achieves (0 to 1)."""

    low: float
    high: float
    level: float


def median_interval(values: Sequence[float], level: float = 0.95) -> Interval | None:
    """The narrowest interval of two order statistics that covers the median at `level`.

    [x(k), x(n+1-k)] covers the median of a continuous distribution with probability
    1 - 2 P(Binomial(n, 1/2) < k), exactly, whatever the distribution (David and Nagaraja,
    Order Statistics, 3rd ed., section 7.1). Where even minimum to maximum falls short of
    `level`, that is what comes back, with the level it does achieve. None for fewer than two.
    """
    n = len(values)
    if n < 2:
        return None
    ordered = sorted(values)
    achieved = {
        k: 1 - 2 * sum(comb(n, i) for i in range(k)) / 2**n for k in range(1, n // 2 + 1)
    }
    k = max((k for k in achieved if achieved[k] >= level), default=1)
    return Interval(ordered[k - 1], ordered[n - k], achieved[k])


def relative_width(values: Sequence[float], level: float = 0.95) -> float | None:
    """The width of the median's interval as a share of the median; None where so few values
    have no interval of that level."""
    interval = median_interval(values, level)
    if not interval or interval.level < level:
        return None
    return (interval.high - interval.low) / median(values)


def outliers(values: Sequence[float]) -> list[int]:
    """The positions of values with a modified z-score over 3.5.

    That is 0.6745 |value - median| / (median of |value - median|): Iglewicz and Hoaglin, How to
    detect and handle outliers, 1993. None of values half of which are the same.
    """
    middle = median(values)
    deviations = [abs(value - middle) for value in values]
    usual = median(deviations)
    return [k for k, far in enumerate(deviations) if usual and 0.6745 * far / usual > 3.5]


def summary(values: Sequence[float]) -> dict[str, float]:
    """Minimum, quartiles (inclusive method) and maximum of at least one value, by name."""
    p25, p50, p75 = (
        quantiles(values, n=4, method="inclusive") if len(values) > 1 else [*values] * 3
    )
    return {
        "minimum": min(values),
        "p25": p25,
        "median": p50,
        "p75": p75,
        "maximum": max(values),
    }
