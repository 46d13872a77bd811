"""Models of comparisons of stored measurements, and of interleaved comparisons.

    outputs/comparisons/<name>/comparison.json    an InterleavedComparison, replaced atomically

Each variant is a measurement of its own below `outputs`; `docs/results.md` describes both.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from perfkit.analysis.ratios import Method, Ratio, Turn, Verdict, judgement
from perfkit.comparison.keys import Differences, Value
from perfkit.comparison.text import as_text
from perfkit.config import ModelName
from perfkit.models.model import Unit
from perfkit.results.schema import Failure, Stored
from perfkit.results.store import (
    ResultError,
    make_folder,
    read_as,
    read_file,
    write_atomically,
)
from perfkit.statistics import median_estimate
from perfkit.text.format import variant_name

SCHEMA_VERSION: Literal[4] = 4
FOLDER = "comparisons"
"""Folder of interleaved comparisons below the outputs."""
FILE = "comparison.json"
TakenAs = Literal["result", "folder", "label", "published table"]
Level = Annotated[float, Field(ge=0.5, lt=1)]


class Named(Stored):
    """Source A or B: its name, its kind, the number of measurements or published numbers, and
    why files were left out."""

    name: str
    taken_as: TakenAs
    count: int
    left_out: list[str]


class Number(Stored):
    """A measurement of a pair, named by its id, with `n` complete repeats of the requested
    `repeats` and the codes of its warnings; or a published number, named by its place, with its
    `source`. Fields that a published number lacks are None."""

    name: str
    value: float
    unit: Unit
    interval: tuple[float, float] | None = None
    interval_level: float | None = None
    n: int | None = None
    repeats: int | None = None
    status: Literal["complete", "partial"] | None = None
    created: str | None = None
    label: str | None = None
    warnings: list[str] = Field(default_factory=list)
    source: str | None = None


class SameWork(Stored):
    """Whether A's and B's frameworks are known to do the same work: the time of the
    verification, and the command to verify it."""

    state: Literal["verified", "not the same", "not verified"]
    created: str | None = None
    command: str


class PairResult(Ratio):
    """B compared with A; the ratio is B / A.

    `keys` are the values in which both agree, `across` the differences in keys that should
    agree, `differs` all others. `method` pairs: median of the ratios of repeat k to repeat k,
    the `turns`, of interleaved repeats; Hodges-Lehmann: median of the ratios of all
    combinations of two repeats; median: median of the repeats, beside a published number.
    `verdict` is on B, at the comparison's level; `regressed`: slower by more than the
    threshold. `same_work` is None for a single framework and beside a published number."""

    keys: dict[str, Value]
    a: Number
    b: Number
    method: Method
    verdict: Verdict
    regressed: bool
    across: Differences
    differs: Differences
    same_work: SameWork | None = None
    turns: list[Turn]

    @property
    def ratios(self) -> list[float]:
        return [turn.ratio for turn in self.turns]

    @property
    def out_of_turn(self) -> list[int]:
        return [turn.repeat for turn in self.turns if not turn.in_turn]


class Unmeasured(Stored):
    """A measurement without a number: its failure, None if it is not finished; `partner` is the
    measurement of the other side that has the number and no other partner."""

    side: Literal["A", "B"]
    name: str
    failure: Failure | None
    partner: str | None


class Comparison(Stored):
    """B compared with A, the base; ratios above 1 mean that B is faster. Shares are 0 to 1.

    `across` are the keys that were allowed to differ; `alone_a` and `alone_b` are measurements
    with a number but without a partner. `regressed`: a pair has regressed, or B failed where A
    has a number."""

    schema_version: Literal[4] = SCHEMA_VERSION
    a: Named
    b: Named
    level: Level
    threshold: float
    across: list[str]
    pairs: list[PairResult]
    alone_a: list[str]
    alone_b: list[str]
    failed: list[Unmeasured]
    regressed: bool

    def __str__(self) -> str:
        return as_text("comparison", self)


class Variant(Stored):
    """A variant: its name as typed, the parameters that it sets, and its measurement.

    `number` is None without a complete repeat. `differs` has the differences from the base in
    keys that must agree; with any, there is no ratio. `matmul_flops_per_second` is the median
    peak of its repeats; `of_own_peak` and `of_highest_peak` are the model's arithmetic as a
    share, 0 to 1, of that peak and of the highest peak of all variants."""

    name: str
    values: dict[str, Value]
    id: str
    number: Number | None
    failure: Failure | None
    differs: Differences
    matmul_flops_per_second: float | None
    of_own_peak: float | None
    of_highest_peak: float | None


class InterleavedComparison(Stored):
    """Variants compared with the first variant, the base, which is A of all pairs. Shares are
    0 to 1.

    `created` is when the first variant was started, `command` repeats the comparison, `named`
    are the parameters that variants set, `repeats` and `level` are as requested. `regressed`: a
    variant is slower by more than the threshold."""

    schema_version: Literal[4] = SCHEMA_VERSION
    created: str
    command: str
    model: ModelName
    named: list[str]
    repeats: int
    level: Level
    threshold: float
    variants: Annotated[list[Variant], Field(min_length=2)]
    pairs: list[PairResult]
    regressed: bool

    @property
    def base(self) -> Variant:
        return self.variants[0]

    @property
    def failed(self) -> list[Variant]:
        """Variants that failed, or have no ratio because they did different work."""
        return [variant for variant in self.variants if variant.failure or variant.differs]

    @property
    def complete(self) -> bool:
        """Whether all variants have all their repeats and a ratio."""
        numbers = [variant.number for variant in self.variants]
        return all(n and n.n == self.repeats for n in numbers) and not self.failed

    def variant_of(self, pair: PairResult) -> Variant:
        return next(variant for variant in self.variants if variant.id == pair.b.name)

    @model_validator(mode="after")
    def _follows_from_its_turns(self) -> Self:
        base, *others = ((variant.id, variant.number) for variant in self.variants)
        for pair in self.pairs:
            a, b = ((side.name, side) for side in (pair.a, pair.b))
            if a != base or b not in others or not pair.turns:
                raise ValueError("a pair is not of the base and another variant")
            ratio = median_estimate(pair.ratios, self.level)
            found = judgement(ratio, self.level, self.threshold)
            if any(getattr(pair, name) != value for name, value in found.items()):
                raise ValueError("ratio, interval or verdict do not follow from the turns")
        if self.regressed != any(pair.regressed for pair in self.pairs):
            raise ValueError("regressed does not follow from the pairs")
        return self

    def __str__(self) -> str:
        return as_text("interleaved", self)


def comparison_folders(outputs: Path) -> Iterator[Path]:
    """Yield the folders of the interleaved comparisons under `outputs`, by name."""
    for path in sorted(outputs.glob(f"{FOLDER}/*/{FILE}")):
        yield path.parent


def read_comparison(folder: Path) -> InterleavedComparison:
    """Read the comparison in `folder`. Raises ResultError."""
    return read_as(InterleavedComparison, folder / FILE, SCHEMA_VERSION)


def write_comparison(folder: Path, comparison: InterleavedComparison) -> None:
    """Replace the comparison in `folder` atomically. Raises OSError."""
    make_folder(folder)
    write_atomically(folder / FILE, comparison.model_dump_json(indent=1) + "\n")


def comparisons_of(outputs: Path, measurement_id: str) -> Iterator[tuple[str, str]]:
    """Yield the readable interleaved comparisons under `outputs` that have this measurement:
    the folder below `outputs` and the names of the variants."""
    for folder in comparison_folders(outputs):
        with suppress(ResultError, OSError):
            # Reading all of them for each page would validate every turn many times.
            if measurement_id.encode() in read_file(folder / FILE):
                variants = read_comparison(folder).variants
                name = " · ".join(map(variant_name, variants))
                yield folder.relative_to(outputs).as_posix(), name
