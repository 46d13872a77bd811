"""Models of comparisons of stored measurements, and of interleaved comparisons.

    outputs/comparisons/<name>/comparison.json    an InterleavedComparison, replaced atomically

Each variant is a measurement of its own below `outputs`; `docs/results.md` describes both.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field

from perfkit.analysis.comparison.keys import Differences, KeyValue
from perfkit.analysis.rates import MachineRate
from perfkit.analysis.ratios import Method, Ratio, Turn, estimated
from perfkit.analysis.verdicts import LEVEL, Verdict, fewest_of_each, has_regressed, verdict
from perfkit.measuring.format import interval, number
from perfkit.measuring.results.base import Stored
from perfkit.measuring.results.effective import WorkUnit
from perfkit.measuring.results.failures import Failure
from perfkit.measuring.results.store import (
    ResultError,
    read_as,
    write_atomically,
)
from perfkit.measuring.statistics import fewest_values, median_estimate

SCHEMA_VERSION: Literal[7] = 7
FOLDER = "comparisons"
"""Folder of interleaved comparisons below the outputs."""
FILE = "comparison.json"
TakenAs = Literal["result", "folder", "label", "published table"]


class Selection(Stored):
    """What the name A or B of a comparison selects."""

    name: str
    """name as given"""
    taken_as: TakenAs
    """what the name was found to be"""
    count: int
    """number of its measurements or published numbers"""
    left_out: list[str]
    """files that could not be read, and why"""


class ComparedNumber(Stored):
    """A measurement or a published number. Fields that a published number lacks are None."""

    name: str
    """id of the measurement, or place of the published number"""
    value: float
    """throughput"""
    unit: WorkUnit
    """unit of the throughput"""
    interval: tuple[float, float] | None = None
    """confidence interval of the median"""
    interval_level: float | None = None
    """coverage achieved, 0 to 1"""
    n: int | None = None
    """number of complete repeats"""
    repeats: int | None = None
    """number of requested repeats"""
    status: Literal["complete", "partial"] | None = None
    """status of the measurement"""
    created: str | None = None
    """start of the measurement; UTC, ISO 8601"""
    label: str | None = None
    """label of the measurement"""
    warnings: list[str] = Field(default_factory=list)
    """codes of its warnings, the worst first"""
    source: str | None = None
    """source of the published number"""


class SameWork(Stored):
    """Whether A's and B's frameworks are known to do the same work."""

    state: Literal["verified", "not the same", "not verified"]
    """outcome of the verification"""
    created: str | None = None
    """time of the verification; UTC, ISO 8601"""
    command: str
    """command that verifies it"""


class PairResult(Ratio):
    """B compared with A; the ratio is B / A."""

    keys: dict[str, KeyValue]
    """values in which both agree, by key"""
    a: ComparedNumber
    """the base"""
    b: ComparedNumber
    """the other number"""
    method: Method
    """pairs: median of the ratios of repeat k to repeat k, of interleaved repeats;
    Hodges-Lehmann: median of the ratios of all combinations of two repeats; median: median of
    the repeats, beside a published number"""
    verdict: Verdict
    """verdict on B at the comparison's level. faster, slower: the interval excludes 1; no
    difference: it contains 1 and lies within the threshold; undecided: it contains 1 and
    differences beyond the threshold, or so few repeats do not reach the level"""
    regressed: bool
    """whether B is slower, by more than the threshold"""
    across: Differences
    """differences in keys that had to agree unless allowed: key -> A's value, B's value"""
    differs: Differences
    """differences in keys that need not agree"""
    same_work: SameWork | None = None
    """None for a single framework, and beside a published number"""
    turns: list[Turn]
    """pairs of repeats, for method pairs; otherwise empty"""
    rates: list[MachineRate]
    """rates of the machine, of a configuration measured twice whose repeats were not
    interleaved; otherwise empty"""

    @property
    def ratios(self) -> list[float]:
        return [turn.ratio for turn in self.turns]

    @property
    def out_of_turn(self) -> list[int]:
        return [turn.repeat for turn in self.turns if not turn.in_turn]

    def judged_anew(self, level: float, threshold: float) -> Self:
        """Return the pair with ratio, interval and verdict of its pairs of repeats."""
        ratio = median_estimate(self.ratios, level)
        judged = estimated(ratio) | {
            "verdict": verdict(ratio, level, threshold),
            "regressed": has_regressed(ratio, level, threshold),
        }
        return self.model_copy(update=judged)

    def enough(self, level: float) -> int:
        """Return how many pairs of repeats, or repeats of each side, reach `level`."""
        if self.method == "Hodges-Lehmann":
            return fewest_of_each(level)
        return fewest_values(level)

    def __str__(self) -> str:
        ends = f" ({interval(*self.interval)})" if self.has_level(LEVEL) else ""
        return f"{self.b.name} {number(self.ratio)} × {self.a.name}{ends}, {self.verdict}"


class Unmeasured(Stored):
    """A measurement without a number."""

    side: Literal["A", "B"]
    """its side"""
    name: str
    """its id"""
    failure: Failure | None
    """why it failed; None if it is not finished"""
    partner: str | None
    """measurement of the other side that has a number and no other partner"""

    @property
    def reason(self) -> str:
        """Why it has no number."""
        return self.failure.line() if self.failure else "not finished"

    @property
    def regressed(self) -> bool:
        """Whether B failed where A has a number."""
        return bool(self.side == "B" and self.partner and self.failure)


class Comparison(Stored):
    """Pairs of measurements, B compared with A, the base: ratios above 1 mean that B is faster.
    Shares are 0 to 1."""

    schema_version: Literal[7] = SCHEMA_VERSION
    """readers refuse any other"""
    level: Annotated[float, Field(ge=0.5, lt=1)]
    """confidence level, as requested"""
    threshold: float
    """slowdown above which B has regressed, as requested"""
    pairs: list[PairResult]
    """the compared pairs"""
    regressed: bool
    """whether a pair has regressed, or B failed where A has a number; the exit status is then
    1"""

    def __str__(self) -> str:
        return "\n".join(map(str, self.pairs))


class SelectedComparison(Comparison):
    """Stored measurements or published numbers, selected by two names."""

    a: Selection
    """the base"""
    b: Selection
    """what is compared with it"""
    across: list[str]
    """keys that were allowed to differ"""
    alone_a: list[str]
    """measurements of A with a number, without a partner"""
    alone_b: list[str]
    """measurements of B with a number, without a partner"""
    failed: list[Unmeasured]
    """measurements without a number"""


class Variant(Stored):
    """A variant of an interleaved comparison, and its measurement."""

    name: str
    """name as typed"""
    values: dict[str, KeyValue]
    """parameters that it sets"""
    id: str
    """id of its measurement"""
    number: ComparedNumber | None
    """its number; None without a complete repeat"""
    failure: Failure | None
    """why it made no further repeats; None if it did not fail"""
    differs: Differences
    """differences from the base that no variant sets, in keys that must agree; with any, the
    variant has no ratio and makes no further repeats"""
    matmul_flops_per_second: float | None
    """its measured peak, the median of its repeats"""
    share_of_peak: float | None
    """the model's arithmetic as a share of the highest peak of any repeat of any variant, 0 to
    1: relative to its own, a variant with a low peak would look efficient"""


class InterleavedComparison(Comparison):
    """Variants compared with the first one, the base, which is A of all pairs."""

    created: str
    """start of the first variant; UTC, ISO 8601"""
    command: str
    """command that repeats the comparison"""
    model: Annotated[str, Field(min_length=1, max_length=255)]
    """the model, or the name of a script's file; untrusted text"""
    named: list[str]
    """parameters that variants set"""
    repeats: int
    """number of requested repeats of each variant"""
    variants: Annotated[list[Variant], Field(min_length=2)]
    """the variants, the base first; each other one that has a ratio makes a pair"""

    @property
    def base(self) -> Variant:
        return self.variants[0]

    @property
    def model_size(self) -> str:
        """The size of the model if all variants have the same one, else empty."""
        size = self.pairs[0].keys.get("model_size") if self.pairs else None
        return str(size or "")

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


def comparison_folders(outputs: Path) -> Iterator[Path]:
    """Yield the folders of the interleaved comparisons under `outputs`, by name."""
    for path in sorted(outputs.glob(f"{FOLDER}/*/{FILE}")):
        yield path.parent


def read_comparison(folder: Path) -> InterleavedComparison:
    """Read the comparison in `folder`. Raises ResultError."""
    return read_as(InterleavedComparison, folder / FILE)


def write_comparison(folder: Path, comparison: InterleavedComparison) -> None:
    """Replace the comparison in `folder` atomically. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / FILE, comparison.model_dump_json(indent=1) + "\n")


def comparisons_with(
    outputs: Path, measurement_id: str
) -> Iterator[tuple[str, InterleavedComparison]]:
    """Yield the readable interleaved comparisons under `outputs` that have this measurement,
    each after its folder below `outputs`."""
    for folder in comparison_folders(outputs):
        with suppress(ResultError, OSError):
            # Reading all of them for each page would be slow.
            if measurement_id.encode() in (folder / FILE).read_bytes():
                yield folder.relative_to(outputs).as_posix(), read_comparison(folder)
