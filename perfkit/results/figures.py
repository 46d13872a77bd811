"""The suite's own figures: what is stored of them, and how it is read.

    outputs/bench/figures.json    the last run of every figure (Figures), replaced atomically

`tests/bench` makes them, `docs/results.md` describes the format.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from filelock import FileLock
from pydantic import AwareDatetime, BaseModel, Field, model_validator

from perfkit.results.files import read_as, write_atomically
from perfkit.results.schema import Reading, derived, derived_median
from perfkit.statistics import Interval, median, share_interval

SCHEMA_VERSION: Literal[1] = 1
FOLDER = "bench"
"""Where the figures and their pages lie below the outputs."""

Finite = Annotated[float, Field(allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Pair = tuple[Positive, Positive]
RUNS_AT_MOST = 400
"""More than anybody waits for; a stored file may say anything."""


class Number(BaseModel, frozen=True, extra="forbid", strict=True):
    """One number of a figure and what it follows from: the median of `values`, the median of
    the ratios of `pairs`, or the share of n trials that are `hits`; one of the three."""

    name: Annotated[str, Field(description="what it is the number of; foreign text")]
    unit: Annotated[str, Field(description="of a ratio, the unit of its pairs")]
    value: Finite
    interval: tuple[Finite, Finite] | None
    interval_level: Annotated[float | None, Field(description="coverage achieved, 0 to 1")]
    n: Annotated[int, Field(ge=1, le=10**9, description="values, pairs or trials")]
    values: Annotated[
        list[Finite], Field(max_length=RUNS_AT_MOST, description="in the order of the runs")
    ] = []
    pairs: Annotated[
        list[Pair], Field(max_length=RUNS_AT_MOST, description="in the order of the runs")
    ] = []
    hits: Annotated[int | None, Field(ge=0)] = None

    @classmethod
    def of_values(cls, name: str, values: Sequence[float], unit: str) -> Self:
        """The median of at least one value."""
        return cls(name=name, unit=unit, values=[*values], **derived_median(values))

    @classmethod
    def of_pairs(cls, name: str, pairs: Sequence[tuple[float, float]], unit: str) -> Self:
        """The median of the ratios, first to second of each pair."""
        return cls(name=name, unit=unit, pairs=[*pairs], **derived_median(_ratios(pairs)))

    @classmethod
    def of_trials(cls, name: str, hits: int, trials: int) -> Self:
        """The share of the trials that are hits."""
        return cls(name=name, unit="", hits=hits, **_share_of(hits, trials))

    @property
    def runs(self) -> list[float]:
        """What the value is the median of; nothing for a share."""
        return _ratios(self.pairs) or self.values

    @property
    def medians(self) -> list[float]:
        """Of both sides of a ratio."""
        return [median(side) for side in zip(*self.pairs, strict=True)]

    @model_validator(mode="after")
    def _follows_from_its_runs(self) -> Self:
        if [bool(self.values), bool(self.pairs), self.hits is not None].count(True) != 1:
            raise ValueError("a number has either values, or pairs, or hits")
        if self.hits is None:
            expected = derived_median(self.runs)
        elif self.hits <= self.n:
            expected = _share_of(self.hits, self.n)
        else:
            raise ValueError("more hits than trials")
        if expected != {name: getattr(self, name) for name in expected}:
            raise ValueError("value, interval or n do not follow from the runs")
        return self


def _ratios(pairs: Sequence[tuple[float, float]]) -> list[float]:
    return [one / other for one, other in pairs]


def _share_of(hits: int, trials: int) -> dict[str, Any]:
    low, high, level = share_interval(hits, trials)
    # Rounded, since the last digits are another SciPy's own.
    return derived(hits / trials, Interval(round(low, 9), round(high, 9), level), trials)


class Figure(BaseModel, frozen=True, extra="forbid", strict=True):
    """One figure as its last run made it, or why it could not."""

    about: Annotated[str, Field(description="what it tells; foreign text, never markup")]
    command: Annotated[str, Field(description="what makes it alone")]
    created: Annotated[AwareDatetime, Field(description="when its run began")]
    seconds: Annotated[float, Field(ge=0, description="how long that took")]
    environment: dict[str, Reading]
    numbers: list[Number] = []
    failure: Annotated[str | None, Field(description="why there are no numbers")] = None

    @model_validator(mode="after")
    def _has_numbers_or_a_failure(self) -> Self:
        if bool(self.numbers) == (self.failure is not None):
            raise ValueError("a figure has either numbers or a failure")
        return self

    def fact(self, name: str) -> Any:
        """A fact of the environment; None where it was not read."""
        reading = self.environment.get(name)
        return reading.value if reading else None


class Figures(BaseModel, frozen=True, extra="forbid", strict=True):
    schema_version: Literal[1]
    figures: Annotated[dict[str, Figure], Field(min_length=1, description="by their names")]


def figures_file(outputs: Path) -> Path:
    return outputs / FOLDER / "figures.json"


def figures_folders(outputs: Path) -> list[Path]:
    """The folder of the figures under `outputs`, if there are any."""
    path = figures_file(outputs)
    return [path.parent] if path.exists() else []


def read_figures(outputs: Path) -> dict[str, Figure]:
    """The figures stored under `outputs`, by name; none where there is no file. Raises
    ResultError for a file that is not one of figures."""
    path = figures_file(outputs)
    return read_as(Figures, path, SCHEMA_VERSION).figures if path.exists() else {}


def store_figure(outputs: Path, name: str, figure: Figure) -> None:
    """Put the figure in the place of the stored one of that name, the others stay as they are.
    Raises ResultError, and changes nothing, if what is stored can't be read."""
    path = figures_file(outputs)
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.parent / ".lock"):
        figures = read_figures(outputs) | {name: figure}
        text = Figures(schema_version=SCHEMA_VERSION, figures=figures).model_dump_json(indent=1)
        write_atomically(path, text)
