"""Statistics over repeats: pure functions on floats."""

from collections.abc import Sequence
from math import comb
from statistics import median, quantiles
from typing import NamedTuple

__all__ = ["Interval", "median", "median_interval", "share_interval", "summary"]


class Interval(NamedTuple):
    """An interval and the level that it achieves (0 to 1)."""

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


def share_interval(hits: int, trials: int, level: float = 0.95) -> Interval:
    """The interval for the probability of a hit that covers it at `level` or more, whatever it
    is (Clopper and Pearson, Biometrika 26, 1934). `trials` is at least 1."""
    # SciPy's statistics take a second to import, which nothing else here should wait for.
    from scipy.stats import binomtest

    low, high = binomtest(hits, trials).proportion_ci(level, method="exact")
    return Interval(float(low), float(high), level)


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
