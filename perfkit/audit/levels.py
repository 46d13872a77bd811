"""A change of level among the steps of an answer."""

from typing import Any, NamedTuple

import numpy as np

LEAST_CHANGE = 0.1
"""Share by which the median time of a step must change."""
FEWEST = 5
"""Windows on both sides of the change, at least."""
APART = 0.9
"""Share of the windows on either side that lie beyond the middle of both levels, at least."""


class LevelChange(NamedTuple):
    """Where the level changes: the first window behind it, and the medians of the
    seconds of a step before and after."""

    begin: int
    before: float
    after: float


def level_change(step_seconds: "np.ndarray[Any, Any]") -> LevelChange | None:
    """Return the change that splits these times best into two levels; None if they are
    alike, or if their windows do not lie apart, as times that drift or scatter do not."""
    count = len(step_seconds)
    if count < 2 * FEWEST:
        return None
    logs = np.log(step_seconds)
    # A few pauses are no level.
    logs = np.clip(logs, *np.quantile(logs, (0.05, 0.95)))
    before = np.arange(FEWEST, count - FEWEST + 1)
    sums = np.cumsum(logs)[before - 1]
    means, rest = sums / before, (logs.sum() - sums) / (count - before)
    gains = (means - rest) ** 2 * before * (count - before)
    index = int(before[gains.argmax()])
    first, second = step_seconds[:index], step_seconds[index:]
    change = LevelChange(index, float(np.median(first)), float(np.median(second)))
    is_slower = change.after > change.before
    middle = (change.before * change.after) ** 0.5
    are_apart = (
        min(np.mean((first < middle) == is_slower), np.mean((second > middle) == is_slower))
        >= APART
    )
    ratio = change.after / change.before
    return change if are_apart and max(ratio, 1 / ratio) - 1 > LEAST_CHANGE else None
