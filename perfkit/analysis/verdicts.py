"""Verdicts on a ratio of throughputs B / A: the only place that decides them from an interval.

faster         the interval lies above 1
slower         the interval lies below 1; a regression, if the ratio is also below 1 - threshold
no difference  the interval contains 1 and lies within 1 ± threshold
undecided      the interval contains 1 and values beyond 1 ± threshold, or it does not reach the
               level, because there are too few repeats: "can't tell"

`threshold` is the difference that matters, as a share.
"""

from itertools import count
from math import comb
from typing import Literal

from perfkit.measuring.statistics import Estimate

Verdict = Literal["faster", "slower", "no difference", "undecided"]
LEVEL, THRESHOLD = 0.95, 0.02
"""The level of intervals, and the smallest difference that matters, unless requested."""


def verdict(ratio: Estimate, level: float, threshold: float) -> Verdict:
    """Return what the interval of a ratio shows about B."""
    if ratio.level < level:
        return "undecided"
    if ratio.low > 1:
        return "faster"
    if ratio.high < 1:
        return "slower"
    is_within = 1 - threshold <= ratio.low and ratio.high <= 1 + threshold
    return "no difference" if is_within else "undecided"


def has_regressed(ratio: Estimate, level: float, threshold: float) -> bool:
    """Return whether B is slower at `level`, by more than the threshold."""
    is_slower = verdict(ratio, level, threshold) == "slower"
    return is_slower and ratio.value < 1 - threshold


def fewest_of_each(level: float = LEVEL) -> int:
    """Return how many repeats of both measurements are enough for a verdict at `level` if the
    repeats were not interleaved."""
    return next(n for n in count(1) if 1 - 2 / comb(2 * n, n) >= level)


def are_few(repeats: int) -> bool:
    """Return whether so many repeats are too few to tell a measurement from another one."""
    return repeats < fewest_of_each()
