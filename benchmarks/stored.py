"""The self-benchmark's figures, stored in OUTPUTS/bench/figures.json."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from filelock import FileLock
from pydantic import AwareDatetime, BaseModel, Field, computed_field, model_validator

from perfkit.results.schema import Reading
from perfkit.results.store import read_as, write_atomically
from perfkit.statistics import Interval, median, median_interval, share_interval

SCHEMA_VERSION: Literal[1] = 1

Finite = Annotated[float, Field(allow_inf_nan=False)]
Positive = Annotated[Finite, Field(gt=0)]


class Number(BaseModel, frozen=True, strict=True):
    """The median of `values`, the median of the ratios of `pairs`, or the share of `hits` in n
    trials; exactly one of the three is given. Value and interval are stored too, and derived
    again when read."""

    name: str
    unit: Annotated[str, Field(description="of a ratio, the unit of its pairs")]
    n: Annotated[int, Field(ge=1, le=10**9, description="values, pairs or trials")]
    values: Annotated[list[Finite], Field(description="in the order of the runs")] = []
    pairs: list[tuple[Positive, Positive]] = []
    hits: Annotated[int | None, Field(ge=0)] = None

    @classmethod
    def of_values(cls, name: str, values: Sequence[float], unit: str) -> Self:
        return cls(name=name, unit=unit, n=len(values), values=[*values])

    @classmethod
    def of_pairs(cls, name: str, pairs: Sequence[tuple[float, float]], unit: str) -> Self:
        """A ratio is first / second of a pair."""
        return cls(name=name, unit=unit, n=len(pairs), pairs=[*pairs])

    @classmethod
    def of_trials(cls, name: str, hits: int, trials: int) -> Self:
        return cls(name=name, unit="", n=trials, hits=hits)

    @property
    def runs(self) -> list[float]:
        """The values or ratios whose median `value` is; empty for a share."""
        return [one / other for one, other in self.pairs] or self.values

    @property
    def medians(self) -> list[float]:
        """The medians of numerators and denominators."""
        return [median(side) for side in zip(*self.pairs, strict=True)]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def value(self) -> float:
        return median(self.runs) if self.hits is None else self.hits / self.n

    @computed_field  # type: ignore[prop-decorator]
    @property
    def interval(self) -> tuple[float, float] | None:
        found = self._interval
        return (found.low, found.high) if found else None

    @computed_field(description="coverage achieved, 0 to 1")  # type: ignore[prop-decorator]
    @property
    def interval_level(self) -> float | None:
        return self._interval.level if self._interval else None

    @property
    def _interval(self) -> Interval | None:
        trials = self.hits is not None
        return share_interval(self.hits or 0, self.n) if trials else median_interval(self.runs)

    @model_validator(mode="after")
    def _has_runs_or_trials(self) -> Self:
        given = [len(side) for side in (self.values, self.pairs) if side]
        if (given != [self.n]) if self.hits is None else (given or self.hits > self.n):
            raise ValueError("a number has either n values, or n pairs, or hits of n trials")
        return self


class Figure(BaseModel, frozen=True, extra="forbid", strict=True):
    """The last run of one figure: its numbers, or the reason of its failure."""

    about: Annotated[str, Field(description="what the figure shows")]
    command: Annotated[str, Field(description="runs this figure alone")]
    created: Annotated[AwareDatetime, Field(description="start of the run")]
    seconds: Annotated[float, Field(ge=0, description="duration of the run")]
    environment: dict[str, Reading]
    numbers: list[Number] = []
    failure: str | None = None

    @model_validator(mode="after")
    def _has_numbers_or_a_failure(self) -> Self:
        if bool(self.numbers) == (self.failure is not None):
            raise ValueError("a figure has either numbers or a failure")
        return self

    def fact(self, name: str) -> Any:
        """Return a fact of the environment; None if it was not read."""
        reading = self.environment.get(name)
        return reading.value if reading else None


class Figures(BaseModel, frozen=True, extra="forbid", strict=True):
    schema_version: Literal[1]
    figures: Annotated[dict[str, Figure], Field(min_length=1, description="by name")]


def figures_file(outputs: Path) -> Path:
    return outputs / "bench" / "figures.json"


def read_figures(outputs: Path) -> dict[str, Figure]:
    """Return the stored figures by name; empty without a file. Raises ResultError."""
    path = figures_file(outputs)
    return read_as(Figures, path, SCHEMA_VERSION).figures if path.exists() else {}


def store_figure(outputs: Path, name: str, figure: Figure) -> None:
    """Store the figure under its name, atomically, and keep the others. Raises ResultError, and
    changes nothing, if the stored file cannot be read."""
    path = figures_file(outputs)
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.parent / ".lock"):
        figures = read_figures(outputs) | {name: figure}
        text = Figures(schema_version=SCHEMA_VERSION, figures=figures).model_dump_json(indent=1)
        write_atomically(path, text)
