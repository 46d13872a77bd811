"""Comparisons as they are stored: of measurements that were there, and of interleaved ones.

    outputs/comparisons/<name>/comparison.json    an InterleavedComparison, replaced atomically

Each variant is a measurement of its own below `outputs`; `docs/results.md` describes both.
"""

from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from perfkit.analysis.ratios import Method, Ratio, Turn, Verdict, estimated
from perfkit.comparison.keys import Differences, Value
from perfkit.comparison.text import as_text
from perfkit.models.model import Unit
from perfkit.results.schema import Failure, Stored
from perfkit.results.store import ResultError, make_folder, read_as, write_atomically
from perfkit.statistics import median_estimate
from perfkit.text.format import variant_name

SCHEMA_VERSION: Literal[4] = 4
FOLDER = "comparisons"
"""Where interleaved comparisons lie below the outputs."""
FILE = "comparison.json"
TakenAs = Literal["result", "folder", "label", "published table"]


class Named(Stored):
    """What A or B is: a name, what it was taken for, how many measurements or published numbers
    that are, and which files could not be read, and why."""

    name: str
    taken_as: TakenAs
    count: int
    left_out: list[str]


class Number(Stored):
    """A measurement of a pair, named by its id, with `n` complete ones of the `repeats` that
    were asked for and the codes of its warnings; or a published number, named by its place,
    which has only what is not None, `source` being where it was published."""

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
    """What is known of whether A's framework and B's do the same work: the time of the
    verification, and the command that makes it; empty if one is imported."""

    state: Literal["verified", "not the same", "not verified"]
    created: str | None = None
    command: str


class PairResult(Ratio):
    """B against A, B / A.

    `keys` has in what both agree, `across` in what they differ that should agree, `differs` in
    what else. `method` pairs: median of the ratios of repeat k to repeat k, the `turns`, of
    interleaved repeats; Hodges-Lehmann: median of all ratios of a repeat to a repeat; median:
    that of the repeats, beside a published number. `verdict` is of B, at the comparison's
    level; `regressed`: slower, and by more than the threshold. `same_work` is None of one
    framework, and beside a published number."""

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

    @property
    def seconds_apart(self) -> int | None:
        """From the beginning of one measurement to that of the other."""
        if not (self.a.created and self.b.created):
            return None
        one, other = map(datetime.fromisoformat, (self.a.created, self.b.created))
        return abs(round((one - other).total_seconds()))


class Unmeasured(Stored):
    """A measurement without a number: its failure, None if it is not finished; the `partner`
    that has the number on the other side, and no other partner."""

    side: Literal["A", "B"]
    name: str
    failure: Failure | None
    partner: str | None


class Comparison(Stored):
    """B against A, the base; ratios above 1 say that B is faster. Shares are 0 to 1.

    `across` are the keys that were allowed to differ; alone are measurements with a number, but
    without partner. `regressed`: a pair has, or B failed where A has a number."""

    schema_version: Literal[4] = SCHEMA_VERSION
    a: Named
    b: Named
    level: float
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
    """One variant: its name as it was typed, the parameters that it sets, and the measurement
    that came of it.

    `number` is None without a complete repeat; `differs` is in what it differs from the base
    that must agree: then there is no ratio. `matmul_flops_per_second` is its peak, the median
    of its repeats'; the model's arithmetic as a share of that and of the highest peak of all
    variants is 0 to 1."""

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
    """Variants against the first one, the base; A of the pairs is the base. Shares are 0 to 1.

    `created` is when the first variant was begun, `command` what makes it again, `named` the
    parameters that variants set, `repeats` and `level` what was asked for. `regressed`: a
    variant is slower by more than the threshold."""

    schema_version: Literal[4] = SCHEMA_VERSION
    created: str
    command: str
    model: str
    named: list[str]
    repeats: int
    level: float
    threshold: float
    variants: Annotated[list[Variant], Field(min_length=2)]
    pairs: list[PairResult]
    regressed: bool

    @property
    def base(self) -> Variant:
        return self.variants[0]

    @property
    def failed(self) -> list[Variant]:
        """Variants that came to no end, or have no ratio because they did other work."""
        return [variant for variant in self.variants if variant.failure or variant.differs]

    @property
    def complete(self) -> bool:
        """Whether all variants have all their repeats and a ratio."""
        numbers = [variant.number for variant in self.variants]
        return all(one and one.n == self.repeats for one in numbers) and not self.failed

    def variant_of(self, pair: PairResult) -> Variant:
        return next(variant for variant in self.variants if variant.id == pair.b.name)

    @model_validator(mode="after")
    def _follows_from_its_turns(self) -> Self:
        ids = [variant.id for variant in self.variants]
        for pair in self.pairs:
            if pair.a.name != ids[0] or pair.b.name not in ids[1:] or not pair.turns:
                raise ValueError("a pair is not of the base and another variant")
            found = estimated(median_estimate(pair.ratios, self.level))
            if any(getattr(pair, name) != value for name, value in found.items()):
                raise ValueError("ratio or interval do not follow from the turns")
        return self

    def __str__(self) -> str:
        return as_text("interleaved", self)


def comparison_folders(outputs: Path) -> Iterator[Path]:
    """The folders of the interleaved comparisons under `outputs`, by name."""
    for path in sorted(outputs.glob(f"{FOLDER}/*/{FILE}")):
        yield path.parent


def read_comparison(folder: Path) -> InterleavedComparison:
    """Raises ResultError."""
    return read_as(InterleavedComparison, folder / FILE, SCHEMA_VERSION)


def write_comparison(folder: Path, comparison: InterleavedComparison) -> None:
    """Raises OSError."""
    make_folder(folder)
    write_atomically(folder / FILE, comparison.model_dump_json(indent=1) + "\n")


def comparisons_of(outputs: Path) -> dict[str, list[tuple[str, str]]]:
    """The interleaved comparisons under `outputs` that can be read, by the measurements in
    them: the folder below `outputs`, and the variants."""
    folders = comparison_folders(outputs)
    stamps = {folder: (folder / FILE).stat().st_mtime_ns for folder in folders}
    return _comparisons_of(outputs, tuple(stamps.items()))


@lru_cache(maxsize=1)
def _comparisons_of(
    outputs: Path, stamps: tuple[tuple[Path, int], ...]
) -> dict[str, list[tuple[str, str]]]:
    found: dict[str, list[tuple[str, str]]] = {}
    for folder, _stamp in stamps:
        with suppress(ResultError):
            variants = read_comparison(folder).variants
            place = folder.relative_to(outputs).as_posix()
            name = " · ".join(map(variant_name, variants))
            for variant in variants:
                found.setdefault(variant.id, []).append((place, name))
    return found
