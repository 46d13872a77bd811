"""What limits the throughput, given the speeds with an input, without it, and of it alone."""

from collections.abc import Sequence
from itertools import cycle, islice

from perfkit.analysis.diagnosis.stored import Limit
from perfkit.core.statistics import Estimate, median

SLIGHT = 0.05
"""Negligible cost of the input, as a share of the throughput without it; and the tolerance
within which training with an input is as fast as that input alone."""
SAME_TIME = 0.1
"""Difference within which a wait for data is as long as the input alone, as a share of it."""
LEVEL = 0.95
"""Level of the interval that a verdict needs."""
DEPTHS = (1, 2, 4, 8, 16, 32, 64)
WAITING = 0.01
"""Largest share of the time spent waiting with a sufficient depth."""
ROUNDS = 8
"""Times that every queue is filled by a simulated pipeline, at least."""


def limit_of(ratio: Estimate, synthetic: float, alone: float) -> Limit:
    """Return what limits training, where `ratio` is the throughput with the input over the
    `synthetic` one.

    If the whole interval is below 1 - SLIGHT, it is the input if training is as fast as the
    input `alone`; otherwise both, which share cores or hardly overlap. If the whole interval is
    above, it is the training. Undecided if neither, or if the repeats are too few for LEVEL.
    """
    negligible = 1 - SLIGHT
    if ratio.level < LEVEL or ratio.low < negligible <= ratio.high:
        return "undecided"
    if ratio.low >= negligible:
        return "training-bound"
    with_input = ratio.value * synthetic
    return "input-bound" if with_input >= negligible * alone else "mixed"


def limit_of_script(
    wait_shares: Sequence[float],
    input_seconds: float,
    step_seconds: float,
    *,
    is_accelerated: bool,
) -> Limit:
    """Return what limits a script whose repeats wait for data in `wait_shares` of their window.

    It is the training if it hardly waits in any repeat; the input if the input alone takes as
    long for the batches of a step, `input_seconds`, as the training for the step. Otherwise
    both; undecided if only some repeats wait, or if another device than the CPU may compute
    while the host waits.
    """
    if max(wait_shares) <= SLIGHT:
        return "training-bound"
    if min(wait_shares) <= SLIGHT:
        return "undecided"
    if input_seconds >= (1 - SLIGHT) * step_seconds:
        return "input-bound"
    return "undecided" if is_accelerated else "mixed"


def loads_in_turn(
    wait_shares: Sequence[float], input_seconds: float, step_seconds: float
) -> bool:
    """Return whether a script waits in a step about as long as its input alone takes for the
    step's batches, `input_seconds`: then no batch is loaded while the training computes."""
    waited = median(wait_shares) * step_seconds
    return abs(waited - input_seconds) <= SAME_TIME * input_seconds


def cost_in_turn(synthetic: float, alone: float) -> float:
    """Return the share of its throughput that training would lose if it waited for the
    preparation of each batch."""
    return synthetic / (synthetic + alone)


def needed_depth(intervals: Sequence[float], step_seconds: float) -> int | None:
    """Return the smallest of DEPTHS with which training waits for at most WAITING of its time,
    None if there is none. A step takes `step_seconds`; batches are prepared one after another
    in these `intervals`, which recur until every queue has been filled several times."""
    for depth in DEPTHS:
        if waiting_share(intervals, step_seconds, depth) <= WAITING:
            return depth
    return None


def waiting_share(intervals: Sequence[float], step_seconds: float, depth: int) -> float:
    """Return the share of its time that training waits for batches of a queue of `depth`."""
    ready = waited = now = 0.0
    taken = [0.0] * depth
    batches = max(len(intervals), ROUNDS * depth)
    for number, interval in enumerate(islice(cycle(intervals), batches)):
        place = number % depth
        # A batch is started when there is room for it.
        ready = max(ready, taken[place]) + interval
        queue_was_full = number >= depth
        if queue_was_full:
            waited += max(0.0, ready - now)
        now = max(now, ready)
        taken[place] = now
        now += step_seconds
    return waited / now
