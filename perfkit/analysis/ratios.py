"""The ratio of two measurements' throughputs with its exact interval, as used by comparisons
and series."""

from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from perfkit.measuring.results.base import Positive, Stored
from perfkit.measuring.results.repeat import Repeat
from perfkit.measuring.results.schema import Result
from perfkit.measuring.statistics import Estimate, median_estimate, ratio_interval

Method = Literal["pairs", "Hodges-Lehmann", "median"]
IDLE_SECONDS = 60.0
"""Longest idle time between two interleaved repeats."""
SET_BACK_SECONDS = 1.0
"""Largest negative idle time: wall clocks are adjusted while they run."""


class Ratio(Stored):
    """A ratio of throughputs with its exact interval."""

    ratio: Positive
    """ratio of two throughputs"""
    interval: tuple[float, float]
    """confidence interval of the ratio"""
    interval_level: float
    """coverage achieved, 0 to 1"""

    def has_level(self, level: float) -> bool:
        """Return whether the data are enough for an interval of this level."""
        return self.interval_level >= level


def estimated(ratio: Estimate) -> dict[str, Any]:
    """Return the fields of a Ratio."""
    interval = (ratio.low, ratio.high)
    return {"ratio": ratio.value, "interval": interval, "interval_level": ratio.level}


class Turn(Stored):
    """Repeat `repeat` of both measurements of a pair."""

    repeat: Annotated[int, Field(ge=1)]
    """number of the repeat"""
    a: Positive
    """A's throughput"""
    b: Positive
    """B's throughput"""
    a_began: str | None
    """start of A's repeat; UTC, ISO 8601"""
    b_began: str | None
    """start of B's repeat"""
    in_turn: bool
    """whether one repeat followed the other, with only the other variants' repeats of this
    number and at most 60 s idle in between"""

    @property
    def ratio(self) -> float:
        return self.b / self.a


class PairRatio(NamedTuple):
    """The ratio of two measurements."""

    estimate: Estimate
    """B / A with its interval"""
    method: Method
    turns: list[Turn]
    """The pairs of repeats, if these were interleaved."""


def ratio_of(other: Result, base: Result, level: float = 0.95) -> PairRatio:
    """Return the ratio `other` / `base`. If the repeats were interleaved, it is that of the
    pairs of repeats; else of all combinations of two repeats."""
    if _are_interleaved(base, other):
        pairs = turns(base, other, [])
        estimate = median_estimate([pair.ratio for pair in pairs], level)
        return PairRatio(estimate, "pairs", pairs)
    estimate = ratio_interval(other.throughputs, base.throughputs, level)
    return PairRatio(estimate, "Hodges-Lehmann", [])


def _are_interleaved(base: Result, other: Result) -> bool:
    """Return whether the complete repeats alternate: each ended before the next began, those of
    round k before any of round k + 1, and both measurements have at least two rounds."""
    repeats = [*base.complete_repeats, *other.complete_repeats]
    if not all(repeat.began for repeat in repeats):
        return False
    repeats.sort(key=_began)
    for earlier, later in pairwise(repeats):
        ended = _began(earlier) + (earlier.wall_seconds or 0.0)
        if later.index < earlier.index or ended > _began(later) + SET_BACK_SECONDS:
            return False
    return len(turns(base, other, [])) > 1


def turns(base: Result, other: Result, every: Sequence[Repeat]) -> list[Turn]:
    """Return the repeats that are complete in both measurements. `every` has the repeats of all
    variants, from which `in_turn` follows; if it is empty, all turns are in turn."""
    b_repeats = {repeat.index: repeat for repeat in other.complete_repeats}
    pairs = []
    for a in base.complete_repeats:
        b = b_repeats.get(a.index)
        if not (b and a.throughput and b.throughput):
            continue
        turn = Turn(
            repeat=a.index,
            a=a.throughput,
            b=b.throughput,
            a_began=a.began,
            b_began=b.began,
            in_turn=not every or _in_turn(a, b, every),
        )
        pairs.append(turn)
    return pairs


def _in_turn(a: Repeat, b: Repeat, every: Sequence[Repeat]) -> bool:
    """Return whether one repeat directly followed the other, judging by the start times, with
    nothing but idle seconds and the other variants' repeats of that round in between."""
    if not (a.began and b.began):
        return False
    first, second = sorted([_began(a), _began(b)])
    idle = second - first
    for repeat in every:
        if repeat.began and first <= _began(repeat) < second:
            if repeat.index != a.index:
                return False
            idle -= repeat.wall_seconds or 0.0
    return -SET_BACK_SECONDS <= idle <= IDLE_SECONDS


def _began(repeat: Repeat) -> float:
    """Return the start of a repeat in seconds since 1970."""
    assert repeat.began
    return datetime.fromisoformat(repeat.began).timestamp()
