"""Which measurement of A stands against which of B, or why none does."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from perfkit.comparison.keys import (
    KEYS,
    SEEN,
    Differences,
    Value,
    allowed,
    beside,
    differing,
    may_differ,
    must_agree,
)
from perfkit.comparison.sources import ComparisonError, Source
from perfkit.models import MODELS
from perfkit.reference import matches
from perfkit.reference.cells import Cell
from perfkit.results.frames import row_of, row_order
from perfkit.results.schema import Failure
from perfkit.results.store import Measurement
from perfkit.text.messages import coded
from perfkit.text.terminal import plain

Unit = Literal["images/s", "sequences/s"]
SHOWN = 5
"""So many of a kind are named in an error."""


@dataclass(frozen=True)
class Measured:
    """A measurement as one side of a pair."""

    measurement: Measurement

    @property
    def name(self) -> str:
        return plain(self.measurement.result.id)

    @cached_property
    def keys(self) -> dict[str, Value]:
        return must_agree(self.measurement)

    @cached_property
    def asked(self) -> dict[str, Value]:
        """The keys as they are before workers show more."""
        asked = {key: value for key, value in self.keys.items() if key not in SEEN}
        config = self.measurement.result.config
        return asked | {"precision": config.precision, "tf32": config.tf32}

    @cached_property
    def also(self) -> dict[str, Value]:
        return may_differ(self.measurement)

    @cached_property
    def row(self) -> dict[str, Any]:
        row = row_of(self.measurement)
        return row | {"effective.precision": row.get("effective.precision") or "not told"}

    @property
    def unit(self) -> Unit:
        return MODELS[self.measurement.result.config.model].unit


@dataclass(frozen=True)
class Published:
    """A published number as one side of a pair."""

    cell: Cell

    @property
    def name(self) -> str:
        c = self.cell
        words = [c["table"], c["framework"], c["precision"], c["topology"]]
        note = f" ({c['note']})" if c["note"] else ""
        return f"{' '.join(words)} b{c['batch_per_gpu']} on {c['gpu']}{note}"

    @property
    def unit(self) -> Unit:
        """The model's: where a source says samples/s, its samples are images."""
        return MODELS[matches.place_of(self.cell)["model"]].unit


Side = Measured | Published


@dataclass(frozen=True)
class Pair:
    """B against A: `across` has in what they differ that should agree, `differs` what else."""

    a: Side
    b: Side
    across: Differences
    differs: Differences


def why_no_number(failure: Failure | None) -> str:
    """Why a measurement has no number."""
    return coded(failure) if failure else "not finished"


@dataclass(frozen=True)
class Failed:
    """A measurement of `side` without a number, and who on the other side has the number that
    it lacks, if one does."""

    side: Literal["A", "B"]
    measured: Measured
    partner: str | None

    @property
    def failure(self) -> Failure | None:
        """None of a measurement that is not finished."""
        return self.measured.measurement.result.failure


@dataclass(frozen=True)
class Pairing:
    """The pairs; who has a number and is in none; who has no number."""

    pairs: list[Pair]
    alone_a: list[Side]
    alone_b: list[Side]
    failed: list[Failed]


def paired(a: Source, b: Source, across: frozenset[str]) -> Pairing:
    """The pairs of A and B that differ in nothing but `across`, of what should agree.

    A published number stands against every measurement in its place; a measurement, against
    one. Raises ComparisonError where one has several partners, or none at all has one.
    """
    if a.cells and b.cells:
        raise ComparisonError(["A and B are both published; one of them must be measured"])
    ones, failed_a = _with_numbers(a)
    others, failed_b = _with_numbers(b)
    table = bool(a.cells or b.cells)
    near = [pair_of(one, other) for one, other in _in_one_place(ones, others, across, table)]
    pairs = [pair for pair in near if pair.across.keys() <= allowed(across, pair.across)]
    taken = {id(side) for pair in pairs for side in (pair.a, pair.b)}
    alone_a = [one for one in ones if id(one) not in taken]
    alone_b = [other for other in others if id(other) not in taken]
    failed = [Failed("A", one, _partner(one, alone_b, across)) for one in failed_a]
    failed += [Failed("B", one, _partner(one, alone_a, across)) for one in failed_b]
    if not pairs:
        problems = [
            f"{one.side} {one.measured.name} has no number: {why_no_number(one.failure)}"
            for one in failed[:SHOWN]
        ]
        if ones and others:
            problems += _refusal(ones, others, near, table)
        raise ComparisonError(problems)
    if problems := [*_same(pairs), *_units(pairs), *([] if table else _ambiguous(pairs))]:
        raise ComparisonError(problems)
    return Pairing(pairs, alone_a, alone_b, failed)


def pair_of(one: Side, other: Side) -> Pair:
    """The two with all in which they differ."""
    return Pair(one, other, differences(one, other), _also(one, other))


