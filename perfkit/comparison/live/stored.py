"""A live comparison as it is stored.

    outputs/comparisons/<name>/comparison.json    a LiveComparison, replaced atomically

Each side is a measurement of its own below `outputs`; `docs/results.md` describes the format.
"""

from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from perfkit.comparison.keys import Value
from perfkit.comparison.verdict import Both, Judged, Number
from perfkit.results.schema import Failure, Stored
from perfkit.results.store import ResultError, read_as, write_atomically
from perfkit.statistics import median_estimate
from perfkit.text.format import variant_name

SCHEMA_VERSION: Literal[2] = 2
FOLDER = "comparisons"
"""Where live comparisons lie below the outputs."""
FILE = "comparison.json"

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


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
    failure: Failure | None
    differs: Annotated[
        Both,
        Field(description="from the base, in what must agree: then there is no ratio"),
    ]
    matmul_flops_per_second: Annotated[
        float | None, Field(description="its peak, the median of its repeats'")
    ]
    of_own_peak: Annotated[float | None, Field(description="of the model's arithmetic, 0 to 1")]
    of_highest_peak: Annotated[
        float | None, Field(description="of the highest that a side measured")
    ]


class LiveComparison(Stored):
    """Sides against the first one, the base. Shares are 0 to 1."""

    schema_version: Literal[2]
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
            found = median_estimate(pair.ratios, self.level)
            if found != (pair.ratio, *pair.interval, pair.interval_level):
                raise ValueError("ratio or interval do not follow from the turns")
        return self

    def __str__(self) -> str:
        from perfkit.comparison.live.words import text

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


def comparisons_of(outputs: Path) -> dict[str, list[tuple[str, str]]]:
    """The live comparisons under `outputs` that can be read, by the measurements in them: the
    folder below `outputs`, and the variants."""
    folders = tuple(comparison_folders(outputs))
    stamps = tuple((folder / FILE).stat().st_mtime_ns for folder in folders)
    return _comparisons_of(outputs, folders, stamps)


@lru_cache(maxsize=1)
def _comparisons_of(
    outputs: Path, folders: tuple[Path, ...], _stamps: tuple[int, ...]
) -> dict[str, list[tuple[str, str]]]:
    found: dict[str, list[tuple[str, str]]] = {}
    for folder in folders:
        with suppress(ResultError):
            sides = read_comparison(folder).sides
            name = " · ".join(map(variant_name, sides))
            for side in sides:
                place = folder.relative_to(outputs).as_posix()
                found.setdefault(side.id, []).append((place, name))
    return found
