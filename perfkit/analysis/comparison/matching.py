"""Comparisons of what A and B select: which measurements are paired, and why others are not."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Literal, NamedTuple

from perfkit.analysis.comparison.keys import (
    KeyValue,
    allowed,
    differing,
    format_pair,
)
from perfkit.analysis.comparison.pairs import (
    Operand,
    Pair,
    differences,
    from_cell,
    judge_pair,
    measured,
    ratio_of_pair,
)
from perfkit.analysis.comparison.selections import ComparisonError, Selected
from perfkit.analysis.comparison.stored import SelectedComparison, Unmeasured
from perfkit.measuring.results.frames import row_order

MOST_NAMED = 5
"""Most problems of a kind, or names in a problem, in an error."""


class Matching(NamedTuple):
    """The pairs of what A and B select, and what has no partner or no number."""

    pairs: list[Pair]
    alone_a: list[Operand]
    alone_b: list[Operand]
    failed: list[Unmeasured]

    @property
    def lost(self) -> bool:
        """Whether a measurement of B failed where A has a number."""
        return any(each.regressed for each in self.failed)


def compare_selected(
    a: Selected, b: Selected, across: Sequence[str], level: float, threshold: float
) -> SelectedComparison:
    """Compare the pairs of A and B whose keys that should agree differ only in `across`.

    A published number is compared with every measurement in its place, a measurement with a
    single one. Raises ComparisonError if a measurement has several partners, or if none has any
    and no measurement of B failed where A has a number.
    """
    matching = _matching(a, b, across)
    results = []
    for pair in matching.pairs:
        ratio = ratio_of_pair(pair, level)
        results.append(judge_pair(pair, ratio, level, threshold))
    return SelectedComparison(
        a=a.stored,
        b=b.stored,
        level=level,
        threshold=threshold,
        across=list(dict.fromkeys(across)),
        pairs=results,
        alone_a=[operand.name for operand in matching.alone_a],
        alone_b=[operand.name for operand in matching.alone_b],
        failed=matching.failed,
        regressed=matching.lost or any(pair.regressed for pair in results),
    )


def _matching(a: Selected, b: Selected, across: Sequence[str]) -> Matching:
    """Return the pairs that may be compared. Raises ComparisonError."""
    if a.cells and b.cells:
        raise ComparisonError(["A and B are both published; one of them must be measured"])
    a_operands, b_operands = _operands(a), _operands(b)
    numbers_a = [operand for operand in a_operands if operand.has_number]
    numbers_b = [operand for operand in b_operands if operand.has_number]
    candidates = _candidates(numbers_a, numbers_b)
    pairs = [pair for pair in candidates if pair.across.keys() <= allowed(across, pair.across)]
    paired = {id(pair.a) for pair in pairs} | {id(pair.b) for pair in pairs}
    alone_a = [operand for operand in numbers_a if id(operand) not in paired]
    alone_b = [operand for operand in numbers_b if id(operand) not in paired]
    failed = [
        *_unmeasured("A", a_operands, alone_b, across),
        *_unmeasured("B", b_operands, alone_a, across),
    ]
    matching = Matching(pairs, alone_a, alone_b, failed)
    problems = [*islice(_contradictions(pairs), MOST_NAMED)]
    if not (a.cells or b.cells):
        problems += _ambiguities(pairs)
    if not (pairs or matching.lost):
        problems = [
            *_missing_numbers(failed),
            *_differing_pair(numbers_a, numbers_b, candidates),
        ]
    if problems:
        raise ComparisonError(problems)
    return matching


def _operands(selected: Selected) -> list[Operand]:
    """Return the measurements, sorted by model and `row_order`, or the published numbers."""
    operands = [measured(measurement) for measurement in selected.measurements]
    operands.sort(key=lambda operand: (operand.row["model"], *row_order(operand.row)))
    return operands + [from_cell(cell) for cell in selected.cells]


def _candidates(numbers_a: Iterable[Operand], numbers_b: Sequence[Operand]) -> list[Pair]:
    """Return all pairs, with a published number only the measurements in its place."""
    candidates = []
    for a in numbers_a:
        for b in numbers_b:
            if (a.measurement and b.measurement) or a.place == b.place:
                candidates.append(Pair(a, b, differences(a, b)))
    return candidates


def _unmeasured(
    side: Literal["A", "B"],
    operands: Iterable[Operand],
    others: Iterable[Operand],
    across: Iterable[str],
) -> Iterator[Unmeasured]:
    """Yield the measurements without a number, each with the first of the `others` that did the
    requested work on the same hardware as its partner."""
    for operand in operands:
        if operand.has_number:
            continue
        assert operand.measurement
        partner = None
        for other in others:
            if other.measurement:
                differs = differing(_requested(operand), _requested(other))
                if differs.keys() <= allowed(across, differs):
                    partner = other.name
                    break
        failure = operand.measurement.result.failure
        yield Unmeasured(side=side, name=operand.name, failure=failure, partner=partner)


def _requested(operand: Operand) -> dict[str, KeyValue]:
    """Return the keys as requested, without those that only workers report."""
    assert operand.measurement
    work = operand.measurement.result.work
    keys = {key: value for key, value in operand.keys.items() if key not in work.reported}
    return keys | work.model_dump(include={"precision", "tf32"})


# Why nothing is compared.


def _contradictions(pairs: list[Pair]) -> Iterator[str]:
    """Yield errors for pairs of a measurement with itself, and of different units."""
    for a, b, _across in pairs:
        if a.measurement and b.measurement and a.measurement.result == b.measurement.result:
            yield f"A and B name the same measurement, {a.name}"
        if a.unit != b.unit:
            yield f"{a.name} is in {a.unit}, {b.name} in {b.unit}"


def _ambiguities(pairs: list[Pair]) -> list[str]:
    """Return errors for measurements with several partners."""
    partners: dict[tuple[Literal["A", "B"], str], list[str]] = {}
    for pair in pairs:
        partners.setdefault(("A", pair.b.name), []).append(pair.a.name)
        partners.setdefault(("B", pair.a.name), []).append(pair.b.name)
    problems = []
    for (side, name), names in sorted(partners.items()):
        if len(names) > 1:
            first = ", ".join(names[:MOST_NAMED])
            more = " …" if len(names) > MOST_NAMED else ""
            problems.append(
                f"{name} matches {len(names)} measurements in {side}: {first}{more}; pick one "
                "by its folder, or select a label"
            )
    return problems[:MOST_NAMED]


def _missing_numbers(failed: list[Unmeasured]) -> Iterator[str]:
    for each in failed[:MOST_NAMED]:
        yield f"{each.side} {each.name} has no number: {each.reason}"


def _differing_pair(
    numbers_a: list[Operand], numbers_b: list[Operand], candidates: list[Pair]
) -> Iterator[str]:
    """Yield, line by line, the keys in which the closest pair differs, if there is a pair at
    all. Without candidates, no measurement has the place of a published number."""
    pairs = candidates or [Pair(a, b, differences(a, b)) for a in numbers_a for b in numbers_b]
    if not pairs:
        return
    nearest = min(pairs, key=lambda pair: len(pair.across))
    if len(pairs) > 1:
        yield "nothing in A agrees with anything in B; the closest pair:"
    yield f"A {nearest.a.name}"
    yield f"B {nearest.b.name}"
    yield "differ in"
    for key, both in nearest.across.items():
        yield f"  {key}: {format_pair(key, *both)}"
    if candidates:
        yield "to compare them anyway, and record the differences:"
        yield "  " + " ".join(f"--across {key}" for key in nearest.across)
    else:
        yield "a published number is compared with measurements in its place only"
