"""The sides of a live comparison judged pair by pair: repeat k of one against repeat k of the
base."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from perfkit.analysis.utilization import utilization
from perfkit.comparison.keys import ALIASES, Differences, allowed, differing
from perfkit.comparison.live.stored import (
    SCHEMA_VERSION,
    JudgedInTurn,
    LiveComparison,
    LiveSide,
    Turn,
)
from perfkit.comparison.pairs import Measured, pair_of
from perfkit.comparison.verdict import judged_pair, number_of
from perfkit.results.schema import Repeat, Result
from perfkit.results.store import Measurement, ResultError
from perfkit.statistics import median, median_estimate

IDLE_SECONDS = 60.0
"""The longest time between one repeat's end and the beginning of the next that is in turn."""
SET_BACK_SECONDS = 1.0
"""By how much less than nothing that may be: wall clocks are set as they go."""


@dataclass(frozen=True)
class Asked:
    """What was asked for: of each side its name and the parameters that it sets."""

    command: str
    sides: list[tuple[str, dict[str, Any]]]
    level: float
    threshold: float

    @property
    def named(self) -> list[str]:
        """The parameters that sides set."""
        return list(dict.fromkeys(name for _side, values in self.sides for name in values))

    @property
    def meant(self) -> set[str]:
        """The keys in which sides are meant to differ."""
        return {ALIASES.get(name, name) for name in self.named}


def judged_in_turn(asked: Asked, measurements: Sequence[Measurement]) -> LiveComparison:
    """The comparison of these measurements of the sides, as they are now."""
    measured = [Measured(one) for one in measurements]
    base, results = measured[0], [one.result for one in measurements]
    peaks = [c for result in results if (used := utilization(result)) for c in used.peaks]
    sides = [
        _side(
            name,
            values,
            one,
            must_not_differ(base, one, asked.meant),
            max(peaks, default=None),
        )
        for (name, values), one in zip(asked.sides, measured, strict=True)
    ]
    every = [repeat for result in results for repeat in result.repeats]
    pairs = []
    for side, other in zip(sides[1:], measured[1:], strict=True):
        found = turns(results[0], other.measurement.result, every)
        if found and not side.differs:
            ratio = median_estimate([turn.ratio for turn in found], asked.level)
            pair = judged_pair(pair_of(base, other), ratio, asked.level, asked.threshold)
            pairs.append(JudgedInTurn(**vars(pair), turns=found))
    return LiveComparison(
        schema_version=SCHEMA_VERSION,
        created=min(result.created for result in results),
        command=asked.command,
        model=results[0].config.model,
        named=asked.named,
        repeats=results[0].protocol.repeats,
        level=asked.level,
        threshold=asked.threshold,
        sides=sides,
        pairs=pairs,
        regressed=any(pair.regressed for pair in pairs),
    )


def _side(
    name: str,
    values: dict[str, Any],
    measured: Measured,
    differs: Differences,
    highest: float | None,
) -> LiveSide:
    """One side; `highest` is the highest peak of all of them."""
    result = measured.measurement.result
    failure, number, used = result.failure, result.throughput, utilization(result)
    return LiveSide(
        name=name,
        values=values,
        id=measured.name,
        number=number_of(measured) if number else None,
        failure=failure,
        differs=differs,
        matmul_flops_per_second=median(used.peaks) if used else None,
        of_own_peak=median(used.shares) if used else None,
        of_highest_peak=number.value * used.flops / highest
        if number and used and highest
        else None,
    )


def disagreements(comparison: LiveComparison, outputs: Path) -> list[str]:
    """In what the comparison is not what its measurements under `outputs` give now."""
    told, found = [], []
    for side in comparison.sides:
        try:
            found.append(Measurement.read(outputs / side.id))
        except ResultError as error:
            told.append(str(error).replace(f"{outputs}/", ""))
    if told:
        return told
    sides = [(side.name, side.values) for side in comparison.sides]
    asked = Asked(comparison.command, sides, comparison.level, comparison.threshold)
    again = judged_in_turn(asked, found)
    for side, its in zip(comparison.sides, again.sides, strict=True):
        pair, now = comparison.pair_of(side), again.pair_of(its)
        if (pair and pair.turns) != (now and now.turns):
            told.append(
                f"{side.id}: its repeats, or those of {comparison.base.id}, are others now"
            )
    return told


def must_not_differ(base: Measured, side: Measured, meant: Iterable[str]) -> Differences:
    """In what a side differs from the base that no side sets, and that must agree.

    What workers alone can tell is not judged before they have.
    """
    if not (base.measurement.result.effective and side.measurement.result.effective):
        return {}
    found = differing(base.keys, side.keys)
    may = allowed(meant, found)
    return {key: values for key, values in found.items() if key not in may}


def turns(base: Result, other: Result, every: Sequence[Repeat]) -> list[Turn]:
    """The repeats that both sides have complete, among `every` repeat of all sides."""
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
                    in_turn=in_turn(one, its, every),
                )
            )
    return found


def in_turn(one: Repeat, other: Repeat, every: Sequence[Repeat]) -> bool:
    """Whether two repeats were made one right after the other, as far as their clock tells:
    but for idle seconds, with nothing between them but the other sides' repeats of that round.
    """
    if not (one.began and other.began):
        return False
    first, second = sorted((one, other), key=_began)
    between = [r for r in every if r.began and _began(first) <= _began(r) < _began(second)]
    busy = sum(repeat.wall_seconds or 0.0 for repeat in between)
    idle = _began(second) - _began(first) - busy
    same_round = all(repeat.index == one.index for repeat in between)
    return same_round and -SET_BACK_SECONDS <= idle <= IDLE_SECONDS


def _began(repeat: Repeat) -> float:
    """Seconds since 1970."""
    assert repeat.began
    return datetime.fromisoformat(repeat.began).timestamp()
