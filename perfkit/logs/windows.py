"""Which steps a print covers that no print before it does."""

import numpy as np
import pandas as pd

from perfkit.logs.formats import WHOLE, Prints, Semantics
from perfkit.logs.log import WINDOW

RANKS = 128
"""How many unnamed ranks can be told apart."""
NOT_PRINTED = np.nan
FLOATS = ("seconds", "window_seconds", "reader", "rate", "samples", "loss", "accuracy", "at")


def prints_of(count: int, **columns: np.ndarray | list[float] | float) -> Prints:
    """`count` prints with these columns; the others were not printed."""
    known = {"line": 1, **WHOLE, "since": 0} | dict.fromkeys(FLOATS, NOT_PRINTED) | columns
    del known["since_index"], known["begin"]
    return {
        name: np.broadcast_to(
            np.asarray(value, float if name in FLOATS else "int64"), (count,)
        ).copy()
        for name, value in known.items()
    }


def shifted(values: np.ndarray, first: float = NOT_PRINTED) -> np.ndarray:
    """Each value's predecessor, that of the first being `first`."""
    return np.concatenate([[first], values])[:-1]


def by_value(values: np.ndarray) -> list[np.ndarray]:
    """The places of each value, the values ascending, the places in their order."""
    order = np.argsort(values, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(values[order])) + 1) if len(order) else []


def windows_of(prints: Prints, semantics: Semantics) -> pd.DataFrame:
    """The windows of prints, in their order; none for a print whose mean covers unknown
    steps."""
    if not semantics.repeats and (prints["rank"] < 0).any():
        prints = prints | {"rank": _distinguish_ranks(prints)}
    places = by_value(prints["rank"])
    parts = [_of_rank({k: v[at] for k, v in prints.items()}, semantics) for at in places]
    if not places:
        return pd.DataFrame({name: np.empty(0, kind) for name, kind in WINDOW.items()})
    order = np.argsort(np.concatenate(places))
    columns = {
        name: np.concatenate([part[name] for part in parts])[order].astype(kind)
        for name, kind in WINDOW.items()
    }
    known = columns["first"] <= columns["last"]
    return pd.DataFrame({name: values[known] for name, values in columns.items()})


def _distinguish_ranks(prints: Prints) -> np.ndarray:
    """Ranks of the prints. Unnamed ranks are told apart where a step is printed again at once:
    each print goes to the rank that was the least behind it."""
    ranks, unnamed = prints["rank"].copy(), prints["rank"] < 0
    places = prints["epoch"][unnamed] * 2**40 + prints["step"][unnamed]
    if not (np.diff(places) == 0).any():
        return ranks
    heads: list[int] = []
    found = []
    for place in places.tolist():
        behind = [(head, -rank) for rank, head in enumerate(heads) if head < place]
        if behind:
            rank = -max(behind)[1]
        elif (not heads or place in heads) and len(heads) < RANKS:
            rank = len(heads)
            heads.append(place)
        else:
            rank, heads = 0, [-1] * len(heads)
        heads[rank] = place
        found.append(-1 - rank)
    ranks[unnamed] = found
    return ranks


def _of_rank(prints: Prints, semantics: Semantics) -> Prints:
    """The windows of the prints of one rank."""
    epoch, step = prints["epoch"], prints["step"] + 1 - semantics.counts_from
    before = shifted(epoch, -1)
    change = np.diff(step, prepend=step[0] - 1)
    backwards = change < -1 if semantics.repeats else change <= 0
    restart = (epoch < before) | ((epoch == before) & backwards)
    run = np.cumsum(restart)
    if semantics.repeats:
        # Counted on where a step is printed again, from the step with which a run begins.
        begins = np.diff(run, prepend=-1) > 0
        counted = np.where(begins, step, change).clip(min=1)
        sums = np.cumsum(counted)
        step = sums - (sums - counted)[begins][run]
    opens = restart | (epoch != before)
    opens[0] = True
    seconds = prints["seconds"]
    windows = prints | {"run": run, "last": step, "own_rate": prints["rate"]}
    if semantics.covers == "running":
        return windows | {"printed_seconds": seconds} | _running(windows, opens, semantics)
    if semantics.covers == "step":
        first = step
    else:
        gap = np.where(opens, 0, np.diff(step, prepend=step[0]))
        reach = np.where(np.isnan(prints["window_seconds"]), _reach(gap), _reach_of_time(gap))
        since = prints["since"]
        known = np.where(reach > 0, np.minimum(reach, since), since)
        reach = np.where(since > 0, known, reach)
        first = (step - np.minimum(reach, step) + 1).clip(min=1)
        first = np.where(step >= semantics.since, first.clip(min=semantics.since), first)
    steps = step - first + 1
    window_seconds = prints["window_seconds"]
    windows["printed_seconds"] = np.where(np.isnan(seconds), window_seconds / steps, seconds)
    windows["seconds"] = np.where(np.isnan(window_seconds), seconds * steps, window_seconds)
    if semantics.mean_of == "rates":
        windows["own_rate"] = np.where(steps == 1, prints["rate"], NOT_PRINTED)
    return windows | {"first": first, "reader": prints["reader"] * steps}


def _running(windows: Prints, opens: np.ndarray, semantics: Semantics) -> Prints:
    """Windows out of running means: the differences of the sums behind two prints."""
    step, epoch = windows["last"], windows["epoch"]
    since = np.where(step >= semantics.since, semantics.since, 1)
    anew = opens | (since != shifted(since))
    earlier = np.where(anew, since - 1, np.roll(step, 1))
    steps = step - since + 1

    def of_window(sums: np.ndarray) -> np.ndarray:
        return sums - np.where(anew, 0.0, np.roll(sums, 1))

    first = earlier + 1
    own_rate = (step - earlier) / of_window(steps / windows["rate"])
    if not semantics.restarts:
        first = np.where((epoch != epoch[0]) & (step < semantics.since), step + 1, first)
    sums = {name: of_window(windows[name] * steps) for name in ("seconds", "reader")}
    return {"first": first, "own_rate": own_rate, **sums}


def _reach_of_time(gap: np.ndarray) -> np.ndarray:
    """How many steps a time since the last print covers: all since the print before it, except
    after a print that was lost; none for a single print, whose begin is unknown."""
    positive = gap[gap > 0]
    usual = np.median(positive) if len(positive) else 0.0
    reach = np.where(gap > 0, gap, np.append(gap[1:], 0))
    return np.where(reach <= 1.5 * usual, reach, usual).astype("int64")


def _reach(gap: np.ndarray) -> np.ndarray:
    """How many steps a mean since the last print covers: as many as to the print before it, but
    not more than to the one after it, since a print between may be lost."""
    ahead = np.append(gap[1:], 0)
    reach = np.where(gap == 0, ahead, np.where(ahead == 0, gap, np.minimum(gap, ahead)))
    return np.where(reach == 0, np.iinfo("int64").max, reach)
