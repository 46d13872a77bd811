"""Which steps a print tells of and none before it does."""

import numpy as np
import pandas as pd

from perfkit.logs.formats import Semantics
from perfkit.logs.log import WINDOW

RANKS = 128
"""How many ranks that don't say who they are can be told apart."""


def windows_of(prints: pd.DataFrame, semantics: Semantics) -> pd.DataFrame:
    """The windows of prints, in their order; none for a print whose mean is of no known
    steps."""
    if prints.empty:
        return pd.DataFrame({name: pd.Series(dtype=kind) for name, kind in WINDOW.items()})
    prints = prints.reset_index(drop=True)
    if not semantics.repeats and (prints["rank"] < 0).any():
        prints["rank"] = _told_apart(prints)
    parts = [_of_rank(some, semantics) for _rank, some in prints.groupby("rank", sort=False)]
    found = pd.concat(parts).sort_index().astype(WINDOW)[[*WINDOW]]
    return found[found["first"] <= found["last"]].reset_index(drop=True)


def _told_apart(prints: pd.DataFrame) -> pd.Series:
    """Who printed. Ranks that don't say are told apart where a step is printed again at once:
    each print goes to the rank that was the least behind it."""
    ranks, unsaid = prints["rank"].copy(), prints["rank"] < 0
    places = prints["epoch"][unsaid] * 2**40 + prints["step"][unsaid]
    if not (places.diff() == 0).any():
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
    ranks[unsaid] = found
    return ranks


def _of_rank(prints: pd.DataFrame, semantics: Semantics) -> pd.DataFrame:
    """The windows of the prints of one rank."""
    epoch, printed = prints["epoch"], prints["step"] + 1 - semantics.counts_from
    new_epoch = epoch != epoch.shift(fill_value=-1)
    change = printed.diff().fillna(1).astype("int64")
    backwards = change < -1 if semantics.repeats else change <= 0
    restart = (epoch < epoch.shift(fill_value=-1)) | (~new_epoch & backwards)
    run = restart.cumsum()
    step = printed
    if semantics.repeats:
        # Counted on where the same is printed again, from what is printed where a run begins.
        begins = run != run.shift(fill_value=-1)
        step = change.clip(lower=1).where(~begins, printed.clip(lower=1)).groupby(run).cumsum()
    opens = restart | new_epoch
    opens.iloc[0] = True
    windows = prints.assign(run=run, last=step, own_rate=prints["rate"])
    windows["printed_seconds"] = prints["seconds"]
    if semantics.covers == "running":
        return _running(windows, step, opens, semantics)
    if semantics.covers == "step":
        windows["first"] = step
    else:
        gap = step.diff().fillna(0).astype("int64").where(~opens, 0)
        reach = np.where(prints["window_seconds"].isna(), _reach(gap), _reach_of_time(gap))
        since = prints["since"]
        known = np.where(reach > 0, np.minimum(reach, since), since)
        reach = np.where(since > 0, known, reach)
        first = (step - np.minimum(reach, step) + 1).clip(lower=1)
        windows["first"] = first.clip(lower=semantics.since).where(
            step >= semantics.since, first
        )
    steps = windows["last"] - windows["first"] + 1
    if semantics.mean_of == "rates":
        windows["own_rate"] = windows["own_rate"].where(steps == 1)
    windows["seconds"] = prints["window_seconds"].fillna(prints["seconds"] * steps)
    windows["printed_seconds"] = prints["seconds"].fillna(prints["window_seconds"] / steps)
    windows["reader"] = prints["reader"] * steps
    return windows


def _running(
    windows: pd.DataFrame, step: pd.Series, opens: pd.Series, semantics: Semantics
) -> pd.DataFrame:
    """Windows out of running means: the difference of the sums behind two prints."""
    since = pd.Series(np.where(step >= semantics.since, semantics.since, 1), step.index)
    anew = opens | (since != since.shift())
    earlier = (since - 1).where(anew, step.shift(fill_value=0))
    steps = step - since + 1

    def of_window(sums: pd.Series) -> pd.Series:
        return sums - sums.shift().where(~anew, 0.0)

    windows["first"] = earlier + 1
    for name in ("seconds", "reader"):
        windows[name] = of_window(windows[name] * steps)
    with np.errstate(divide="ignore", invalid="ignore"):
        windows["own_rate"] = (step - earlier) / of_window(steps / windows["rate"])
    if not semantics.restarts:
        later = windows["epoch"] != windows["epoch"].iloc[0]
        mixed = later & (step < semantics.since)
        windows.loc[mixed, "first"] = step[mixed] + 1
    return windows


def _reach_of_time(gap: pd.Series) -> np.ndarray:
    """How many steps a time since the last print is of: all since the print before it, but for
    a print that was lost; none of an only print, whose begin is unknown."""
    usual = gap[gap > 0].median()
    reach = gap.where(gap > 0, gap.shift(-1, fill_value=0))
    return reach.where(reach <= 1.5 * usual, usual).fillna(0).astype("int64").to_numpy()


def _reach(gap: pd.Series) -> np.ndarray:
    """How many steps a mean since the last print is of: as many as to the print before it, but
    not more than to the one after it, since a print between may be lost."""
    ahead = gap.shift(-1, fill_value=0)
    reach = np.where(gap == 0, ahead, np.where(ahead == 0, gap, np.minimum(gap, ahead)))
    return np.where(reach == 0, np.iinfo("int64").max, reach)
