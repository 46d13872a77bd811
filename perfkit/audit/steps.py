"""The steps of a log: the windows of its slowest rank, and the periods they belong to."""

import numpy as np

from perfkit.audit.figure import LEAST_RATE, MOST_RATE, Period
from perfkit.audit.log import Columns, Log, known_first, some_of
from perfkit.audit.timed import half_unit
from perfkit.measuring.protocol import Protocol
from perfkit.measuring.steady import steadiness

PROTOCOL = Protocol.named("published")
WARMUP, END = PROTOCOL.warmup_steps, PROTOCOL.steps
"""The protocol measures steps WARMUP + 1 to END."""
SLOW_FIRST = 1.3
"""First steps take more than this many times the median of the others."""
FAST_FIRST = 0.5
"""Steps right behind slow first ones that take less than this many times the median count among
them: where steps are dispatched asynchronously, the first times are not those of their
steps."""
LEAST_OTHERS = 3
"""Windows behind the first ones, at least."""


def rank_of(windows: Columns) -> int:
    """Return the rank whose prints are used: the slowest of the ranks whose prints cover the
    most steps, because ranks wait for each other in each step; of equals the first."""
    ranks, rank_index = np.unique(windows["rank"], return_inverse=True)
    if len(ranks) == 1:
        return int(ranks[0])
    steps = windows["last"] - windows["first"] + 1
    seconds = known_first(windows["seconds"], steps / windows["own_rate"])
    seconds = np.where(np.isfinite(seconds), seconds, 0.0)
    steps_of_rank = np.bincount(rank_index, steps)
    seconds_of_rank = np.bincount(rank_index, seconds)
    # The last key counts first.
    order = np.lexsort((-np.abs(ranks), seconds_of_rank, steps_of_rank))
    return int(ranks[order[-1]])


def steps_of(log: Log) -> Columns:
    """Return the windows of the slowest rank with further columns:

    steps           number of steps
    goes_on         whether the previous window is in the same epoch
    since           the first step after that window; 1 at the beginning of an epoch
    clock_seconds   seconds between both prints, by the prints' clock
    step_seconds    time of a step by printed times, else by rates (up to a factor), else by the
                    clock
    epoch_index     the epoch, counted over all runs from 0
    in_first_epoch  whether the epoch is the first of its run
    in_protocol     whether the epoch is the first with most of the protocol's steps
    warm_after      the last step of the warm-up in the window's epoch: the first WARMUP steps
                    or, if there are no others, the first that are slow
    settled         whether the steady state has begun

    Windows of steps 1–10 and 11–30 of epoch 0, and 1–10 of epoch 1, have 10, 20 and 10 steps;
    only the second goes on, since step 11; epoch_index is 0, 0 and 1.
    """
    windows = {name: log.windows[name].to_numpy() for name in log.windows}
    waits = windows["reader"]
    if log.semantics.reader == "apart" and not np.isnan(waits).all():
        windows["seconds"] = windows["seconds"] + waits
    rows = some_of(windows, windows["rank"] == rank_of(windows))
    run, epoch, last = rows["run"], rows["epoch"], rows["last"]
    begins_run = _changes(run)
    begins_epoch = begins_run | _changes(epoch)
    goes_on = ~begins_epoch & (np.diff(last, prepend=0) > 0)
    first_epochs = epoch[begins_run]
    run_index = np.cumsum(begins_run) - 1
    rows = rows | {
        "steps": last - rows["first"] + 1,
        "goes_on": goes_on,
        "since": np.where(goes_on, np.roll(last, 1), 0) + 1,
        "clock_seconds": np.diff(rows["at"], prepend=np.nan),
        "epoch_index": np.cumsum(begins_epoch) - 1,
        "in_first_epoch": epoch == first_epochs[run_index],
    }
    rows["in_protocol"] = _in_protocol(rows)
    rows["step_seconds"] = _step_seconds(rows)
    rows["warm_after"] = np.where(rows["in_first_epoch"], WARMUP, 0)
    if not inside(rows, "warm").any():
        is_first = slow_first(rows)
        rows["warm_after"][:] = rows["last"][is_first].max(initial=0)
    rows["settled"] = _settled(rows["step_seconds"], ~inside(rows, "warm"))
    return rows


