"""A live comparison as it is stored: sides that were measured in turn, judged pair by pair.

    outputs/comparisons/<name>/comparison.json    a LiveComparison, replaced atomically

Each side is a measurement of its own below `outputs`; `docs/results.md` describes the format.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from perfkit.analysis.utilization import utilization
from perfkit.comparison.keys import TOLD_BY, Differences, Value, allowed, differing
from perfkit.comparison.pairs import Measured, pair_of
from perfkit.comparison.verdict import (
    Both,
    Judged,
    Number,
    Stored,
    judged_pair,
    median_ratio,
    number_of,
)
from perfkit.results.files import Measurement, ResultError, read_as, write_atomically
from perfkit.results.schema import Repeat, Result
from perfkit.statistics import median
from perfkit.words.lines import plain

SCHEMA_VERSION: Literal[1] = 1
FOLDER = "comparisons"
"""Where live comparisons lie below the outputs."""
FILE = "comparison.json"
IDLE_SECONDS = 60.0
"""The longest time between one repeat's end and the beginning of the next that is in turn."""
SET_BACK_SECONDS = 1.0
"""By how much less than nothing that may be: wall clocks are set as they go."""

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float | None, Field(description="of the model's arithmetic, 0 to 1")]


class Turn(Stored):
    """Repeat `repeat` of both sides of a pair."""

    repeat: Annotated[int, Field(ge=1)]
    a: Annotated[Positive, Field(description="A's throughput")]
    b: Positive
    a_began: Annotated[str | None, Field(description="UTC, ISO 8601")]
    b_began: str | None
    in_turn: Annotated[
        bool,
        Field(description="made one after the other, at most the other sides' in between"),
    ]

    @property
    def ratio(self) -> float:
        return self.b / self.a


class JudgedInTurn(Judged):
    """A side against the base: `ratio` is the median of those of its turns, its interval that
    of `statistics.median_interval`."""

    turns: Annotated[list[Turn], Field(min_length=1)]

    @property
    def ratios(self) -> list[float]:
        return [turn.ratio for turn in self.turns]

    @property
    def out_of_turn(self) -> list[int]:
        return [turn.repeat for turn in self.turns if not turn.in_turn]


class LiveSide(Stored):
    """One side: what it sets, and the measurement that came of it."""

    name: Annotated[str, Field(description="as it was typed")]
    values: Annotated[dict[str, Value], Field(description="the parameters that it sets")]
    id: Annotated[str, Field(description="the measurement's")]
    number: Annotated[Number | None, Field(description="None without a complete repeat")]
    failure: Annotated[str | None, Field(description="code and message")]
    differs: Annotated[
        Both,
        Field(description="from the base, in what must agree: then there is no ratio"),
    ]
    matmul_flops_per_second: Annotated[
        float | None, Field(description="its ceiling, the median of its repeats'")
    ]
    of_own_ceiling: Share
    of_highest_ceiling: Annotated[
        float | None, Field(description="of the highest that a side measured")
    ]


class LiveComparison(Stored):
    """Sides against the first one, the base. Shares are 0 to 1."""

    schema_version: Literal[1]
    created: Annotated[str, Field(description="when the first side was begun, UTC")]
    command: Annotated[str, Field(description="what makes it again")]
    model: str
    named: Annotated[list[str], Field(description="parameters that sides set")]
    repeats: Annotated[int, Field(description="asked for, of each side")]
    level: Annotated[float, Field(description="that was asked for")]
    threshold: float
    sides: Annotated[list[LiveSide], Field(min_length=2)]
    pairs: Annotated[list[JudgedInTurn], Field(description="by side; A is the base")]
    regressed: Annotated[bool, Field(description="a side is slower by more than the threshold")]

    @property
    def base(self) -> LiveSide:
        return self.sides[0]

    @property
    def failed(self) -> list[LiveSide]:
        """Sides that came to no end, or have no ratio because they did other work."""
        return [side for side in self.sides if side.failure or side.differs]

    @property
    def complete(self) -> bool:
        """Whether all sides have all their repeats and a ratio."""
        whole = all(side.number and side.number.n == self.repeats for side in self.sides)
        return whole and not self.failed

    def pair_of(self, side: LiveSide) -> JudgedInTurn | None:
        return next((pair for pair in self.pairs if pair.b.name == side.id), None)

    def side_of(self, pair: JudgedInTurn) -> LiveSide:
        return next(side for side in self.sides if side.id == pair.b.name)

    @model_validator(mode="after")
    def _follows_from_its_turns(self) -> Self:
        ids = [side.id for side in self.sides]
        for pair in self.pairs:
            if pair.a.name != ids[0] or pair.b.name not in ids[1:]:
                raise ValueError("a pair is not of the base and another side")
            found = median_ratio(pair.ratios, self.level)
            if found != (pair.ratio, *pair.interval, pair.interval_level):
                raise ValueError("ratio or interval do not follow from the turns")
        return self

    def __str__(self) -> str:
        from perfkit.comparison.live_words import text

        return text(self)


def comparison_folders(outputs: Path) -> Iterator[Path]:
    """The folders of the live comparisons under `outputs`, by name."""
    for path in sorted(outputs.glob(f"{FOLDER}/*/{FILE}")):
        yield path.parent


def read_comparison(folder: Path) -> LiveComparison:
    """Raises ResultError."""
    return read_as(LiveComparison, folder / FILE, SCHEMA_VERSION)


def write_comparison(folder: Path, comparison: LiveComparison) -> None:
    """Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / FILE, comparison.model_dump_json(indent=1) + "\n")


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
        return {TOLD_BY.get(name, name) for name in self.named}


def judged_in_turn(asked: Asked, measurements: Sequence[Measurement]) -> LiveComparison:
    """The comparison of these measurements of the sides, as they are now."""
    measured = [Measured(one) for one in measurements]
    base, results = measured[0], [one.result for one in measurements]
    ceilings = [c for result in results if (used := utilization(result)) for c in used.ceilings]
    sides = [
        _side(
            name,
            values,
            one,
            must_not_differ(base, one, asked.meant),
            max(ceilings, default=None),
        )
        for (name, values), one in zip(asked.sides, measured, strict=True)
    ]
    every = [repeat for result in results for repeat in result.repeats]
    pairs = []
    for side, other in zip(sides[1:], measured[1:], strict=True):
        found = turns(results[0], other.measurement.result, every)
        if found and not side.differs:
            ratio = median_ratio([turn.ratio for turn in found], asked.level)
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
    """One side; `highest` is the highest ceiling of all of them."""
    result = measured.measurement.result
    failure, number, used = result.failure, result.throughput, utilization(result)
    return LiveSide(
        name=name,
        values=values,
        id=measured.name,
        number=number_of(measured) if number else None,
        failure=f"{failure.code}: {plain(failure.message)}" if failure else None,
        differs=differs,
        matmul_flops_per_second=median(used.ceilings) if used else None,
        of_own_ceiling=median(used.shares) if used else None,
        of_highest_ceiling=number.value * used.flops / highest
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
