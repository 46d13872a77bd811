"""When a running repeat is warmed up, judged by its steps so far.

Finding no change is not enough: few steps do not show a warm-up that takes hundreds. So the
steps since the last change of level must be as many as will be measured, and a difference
between their first and second half that would matter must be excluded.
"""

from collections.abc import Sequence
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from perfkit.analysis.steady import FEWEST_STEPS, TOLERANCE, noise_of, steadiness

if TYPE_CHECKING:
    from numpy.typing import NDArray

FEWEST_PASSES = 3
"""Of so many passes through a data set, what recurs in each is known."""
ERRORS = 2.0
"""Standard errors within which a difference is not excluded."""
NOISE_SHARE = 0.5
"""A difference of less than this share of the steps' noise does not matter either."""


def is_warmed_up(
    seconds: Sequence[float], measured_steps: int, pass_steps: float | None = None
) -> bool:
    """Whether the window can begin after these steps of a repeat (seconds, in order), of which
    `measured_steps` will follow. A pass through the data set takes `pass_steps`; it counts as
    warm-up, since its files may come from the disk."""
    if pass_steps and len(seconds) < pass_steps:
        return False
    steps = without_recurring(np.asarray(seconds, float), pass_steps)
    seen = steadiness(steps)
    if seen is None or not seen.settled or seen.drift is not None:
        return False
    level = steps[seen.begin :] / np.median(steps[seen.begin :])
    if len(level) < max(FEWEST_STEPS, measured_steps):
        return False
    noise = noise_of(level)
    first, second = (np.median(half) for half in np.array_split(level, 2))
    # Of the medians of two halves, which scatter by 1.25 times as much as their means.
    error = 2.5 * noise / sqrt(len(level))
    return bool(abs(second - first) + ERRORS * error < max(TOLERANCE, NOISE_SHARE * noise))


def without_recurring(steps: "NDArray[Any]", pass_steps: float | None) -> "NDArray[Any]":
    """`steps` without what recurs in each pass, as a stall at its begin: divided by the median
    of all passes at the same place. Unchanged where there are fewer than FEWEST_PASSES."""
    if not pass_steps or len(steps) < FEWEST_PASSES * pass_steps:
        return steps
    numbers = np.arange(len(steps))
    places, passes = (numbers % pass_steps).astype(int), (numbers // pass_steps).astype(int)
    usual = np.array([np.median(steps[passes == k]) for k in range(passes.max() + 1)])
    relative = steps / usual[passes]
    shape = np.array([np.median(relative[places == k]) for k in range(places.max() + 1)])
    return steps / shape[places]
