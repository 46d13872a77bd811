"""The steps of a log: the windows of its slowest rank, and the periods they belong to."""

import numpy as np

from perfkit.audit.figure import LEAST_RATE, MOST_RATE, Period
from perfkit.audit.log import Columns, Log, known_first, some_of
from perfkit.core.config import Protocol
from perfkit.core.steady import steadiness

PROTOCOL = Protocol.named("published")
WARMUP, END = PROTOCOL.warmup_steps, PROTOCOL.steps
"""The protocol measures steps WARMUP + 1 to END."""
SHORT_EPOCH = 2 * WARMUP
"""Shorter epochs have too few steps behind the warm-up: the protocol spans them."""


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
    offset          what added to a step counts it from the protocol's first: 0, or less if the
                    run was resumed, or more if epochs are short
    in_protocol     whether the epoch is the first with most of the protocol's steps
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
    rows["offset"] = -_steps_before_run(rows, log.number("resumed_at"))
    in_short_epochs = _in_short_epochs(rows)
    if in_short_epochs.any() and log.semantics.step != "epoch":
        rows["offset"] = rows["offset"] + _steps_before_epoch(rows)
        rows["in_first_epoch"] |= in_short_epochs
        rows["in_protocol"] = in_short_epochs
    else:
        rows["in_protocol"] = _in_protocol(rows)
    rows["step_seconds"] = _step_seconds(rows)
    rows["settled"] = _settled(rows["step_seconds"], ~inside(rows, "warm"))
    return rows


def _changes(values: np.ndarray) -> np.ndarray:
    """Mark the first value and each that differs from its predecessor: True, False, True for
    4, 4, 5."""
    return np.append(True, np.diff(values) != 0)


def _in_protocol(rows: Columns) -> np.ndarray:
    """Mark the windows of the first epoch that has most of the protocol's steps. If epoch 0 has
    40 of them and epochs 1 and 2 all 100, these are the windows of epoch 1."""
    is_inside = (rows["first"] + rows["offset"] > WARMUP) & (
        rows["last"] + rows["offset"] <= END
    )
    steps_of_epoch = np.bincount(rows["epoch_index"], rows["steps"] * is_inside)
    steps_of_epoch = steps_of_epoch.clip(max=END - WARMUP)
    if steps_of_epoch.max() == 0:
        return np.full(len(is_inside), False)
    return rows["epoch_index"] == steps_of_epoch.argmax()


def _steps_before_run(rows: Columns, resumed_at: int) -> np.ndarray:
    """Return the steps before each window's run: those of the checkpoint with which the run
    went on, if its first step follows them; else 0."""
    _runs, begins, run_index = np.unique(rows["run"], return_index=True, return_inverse=True)
    distance = rows["first"][begins] - resumed_at
    goes_on = (distance > 0) & (distance <= END)
    return np.where(goes_on, resumed_at, 0)[run_index]


def _in_short_epochs(rows: Columns) -> np.ndarray:
    """Mark the windows of the first run whose epochs are all short, but together have all of
    the protocol's steps."""
    last_of_epoch = np.zeros(rows["epoch_index"].max() + 1, "int64")
    np.maximum.at(last_of_epoch, rows["epoch_index"], rows["last"])
    for run in np.unique(rows["run"]):
        is_of_run = rows["run"] == run
        lengths = last_of_epoch[np.unique(rows["epoch_index"][is_of_run])]
        if len(lengths) > 1 and lengths.max() < SHORT_EPOCH and lengths.sum() >= END:
            return is_of_run
    return np.full(len(rows["run"]), False)


def _steps_before_epoch(rows: Columns) -> np.ndarray:
    """Return the steps of the epochs before each window's, as far as prints cover them, in the
    same run: 0, 60 and 60 for windows whose epochs 0, 1 and 1 have 60 steps."""
    epochs, begins = np.unique(rows["epoch_index"], return_index=True)
    lengths = np.zeros(len(epochs), "int64")
    np.maximum.at(lengths, rows["epoch_index"], rows["last"])
    before = np.cumsum(lengths) - lengths
    run_of_epoch = rows["run"][begins]
    begins_run = _changes(run_of_epoch)
    before_run = before[begins_run][np.cumsum(begins_run) - 1]
    return (before - before_run)[rows["epoch_index"]]


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
    return rows["clock_seconds"] / rows["steps"]


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
    is_after_warmup = rows[first] + rows["offset"] > WARMUP
    match period:
        case "all":
            return np.full(len(is_after_warmup), True)
        case "warm":
            return ~rows["in_first_epoch"] | is_after_warmup
        case "protocol":
            is_before_end = rows["last"] + rows["offset"] <= END
            return rows["in_protocol"] & is_after_warmup & is_before_end
    return rows["settled"]
