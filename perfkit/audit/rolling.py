"""Times of steps from means over a log's own window.

Some suites print, at each step, the mean of the last 50 steps. The print of step 60 then covers
steps 11 to 60, of which the print of step 50 covered most. The sum of all steps up to step i is
known if that up to step i - 50 is: it is larger by 50 times the printed mean.
"""

from typing import NamedTuple

import numpy as np

LEAST_CHAIN = 240
"""Steps of a run up to which sums are chained, at least: the protocol's steps and as many. Each
link adds the rounding of a printed mean, so later prints count only once per window."""
CHAINED_WINDOWS = 4


class RollingWindows(NamedTuple):
    """For each print, the first step that it covers and no earlier print does, and the sum over
    these steps; a print that gives no such sum has its first step after its last."""

    first: np.ndarray
    sums: np.ndarray


def windows_of_means(
    steps: np.ndarray, runs: np.ndarray, means: np.ndarray, window: int
) -> RollingWindows:
    """Return the windows of prints, given their steps, runs and means over `window` steps.

    With a window of 4, means of 2, 2 and 3 s at steps 2, 4 and 6 are sums of 4 s up to step 2,
    8 s up to step 4 and 4 + 12 = 16 s up to step 6: steps 5 and 6 took 8 s.
    """
    first = steps + 1
    sums = np.full(len(steps), np.nan)
    chain_end = max(LEAST_CHAIN, CHAINED_WINDOWS * window)
    totals: dict[int, float] = {}
    run, last = None, 0
    for index, (step, run_of_step) in enumerate(
        zip(steps.tolist(), runs.tolist(), strict=True)
    ):
        if run_of_step != run:
            run, last, totals = run_of_step, 0, {0: 0.0}
        covered = min(step, window)
        begin = step - covered
        total = covered * float(means[index])
        if begin >= last:
            # The print covers none of the steps before: where some are not covered, the sums
            # before say nothing of those behind.
            first[index], sums[index] = begin + 1, total
            totals = totals if begin == last else {}
            total += totals.get(begin, 0.0)
        elif begin in totals and step <= chain_end:
            total += totals[begin]
            first[index], sums[index] = last + 1, total - totals[last]
        else:
            continue
        totals[step], last = total, step
    return RollingWindows(first, sums)