def differences(one: Side, other: Side) -> Differences:
    """In what two sides differ that should agree. From a published number, that is the place in
    its table or, where this is the same, what its source tells of the work."""
    match one, other:
        case Measured(), Measured():
            return differing(one.keys, other.keys)
        case Published(), Measured():
            return _from_published(one, other)
        case Measured(), Published():
            return {key: (y, x) for key, (x, y) in _from_published(other, one).items()}
    raise TypeError("two published numbers")


def _from_published(one: Published, other: Measured) -> Differences:
    if elsewhere := differing(matches.place_of(one.cell), matches.place(other.row)):
        return elsewhere
    found = matches.differing(one.cell, other.row)
    return {"gpus" if key == "gpu" else key: values for key, values in found.items()}


def _also(one: Side, other: Side) -> Differences:
    """In what two measurements differ that may; of a published number that is not known."""
    if isinstance(one, Published) or isinstance(other, Published):
        return {}
    values = {key: (one.also.get(key), other.also.get(key)) for key in one.also | other.also}
    return {key: (value, its) for key, (value, its) in values.items() if value != its}


def _with_numbers(source: Source) -> tuple[list[Side], list[Measured]]:
    """The sides with a number, and the measurements without, in the order of a series."""
    measured = [Measured(one) for one in source.measurements]
    measured.sort(key=lambda one: (one.row["model"], *row_order(one.row)))
    sides: list[Side] = [Published(cell) for cell in source.cells]
    sides += [one for one in measured if one.measurement.result.throughput]
    return sides, [one for one in measured if not one.measurement.result.throughput]


def _in_one_place(
    ones: list[Side], others: list[Side], across: frozenset[str], table: bool
) -> Iterator[tuple[Side, Side]]:
    """Those that may be pairs: alike in all that both have for sure and that is not crossed."""
    measured = [side.keys.keys() for side in (*ones, *others) if isinstance(side, Measured)]
    not_all_have = {*KEYS} - {*KEYS}.intersection(*measured)
    open_keys = {*allowed(across, across), *not_all_have, "input_sha256"}

    def where(side: Side) -> tuple[Any, ...]:
        if isinstance(side, Published):
            return tuple(matches.place_of(side.cell).values())
        if table:
            return tuple(matches.place(side.row).values())
        return tuple(value for key, value in side.keys.items() if key not in open_keys)

    places: dict[tuple[Any, ...], list[Side]] = {}
    for other in others:
        places.setdefault(where(other), []).append(other)
    for one in ones:
        for other in places.get(where(one), []):
            yield one, other


def _partner(failed: Measured, sides: Iterable[Side], across: frozenset[str]) -> str | None:
    """Who did the work that `failed` was asked for, on the same hardware."""
    for side in sides:
        if isinstance(side, Measured):
            found = differing(failed.asked, side.asked)
            if found.keys() <= allowed(across, found):
                return side.name
    return None


def _refusal(ones: list[Side], others: list[Side], near: list[Pair], table: bool) -> list[str]:
    """In which keys the nearest two differ, and what to type where that is meant."""
    found = near or (
        Pair(one, other, differences(one, other), {}) for one in ones for other in others
    )
    nearest = min(found, key=lambda pair: len(pair.across))
    lines = [f"A {nearest.a.name}", f"B {nearest.b.name}", "differ in"]
    lines += [f"  {key}: {beside(key, *values)}" for key, values in nearest.across.items()]
    if len(ones) > 1 or len(others) > 1:
        lines.insert(0, "none of A agrees with one of B in all that must; the nearest two:")
    if table and not near:
        return [*lines, "a published number stands against measurements in its own place only"]
    options = " ".join(f"--across {key}" for key in nearest.across)
    return [*lines, "to compare them nevertheless, and have the result say so:", f"  {options}"]


def _same(pairs: list[Pair]) -> list[str]:
    return [
        f"A and B name the same measurement, {pair.a.name}"
        for pair in pairs
        if isinstance(pair.a, Measured)
        and isinstance(pair.b, Measured)
        and pair.a.measurement.result == pair.b.measurement.result
    ][:SHOWN]


def _units(pairs: list[Pair]) -> list[str]:
    return [
        f"{pair.a.name} is in {pair.a.unit}, {pair.b.name} in {pair.b.unit}"
        for pair in pairs
        if pair.a.unit != pair.b.unit
    ][:SHOWN]


def _ambiguous(pairs: list[Pair]) -> list[str]:
    """Who has several partners."""
    of_b: dict[str, list[str]] = {}
    of_a: dict[str, list[str]] = {}
    for pair in pairs:
        of_b.setdefault(pair.b.name, []).append(pair.a.name)
        of_a.setdefault(pair.a.name, []).append(pair.b.name)
    return [
        f"{side} has {len(partners)} to stand against {name}: {', '.join(partners[:SHOWN])}"
        f"{' …' if partners[SHOWN:] else ''}; name one by its folder, or those of one label"
        for side, found in (("A", of_b), ("B", of_a))
        for name, partners in found.items()
        if len(partners) > 1
    ][:SHOWN]
