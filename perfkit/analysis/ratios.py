"""The ratio of the throughputs of two measurements with its exact interval, and what that says:
one way for comparisons, diagnoses and series."""

from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import Field

from perfkit.results.schema import Positive, Repeat, Result, Stored
from perfkit.statistics import Estimate, median_estimate, ratio_interval

Verdict = Literal["faster", "slower", "no difference", "undecided"]
Method = Literal["pairs", "Hodges-Lehmann", "median"]
IDLE_SECONDS = 60.0
"""The longest time between one repeat's end and the beginning of the next that is in turn."""
SET_BACK_SECONDS = 1.0
"""By how much less than nothing that may be: wall clocks are set as they go."""


class Ratio(Stored):
    """A ratio of throughputs with its exact interval."""

    ratio: Positive
    interval: tuple[float, float]
    interval_level: float
    """coverage achieved, 0 to 1"""


def estimated(ratio: Estimate) -> dict[str, Any]:
    """The fields of a Ratio."""
    ends = (ratio.low, ratio.high)
    return {"ratio": ratio.value, "interval": ends, "interval_level": ratio.level}


class Turn(Stored):
    """Repeat `repeat` of both measurements of a pair."""

    repeat: Annotated[int, Field(ge=1)]
    a: Positive
    """A's throughput"""
    b: Positive
    a_began: str | None
    """UTC, ISO 8601"""
    b_began: str | None
    in_turn: bool
    """made one after the other, at most the other sides' in between"""

    @property
    def ratio(self) -> float:
        return self.b / self.a


def verdict(ratio: Estimate, level: float) -> Verdict:
    """What the interval says of B at `level`: it has 1 in it, or not."""
    if ratio.level < level:
        return "undecided"
    if ratio.low > 1:
        return "faster"
    return "slower" if ratio.high < 1 else "no difference"


def ratio_of(
    other: Result, base: Result, level: float = 0.95
) -> tuple[Estimate, Method, list[Turn]]:
    """`other` / `base`, and how it is judged: by pairs of repeats, which are given, if the
    repeats of the two were interleaved; else by all ratios of a repeat to a repeat."""
    if _are_interleaved(base, other):
        pairs = turns(base, other, [])
        return median_estimate([pair.ratio for pair in pairs], level), "pairs", pairs
    return ratio_interval(other.throughputs, base.throughputs, level), "Hodges-Lehmann", []


def _are_interleaved(base: Result, other: Result) -> bool:
    """Whether the repeats of two measurements alternate: both of round k began before either of
    round k + 1, for all complete repeats of two rounds at least that both have."""
    rounds: dict[int, list[float]] = {}
    for repeat in (*base.complete_repeats, *other.complete_repeats):
        if not repeat.began:
            return False
        rounds.setdefault(repeat.index, []).append(_began(repeat))
    both = [times for times in rounds.values() if len(times) == 2]
    in_order = pairwise(times for _index, times in sorted(rounds.items()))
    return len(both) > 1 and all(max(one) < min(following) for one, following in in_order)


def turns(base: Result, other: Result, every: Sequence[Repeat]) -> list[Turn]:
    """The repeats that both have complete, among `every` repeat of all sides; without any, all
    are in turn."""
    theirs = {repeat.index: repeat for repeat in other.complete_repeats}
    found = []
    for one in base.complete_repeats:
        its = theirs.get(one.index)
        if its and one.throughput and its.throughput:
            found.append(
                Turn(
                    repeat=one.index,
                    a=one.throughput,
                    b=its.throughput,
                    a_began=one.began,
                    b_began=its.began,
                    in_turn=not every or _in_turn(one, its, every),
                )
            )
    return found


def _in_turn(one: Repeat, other: Repeat, every: Sequence[Repeat]) -> bool:
    """Whether two repeats were made one right after the other, by their start times:
    but for idle seconds, with nothing between them but the other sides' repeats of that round.
    """
    if not (one.began and other.began):
        return False
    first, second = sorted(map(_began, (one, other)))
    between = [r for r in every if r.began and first <= _began(r) < second]
    idle = second - first - sum(repeat.wall_seconds or 0.0 for repeat in between)
    same_round = all(repeat.index == one.index for repeat in between)
    return same_round and -SET_BACK_SECONDS <= idle <= IDLE_SECONDS


def _began(repeat: Repeat) -> float:
    """Seconds since 1970."""
    assert repeat.began
    return datetime.fromisoformat(repeat.began).timestamp()
