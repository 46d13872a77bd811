"""Which steps a print tells of and none before it does."""

from dataclasses import dataclass

import numpy as np

from perfkit.importers.log import WINDOW, Meaning, Running, Step

SAME = ("line", "epoch", "rate", "loss", "accuracy", "at")
RANKS = 128
"""How many ranks that don't say who they are can be told apart."""


@dataclass
class _Last:
    """The last print of a rank: where it was, and its running sums since step `since`."""

    run: int = 0
    epoch: int = -1
    said: int = 0
    step: int | None = None
    since: int = 0
    gap: int = 0
    seconds: float = 0.0
    reader: float = 0.0
    seconds_per_sample: float = 0.0


class Steps:
    """Turns the prints of a file, in its order and in blocks, into windows of steps."""

    def __init__(self, meaning: Meaning) -> None:
        self._meaning = meaning
        self._last: dict[int, _Last] = {}
        self._heads: list[int] = []

    def windows(self, prints: np.ndarray) -> np.ndarray:
        """Rows of WINDOW for rows of RAW, in their order; none for a print whose mean is of no
        known steps."""
        windows = np.zeros(len(prints), WINDOW)
        windows["rank"] = ranks = self._ranks(prints)
        for rank in np.unique(ranks).tolist():
            last = self._last.setdefault(rank, _Last())
            if (of_rank := ranks == rank).all():
                self._fill(windows, prints, last)
            else:
                rows = windows[of_rank]
                self._fill(rows, prints[of_rank], last)
                windows[of_rank] = rows
        known = windows["first"] <= windows["last"]
        return windows if known.all() else windows[known]

    def _ranks(self, prints: np.ndarray) -> np.ndarray:
        """Who printed. Ranks that don't say are told apart where a step is printed again at
        once: each print goes to the rank that was the least behind it."""
        ranks = prints["rank"].copy()
        if self._meaning.repeats or not (unsaid := ranks < 0).any():
            return ranks
        places = (prints["epoch"][unsaid].astype("i8") << 30) + prints["step"][unsaid]
        again = np.diff(places, prepend=self._heads[-1:] or -1) == 0
        if len(self._heads) <= 1 and not again.any():
            self._heads = [int(places[-1])]
            return ranks
        ranks[unsaid] = [-1 - self._behind(place) for place in places.tolist()]
        return ranks

    def _behind(self, place: int) -> int:
        heads = self._heads
        behind = [(head, -rank) for rank, head in enumerate(heads) if head < place]
        if behind:
            rank = -max(behind)[1]
        elif place in heads and len(heads) < RANKS:
            rank = len(heads)
            heads.append(place)
        else:
            rank = 0
            heads[:] = [-1] * max(len(heads), 1)
        heads[rank] = place
        return rank

    def _fill(self, windows: np.ndarray, prints: np.ndarray, last: _Last) -> None:
        """Fills the windows of the prints of one rank, which follow on `last`."""
        covers = self._meaning.covers
        for name in SAME:
            windows[name] = prints[name]
        epoch, said = prints["epoch"], prints["step"] + 1 - self._meaning.counts_from
        new_epoch = epoch != _shifted(epoch, last.epoch)
        change = np.diff(said, prepend=last.said)
        back = epoch < _shifted(epoch, last.epoch)
        back |= ~new_epoch & (change < -1 if self._meaning.repeats else change <= 0)
        step = _counted(change, back, last) if self._meaning.repeats else said
        opens = back | new_epoch
        windows["run"] = last.run + np.cumsum(back)
        windows["last"] = step
        windows["own_rate"] = prints["rate"]
        gap = np.where(opens, 0, step - _shifted(step, last.step or 0))
        if isinstance(covers, Step):
            windows["first"] = step
        elif isinstance(covers, Running):
            self._fill_running(windows, prints, opens, covers, last)
        else:
            reach = _reach(gap, last.gap)
            reach = np.where(prints["since"] > 0, np.minimum(reach, prints["since"]), reach)
            first = np.maximum(step - np.minimum(reach, step) + 1, 1)
            windows["first"] = np.where(
                step >= covers.since, np.maximum(first, covers.since), first
            )
        if not isinstance(covers, Running):
            steps = step - windows["first"] + 1
            if self._meaning.mean_of == "rates":
                windows["own_rate"][steps > 1] = np.nan
            windows["seconds"] = prints["seconds"] * steps
            windows["reader"] = prints["reader"] * steps
        last.run, last.epoch = int(windows["run"][-1]), int(epoch[-1])
        last.said, last.step = int(said[-1]), int(step[-1])
        last.gap = int(next((seen for seen in gap[::-1] if seen), last.gap))

    def _fill_running(
        self,
        windows: np.ndarray,
        prints: np.ndarray,
        opens: np.ndarray,
        covers: Running,
        last: _Last,
    ) -> None:
        """Windows out of running means: the difference of the sums behind two prints."""
        step = windows["last"]
        since = np.where(step >= covers.since, covers.since, 1)
        anew = opens | (since != _shifted(since, last.since))
        earlier = np.where(anew, since - 1, _shifted(step, last.step or 0))
        steps = step - since + 1
        windows["first"] = earlier + 1
        for name in ("seconds", "reader"):
            told = prints[name] * steps
            windows[name] = told - np.where(anew, 0.0, _shifted(told, getattr(last, name)))
            setattr(last, name, float(told[-1]))
        with np.errstate(divide="ignore", invalid="ignore"):
            told = steps / prints["rate"]
            taken = told - np.where(anew, 0.0, _shifted(told, last.seconds_per_sample))
            windows["own_rate"] = (step - earlier) / taken
        last.seconds_per_sample, last.since = float(told[-1]), int(since[-1])
        if not covers.anew:
            later = (last.epoch >= 0) | (prints["epoch"] != prints["epoch"][0])
            mixed = later & (step < covers.since)
            windows["first"][mixed] = step[mixed] + 1


def _reach(gap: np.ndarray, usual: int) -> np.ndarray:
    """How many steps a mean since the last print is of: as many as to the print before it, but
    not more than to the one after it, since a print between may be lost."""
    ahead = np.append(gap[1:], 0)
    reach = np.where(gap == 0, ahead, np.where(ahead == 0, gap, np.minimum(gap, ahead)))
    never = np.iinfo("i8").max
    return np.where(reach == 0, usual or never, reach)


def _counted(change: np.ndarray, back: np.ndarray, last: _Last) -> np.ndarray:
    """Steps counted on where the same is printed again, from what is printed where a run
    begins."""
    steps = np.empty_like(change)
    said, step = last.said, last.step
    for index, (by, restarts) in enumerate(zip(change.tolist(), back.tolist(), strict=True)):
        said += by
        step = max(said, 1) if restarts or step is None else step + max(by, 1)
        steps[index] = step
    return steps


def _shifted(values: np.ndarray, first: float) -> np.ndarray:
    return np.concatenate([[first], values[:-1]]).astype(values.dtype)
