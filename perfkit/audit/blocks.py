"""The windows of a log again, block by block, each beside the one before it."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from perfkit.audit.stored import Period
from perfkit.config import Protocol
from perfkit.importers.log import WINDOW, Log

PROTOCOL = Protocol.named("published")
WARMUP, END = PROTOCOL.warmup_steps, PROTOCOL.steps
"""The protocol measures steps WARMUP + 1 to END."""
BEFORE = np.dtype([(name, WINDOW[name]) for name in ("run", "epoch", "last", "at")])


@dataclass(frozen=True)
class Block:
    """Rows of WINDOW of one rank; `before` has of the row before each what BEFORE names (the
    very first: its own)."""

    rows: np.ndarray
    before: np.ndarray
    begins: np.ndarray
    """Whether a row is of the epoch with which its training begins."""

    @cached_property
    def goes_on(self) -> np.ndarray:
        """Whether a row goes on from the one before it, in the same epoch."""
        return self.same_epoch & (self.before["last"] < self.rows["last"])

    @cached_property
    def same_epoch(self) -> np.ndarray:
        rows, before = self.rows, self.before
        return (rows["run"] == before["run"]) & (rows["epoch"] == before["epoch"])

    @cached_property
    def steps(self) -> np.ndarray:
        return self.rows["last"] - self.rows["first"] + 1


def rank_of(log: Log) -> int:
    """Whose prints are taken: of the ranks that tell of the most steps the slowest, for the
    ranks of a step wait for each other; the first of such as took as long."""
    steps: Counter[int] = Counter()
    seconds: Counter[int] = Counter()
    for rows in log.windows:
        ranks, of = np.unique(rows["rank"], return_inverse=True)
        count = rows["last"] - rows["first"] + 1
        timed = np.isfinite(rows["seconds"])
        with np.errstate(divide="ignore"):
            took = np.where(timed, rows["seconds"], count / rows["own_rate"])
        steps.update(dict(zip(ranks.tolist(), np.bincount(of, count).tolist(), strict=True)))
        took = np.bincount(of, np.nan_to_num(took, posinf=0.0)).tolist()
        seconds.update(dict(zip(ranks.tolist(), took, strict=True)))
    most = max(steps.values(), default=0)
    longest = [rank for rank in steps if steps[rank] == most]
    return max(longest, key=lambda rank: (seconds[rank], -abs(rank)), default=-1)


def blocks(log: Log, rank: int) -> Iterator[Block]:
    last, epoch = None, 0
    for every in log.windows:
        of_rank = every["rank"] == rank
        rows = every if of_rank.all() else every[of_rank]
        if not len(rows):
            continue
        before = np.empty(len(rows), BEFORE)
        for name in BEFORE.names or ():
            before[name][0] = (rows if last is None else last)[name][0]
            before[name][1:] = rows[name][:-1]
        begun = before["run"] != rows["run"]
        if last is None:
            begun[0], epoch = True, int(rows["epoch"][0])
        since = np.maximum.accumulate(np.where(begun, np.arange(len(rows)), -1))
        first_epoch = np.where(since < 0, epoch, rows["epoch"][since])
        yield Block(rows, before, rows["epoch"] == first_epoch)
        last, epoch = rows[-1:], int(first_epoch[-1])


def protocol_epoch(log: Log, rank: int) -> tuple[int, int] | None:
    """Run and epoch of the first epoch with most of the protocol's steps; None if no print
    tells of any."""
    best: tuple[int, tuple[int, int]] | None = None
    going, key = 0, (0, 0)
    for block in blocks(log, rank):
        inside = (block.rows["first"] > WARMUP) & (block.rows["last"] <= END)
        opens = np.flatnonzero(~block.same_epoch)
        starts = opens if len(opens) and opens[0] == 0 else np.concatenate([[0], opens])
        steps = np.add.reduceat(np.where(inside, block.steps, 0), starts)
        keys = block.rows[["run", "epoch"]][starts]
        if key == tuple(keys[0].tolist()):
            steps[0] += going
        most = int(np.argmax(np.minimum(steps, END - WARMUP)))
        if steps[most] and (best is None or min(steps[most], END - WARMUP) > best[0]):
            best = int(min(steps[most], END - WARMUP)), tuple(keys[most].tolist())
        going, key = int(steps[-1]), tuple(keys[-1].tolist())
    return best[1] if best else None


def inside(
    period: Period, block: Block, first: np.ndarray, chosen: tuple[int, int] | None
) -> np.ndarray:
    """Which rows, that tell of steps from `first` on, lie in `period` as a whole; `chosen` is
    the epoch of the protocol."""
    rows = block.rows
    if period == "all":
        return np.ones(len(rows), bool)
    if period == "warm":
        return ~block.begins | (first > WARMUP)
    if chosen is None:
        return np.zeros(len(rows), bool)
    of_epoch = (rows["run"] == chosen[0]) & (rows["epoch"] == chosen[1])
    return of_epoch & (first > WARMUP) & (rows["last"] <= END)