def _changes(values: np.ndarray) -> np.ndarray:
    """Mark the first value and each that differs from its predecessor: True, False, True for
    4, 4, 5."""
    return np.append(True, np.diff(values) != 0)


def _in_protocol(rows: Columns) -> np.ndarray:
    """Mark the windows of the first epoch that has most of the protocol's steps. If epoch 0 has
    40 of them and epochs 1 and 2 all 100, these are the windows of epoch 1."""
    is_inside = (rows["first"] > WARMUP) & (rows["last"] <= END)
    steps_of_epoch = np.bincount(rows["epoch_index"], rows["steps"] * is_inside)
    steps_of_epoch = steps_of_epoch.clip(max=END - WARMUP)
    if steps_of_epoch.max() == 0:
        return np.full(len(is_inside), False)
    return rows["epoch_index"] == steps_of_epoch.argmax()


def _step_seconds(rows: Columns) -> np.ndarray:
    """Return the time of a step in each window by the first source that the log has: printed
    times, rates (up to a factor), or the clock."""
    printed = rows["seconds"] / rows["steps"]
    if not np.isnan(printed).all():
        return printed
    rates = known_first(rows["own_rate"], rows["rate"])
    by_rates = 1 / np.where(rates > 0, rates, np.nan)
    if not np.isnan(by_rates).all():
        return by_rates
    return rows["clock_seconds"] / (rows["last"] - rows["since"] + 1)


def slow_first(rows: Columns) -> np.ndarray:
    """Mark the slow windows at the beginning, with those right behind them that are too fast;
    none if too few windows follow."""
    step_seconds, steps = rows["step_seconds"], rows["steps"]
    none = np.full(len(steps), False)
    if len(steps) <= LEAST_OTHERS:
        return none
    level = np.median(step_seconds[1:])
    excess = (step_seconds - level) * steps
    is_slow = (step_seconds > SLOW_FIRST * level) & (excess > 4 * half_unit(rows["at"]))
    is_first = np.logical_and.accumulate(is_slow | (step_seconds < FAST_FIRST * level))
    others = np.count_nonzero(~is_first)
    if not is_slow[0] or others < max(LEAST_OTHERS, is_first.sum()):
        return none
    seconds_of_first = (step_seconds * steps)[is_first].sum() / steps[is_first].sum()
    return is_first if seconds_of_first > SLOW_FIRST * level else none


def _settled(step_seconds: np.ndarray, is_warming: np.ndarray) -> np.ndarray:
    """Mark the windows since the beginning of the steady state; none without one. Windows with
    an implausible time don't count. A slow one of the warm-up is a compilation: the steady
    state begins behind it."""
    plausible = np.flatnonzero((step_seconds > 1 / MOST_RATE) & (step_seconds < 1 / LEAST_RATE))
    begin = len(step_seconds)
    if len(plausible):
        state = steadiness(step_seconds[plausible])
        if state and state.settled:
            begin = plausible[state.begin]
            slow = plausible[state.spikes]
            slow = slow[is_warming[slow]]
            if len(slow):
                begin = slow[-1] + 1
    return np.arange(len(step_seconds)) >= begin


def inside(rows: Columns, period: Period, first: str = "first") -> np.ndarray:
    """Return the mask of windows wholly in the period; column `first` has their first steps."""
    match period:
        case "all":
            return np.full(len(rows["last"]), True)
        case "warm":
            return rows[first] > rows["warm_after"]
        case "protocol":
            return rows["in_protocol"] & (rows[first] > WARMUP) & (rows["last"] <= END)
    return rows["settled"]
