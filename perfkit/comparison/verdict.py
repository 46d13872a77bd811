"""Estimate, interval and verdict of each pair: a comparison as it is stored."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from perfkit.analysis.sanity import warnings_about
from perfkit.comparison.keys import Value
from perfkit.comparison.pairs import Measured, Pair, Pairing, Published, Side, Unit
from perfkit.comparison.sources import Source, TakenAs
from perfkit.reference import matches
from perfkit.results.schema import Failure, Stored
from perfkit.statistics import Estimate, median_estimate, ratio_interval
from perfkit.text.terminal import plain
from perfkit.verification.stored import verification_of
from perfkit.verification.words import command

Verdict = Literal["faster", "slower", "no difference", "undecided"]
Both = Annotated[dict[str, tuple[Value, Value]], Field(description="key -> A's value and B's")]


class Named(Stored):
    """What A or B is: a name and what it was taken for."""

    name: str
    taken_as: TakenAs
    count: Annotated[int, Field(description="measurements, or published numbers")]
    left_out: Annotated[list[str], Field(description="files that could not be read, and why")]


class Number(Stored):
    """A measurement of a pair, or a published number, which has only what is not None."""

    name: Annotated[str, Field(description="a measurement's id; a published number's place")]
    value: float
    unit: Unit
    interval: tuple[float, float] | None = None
    interval_level: float | None = None
    n: Annotated[int | None, Field(description="complete repeats")] = None
    repeats: Annotated[int | None, Field(description="repeats asked for")] = None
    status: Literal["complete", "partial"] | None = None
    created: str | None = None
    label: str | None = None
    warnings: list[str] = Field(
        default_factory=list, description="names of what speaks against the number"
    )
    source: Annotated[str | None, Field(description="where it was published")] = None


class SameWork(Stored):
    """What is known of whether A's framework and B's do the same work."""

    state: Literal["verified", "not the same", "not verified"]
    created: Annotated[str | None, Field(description="of the verification")] = None
    command: Annotated[
        str, Field(description="that verifies it, or does so again; empty if one is imported")
    ]


class Judged(Stored):
    """B against A."""

    keys: Annotated[dict[str, Value], Field(description="in what both agree")]
    a: Number
    b: Number
    ratio: Annotated[float, Field(gt=0, description="B / A; Hodges-Lehmann if both repeat")]
    interval: tuple[float, float]
    interval_level: Annotated[float, Field(description="coverage achieved, 0 to 1")]
    verdict: Annotated[Verdict, Field(description="of B, at the comparison's level")]
    regressed: Annotated[bool, Field(description="slower, and by more than the threshold")]
    across: Both
    differs: Both
    same_work: Annotated[
        SameWork | None, Field(description="None: one framework, or a published number")
    ] = None

    @property
    def published(self) -> bool:
        return self.a.source is not None or self.b.source is not None

    @property
    def seconds_apart(self) -> int | None:
        """From the beginning of one measurement to that of the other."""
        if not (self.a.created and self.b.created):
            return None
        moments = map(datetime.fromisoformat, (self.a.created, self.b.created))
        return abs(round(next(moments).timestamp() - next(moments).timestamp()))


class Unmeasured(Stored):
    """A measurement without a number."""

    side: Literal["A", "B"]
    name: str
    failure: Annotated[Failure | None, Field(description="None: it is not finished")]
    partner: Annotated[
        str | None,
        Field(description="who has the number on the other side, and no other partner"),
    ]


class Comparison(Stored):
    """B against A, the base; ratios above 1 say that B is faster. Shares are 0 to 1."""

    schema_version: Literal[2] = 2
    a: Named
    b: Named
    level: Annotated[float, Field(description="that was asked for")]
    threshold: float
    across: Annotated[list[str], Field(description="keys that were allowed to differ")]
    pairs: list[Judged]
    alone_a: Annotated[list[str], Field(description="with a number, but without partner in B")]
    alone_b: list[str]
    failed: list[Unmeasured]
    regressed: Annotated[
        bool, Field(description="a pair has, or B failed where A has a number: exit status 1")
    ]

    def __str__(self) -> str:
        from perfkit.comparison.words import text

        return text(self)


def judged(
    pairing: Pairing,
    a: Source,
    b: Source,
    across: Sequence[str],
    level: float,
    threshold: float,
) -> Comparison:
    """The comparison of these pairs."""
    pairs = [
        judged_pair(pair, _ratio(pair.a, pair.b, level), level, threshold)
        for pair in pairing.pairs
    ]
    failed = [
        Unmeasured(
            side=one.side, name=one.measured.name, failure=one.failure, partner=one.partner
        )
        for one in pairing.failed
    ]
    lost = any(one.side == "B" and one.partner for one in failed)
    return Comparison(
        a=_named(a),
        b=_named(b),
        level=level,
        threshold=threshold,
        across=list(dict.fromkeys(across)),
        pairs=pairs,
        alone_a=[side.name for side in pairing.alone_a],
        alone_b=[side.name for side in pairing.alone_b],
        failed=failed,
        regressed=lost or any(pair.regressed for pair in pairs),
    )


def verdict(ratio: Estimate, level: float) -> Verdict:
    """What the interval says of B at `level`: it has 1 in it, or not."""
    if ratio.level < level:
        return "undecided"
    if ratio.low > 1:
        return "faster"
    return "slower" if ratio.high < 1 else "no difference"


def judged_pair(pair: Pair, ratio: Estimate, level: float, threshold: float) -> Judged:
    """A pair whose ratio is known."""
    said = verdict(ratio, level)
    return Judged(
        keys=_agreed(pair.a, pair.b),
        a=number_of(pair.a),
        b=number_of(pair.b),
        ratio=ratio.value,
        interval=(ratio.low, ratio.high),
        interval_level=ratio.level,
        verdict=said,
        regressed=said == "slower" and ratio.value < 1 - threshold,
        across=pair.across,
        differs=pair.differs,
        same_work=_same_work(pair.a, pair.b),
    )


def _same_work(one: Side, other: Side) -> SameWork | None:
    if not (isinstance(one, Measured) and isinstance(other, Measured)):
        return None
    results = one.measurement.result, other.measurement.result
    if results[0].config.framework == results[1].config.framework:
        return None
    imported = any(result.imported for result in results)
    verify = "" if imported else command(*(result.config for result in results))
    for measured in (one, other):
        if found := verification_of(measured.measurement.folder.parent, *results):
            verification, *sides = found
            return SameWork(
                state="verified" if verification.agree(*sides) else "not the same",
                created=verification.created,
                command=verify,
            )
    return SameWork(state="not verified", command=verify)


def _ratio(base: Side, other: Side, level: float) -> Estimate:
    """`other` / `base`. A published number has no repeats: then the interval is that of the
    measured median, as if what was published were exact."""
    match base, other:
        case Measured(one), Measured(its):
            return ratio_interval(its.result.throughputs, one.result.throughputs, level)
        case Published(cell), Measured(measurement):
            own = median_estimate(measurement.result.throughputs, level)
            published = cell["throughput"]
            ends = (own.value / published, own.low / published, own.high / published)
            return Estimate(*ends, own.level)
        case Measured(measurement), Published(cell):
            own = median_estimate(measurement.result.throughputs, level)
            published = cell["throughput"]
            ends = (published / own.value, published / own.high, published / own.low)
            return Estimate(*ends, own.level)
    raise TypeError("two published numbers")


def _agreed(one: Side, other: Side) -> dict[str, Value]:
    if isinstance(one, Measured) and isinstance(other, Measured):
        return {key: value for key, value in one.keys.items() if value == other.keys.get(key)}
    cell = next(side.cell for side in (one, other) if isinstance(side, Published))
    return matches.place_of(cell)


def number_of(side: Side) -> Number:
    """The number of a side that has one."""
    if isinstance(side, Published):
        cell = side.cell
        return Number(
            name=side.name, value=cell["throughput"], unit=side.unit, source=cell["source"]
        )
    result = side.measurement.result
    assert result.throughput and result.status != "failed"
    return Number(
        name=side.name,
        value=result.throughput.value,
        unit=side.unit,
        interval=result.throughput.interval,
        interval_level=result.throughput.interval_level,
        n=result.throughput.n,
        repeats=result.protocol.repeats,
        status=result.status,
        created=result.created,
        label=result.config.label,
        warnings=[warning.code for warning in warnings_about(side.measurement)],
    )


def _named(source: Source) -> Named:
    return Named(
        name=plain(source.name),
        taken_as=source.taken_as,
        count=len(source.cells or source.measurements),
        left_out=[plain(reason) for reason in source.left_out],
    )
