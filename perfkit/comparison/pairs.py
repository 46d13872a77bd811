"""Which measurement of A is compared with which of B, or why none is; the ratio of each pair
with its interval and verdict."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from perfkit.analysis.ratios import Method, Turn, estimated, ratio_of, verdict
from perfkit.analysis.warnings import warnings_about
from perfkit.comparison.keys import (
    KEYS,
    SEEN,
    Differences,
    Value,
    allowed,
    differing,
    format_pair,
    may_differ,
    must_agree,
)
from perfkit.comparison.stored import (
    Comparison,
    Named,
    Number,
    PairResult,
    SameWork,
    TakenAs,
    Unmeasured,
)
from perfkit.comparison.text import why_no_number
from perfkit.config import resolved_path
from perfkit.models import MODELS
from perfkit.models.model import Unit
from perfkit.reference import RUNS, SHAPES, Cell, cells_of, matches, published
from perfkit.request import RequestError, suggest
from perfkit.results.frames import measurements, row_of, row_order
from perfkit.results.store import Measurement, ResultError, Store, read_result
from perfkit.results.summarize import check_against_raw
from perfkit.statistics import Estimate, median_estimate
from perfkit.text.terminal import plain, wrapped
from perfkit.verification import command, verification_of

LABEL = "label:"
TABLES = [table for table in SHAPES if table != RUNS]
"""Single runs are no numbers to compare with: another table has their average."""


class ComparisonError(RequestError):
    """Nothing was compared; `problems` says why, a line or more each."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        lines = [wrapped(problem, "  ") for problem in problems]
        ValueError.__init__(self, "\n".join(["Not compared.", *lines]))


@dataclass(frozen=True)
class Source:
    """What a name stands for: measurements, or cells of a published table with a number."""

    name: str
    taken_as: TakenAs
    measurements: list[Measurement] = field(default_factory=list)
    cells: list[Cell] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    @property
    def named(self) -> Named:
        """As it is stored."""
        return Named(
            name=plain(self.name),
            taken_as=self.taken_as,
            count=len(self.cells or self.measurements),
            left_out=[plain(reason) for reason in self.left_out],
        )


def source(name: str, outputs: str | Path) -> Source:
    """What `name` stands for; the first of these that there is:

    `label:NAME`, the measurements under `outputs` that have this label, or none if NAME is
    empty; a file, which is a result.json; a folder, of one measurement or of many; a published
    table; a label. A relative path starts at the checkout. Raises ComparisonError.
    """
    if name.startswith(LABEL):
        return _labelled(name.removeprefix(LABEL), outputs, [])
    path, left_out = resolved_path(name), list[str]()
    file = path if path.is_file() else Store(path).result_file
    if file.is_file():
        try:
            found = Measurement(file.parent, read_result(file))
        except ResultError as error:
            raise ComparisonError([str(error)]) from None
        if wrong := check_against_raw(found):
            raise ComparisonError([f"{file}: contradicts its raw files", *wrong])
        return Source(name, "result", [found])
    if path.is_dir():
        several = list(measurements(path, left_out))
        if not several:
            raise ComparisonError([f"no measurement that can be read in {path}", *left_out])
        return Source(name, "folder", several, left_out=left_out)
    if name in TABLES:
        cells = cells_of(published())
        numbers = [cell for cell in cells if cell["table"] == name and cell["throughput"]]
        return Source(name, "published table", cells=numbers)
    no_table = f"no published table; those are {', '.join(TABLES)}{suggest(name, TABLES)}"
    return _labelled(name, outputs, [f"no file or folder {path}", no_table])


def _labelled(label: str, outputs: str | Path, before: list[str]) -> Source:
    """The measurements of a label; `before` says what else there is not."""
    left_out: list[str] = []
    try:
        there = list(measurements(outputs, left_out))
    except ResultError as error:
        raise ComparisonError([*before, f"no label {label!r}: {error}"]) from None
    found = [one for one in there if one.result.config.label == label]
    if not found:
        known = sorted({one.result.config.label for one in there} - {""})
        problem = f"no label {label!r} under {resolved_path(str(outputs))}, which has "
        problem += f"{', '.join(known) or 'none'}{suggest(label, known)}"
        if any(one.folder.name == label for one in there):
            problem += f"; the measurement {label} is named by its folder, {outputs}/{label}"
        raise ComparisonError([*before, problem, *left_out])
    return Source(f"{LABEL}{label}", "label", found, left_out=left_out)


SHOWN = 5
"""So many of a kind are named in an error."""


@dataclass(frozen=True, eq=False)
class Side:
    """A measurement or, without one, a published number. `keys` has what must agree, of a
    published number its place; `row` is that of perfkit.load or the table's."""

    name: str
    unit: Unit
    keys: dict[str, Value]
    row: dict[str, Any]
    measurement: Measurement | None = None

    @property
    def place(self) -> dict[str, Any]:
        """Where it stands, or would stand, in a published table."""
        return matches.place(self.row) if self.measurement else self.keys

    @property
    def number(self) -> Number:
        """Of a side that has one."""
        if not self.measurement:
            value, source = self.row["throughput"], self.row["source"]
            return Number(name=self.name, value=value, unit=self.unit, source=source)
        result = self.measurement.result
        assert result.throughput and result.status != "failed"
        return Number(
            name=self.name,
            **result.throughput.model_dump(include={*Number.model_fields}),
            repeats=result.protocol.repeats,
            status=result.status,
            created=result.created,
            label=result.config.label,
            warnings=[warning.code for warning in warnings_about(self.measurement)],
        )


def measured(measurement: Measurement) -> Side:
    result, row = measurement.result, row_of(measurement)
    row["effective.precision"] = row.get("effective.precision") or "not known"
    unit = MODELS[result.config.model].unit
    return Side(plain(result.id), unit, must_agree(measurement), row, measurement)


def side_of_cell(cell: Cell) -> Side:
    """Its unit is the model's: where a source says samples/s, its samples are images."""
    place, note = matches.place_of(cell), f" ({cell['note']})" if cell["note"] else ""
    words = [cell[key] for key in ("table", "framework", "precision", "topology")]
    name = f"{' '.join(words)} b{cell['batch_per_gpu']} on {cell['gpu']}{note}"
    return Side(name, MODELS[place["model"]].unit, place, cell)


class Pair(NamedTuple):
    """B against A: `across` has in what they differ that should agree."""

    a: Side
    b: Side
    across: Differences


def differences(one: Side, other: Side) -> Differences:
    """In what two sides differ that should agree. From a published number, that is the place in
    its table or, where this is the same, what its source states of the work."""
    if one.measurement and other.measurement:
        return differing(one.keys, other.keys)
    if one.measurement:
        return {key: (y, x) for key, (x, y) in differences(other, one).items()}
    found: Any = differing(one.place, other.place) or matches.differing(one.row, other.row)
    return {"gpus" if key == "gpu" else key: values for key, values in found.items()}


def compared(
    a: Source, b: Source, across: Sequence[str], level: float, threshold: float
) -> Comparison:
    """The pairs of A and B that differ in nothing but `across`, of what should agree.

    A published number is compared with every measurement in its place; a measurement, with one.
    Raises ComparisonError where one has several partners, or none at all has one.
    """
    if a.cells and b.cells:
        raise ComparisonError(["A and B are both published; one of them must be measured"])
    (ones, failed_a), (others, failed_b) = _with_numbers(a), _with_numbers(b)
    table = bool(a.cells or b.cells)
    near = [
        Pair(one, other, differences(one, other))
        for one, other in _in_one_place(ones, others, across, table)
    ]
    pairs = [pair for pair in near if pair.across.keys() <= allowed(across, pair.across)]
    taken = {id(side) for pair in pairs for side in (pair.a, pair.b)}
    alone_a = [one for one in ones if id(one) not in taken]
    alone_b = [other for other in others if id(other) not in taken]
    failed = [_unmeasured("A", one, alone_b, across) for one in failed_a]
    failed += [_unmeasured("B", one, alone_a, across) for one in failed_b]
    problems = [*_wrong(pairs), *([] if table else _ambiguous(pairs))]
    if not pairs:
        problems = [
            f"{one.side} {one.name} has no number: {why_no_number(one.failure)}"
            for one in failed[:SHOWN]
        ]
        problems += _refusal(ones, others, near, table) if ones and others else []
    if problems or not pairs:
        raise ComparisonError(problems)
    results = [judged(pair, _ratio(pair, level), level, threshold) for pair in pairs]
    lost = any(one.side == "B" and one.partner for one in failed)
    return Comparison(
        a=a.named,
        b=b.named,
        level=level,
        threshold=threshold,
        across=list(dict.fromkeys(across)),
        pairs=results,
        alone_a=[side.name for side in alone_a],
        alone_b=[side.name for side in alone_b],
        failed=failed,
        regressed=lost or any(pair.regressed for pair in results),
    )


def _with_numbers(source: Source) -> tuple[list[Side], list[Side]]:
    """The sides with a number, and the measurements without, in the order of a series."""
    sides = [measured(one) for one in source.measurements]
    sides.sort(key=lambda one: (one.row["model"], *row_order(one.row)))
    sides += [side_of_cell(cell) for cell in source.cells]
    found = [one for one in sides if one.row.get("throughput")]
    return found, [one for one in sides if not one.row.get("throughput")]


def _in_one_place(
    ones: list[Side], others: list[Side], across: Iterable[str], table: bool
) -> Iterator[tuple[Side, Side]]:
    """Those that may be pairs: alike in all that both have for sure and that is not crossed."""
    sure = {*KEYS}.intersection(*(side.keys for side in (*ones, *others)))
    sure -= {*allowed(across, across), "input_sha256"}

    def where(side: Side) -> tuple[Any, ...]:
        values = side.place if table else {key: side.keys[key] for key in KEYS if key in sure}
        return tuple(values.values())

    places: dict[tuple[Any, ...], list[Side]] = {}
    for other in others:
        places.setdefault(where(other), []).append(other)
    for one in ones:
        for other in places.get(where(one), []):
            yield one, other


def _unmeasured(
    side: Literal["A", "B"], failed: Side, others: Iterable[Side], across: Iterable[str]
) -> Unmeasured:
    """A measurement without a number, and who of the `others` did the work that it was asked
    for, on the same hardware."""
    assert failed.measurement
    asked = _asked(failed)
    work = {one.name: differing(asked, _asked(one)) for one in others if one.measurement}
    able = (name for name, found in work.items() if found.keys() <= allowed(across, found))
    failure = failed.measurement.result.failure
    return Unmeasured(side=side, name=failed.name, failure=failure, partner=next(able, None))


def _asked(side: Side) -> dict[str, Value]:
    """The keys as they are before workers show more."""
    assert side.measurement
    config = side.measurement.result.config
    asked = {key: value for key, value in side.keys.items() if key not in SEEN}
    return asked | {"precision": config.precision, "tf32": config.tf32}


def _refusal(ones: list[Side], others: list[Side], near: list[Pair], table: bool) -> list[str]:
    """In which keys the nearest two differ, and what to type where that is meant."""
    found = near or (
        Pair(one, other, differences(one, other)) for one in ones for other in others
    )
    nearest = min(found, key=lambda pair: len(pair.across))
    lines = [f"A {nearest.a.name}", f"B {nearest.b.name}", "differ in"]
    lines += [f"  {key}: {format_pair(key, *values)}" for key, values in nearest.across.items()]
    if len(ones) > 1 or len(others) > 1:
        lines.insert(0, "nothing in A agrees with anything in B; the two nearest:")
    if table and not near:
        return [*lines, "a published number is compared with measurements in its place only"]
    options = " ".join(f"--across {key}" for key in nearest.across)
    return [*lines, "to compare them nevertheless, and have the result say so:", f"  {options}"]


def _wrong(pairs: list[Pair]) -> list[str]:
    """Pairs of a measurement with itself, and of different units."""
    same = [
        f"A and B name the same measurement, {a.name}"
        for a, b, _across in pairs
        if a.measurement and b.measurement and a.measurement.result == b.measurement.result
    ]
    units = [
        f"{a.name} is in {a.unit}, {b.name} in {b.unit}"
        for a, b, _across in pairs
        if a.unit != b.unit
    ]
    return same[:SHOWN] + units[:SHOWN]


def _ambiguous(pairs: list[Pair]) -> list[str]:
    """Who has several partners."""
    partners: dict[tuple[str, str], list[str]] = {}
    for a, b in ((pair.a.name, pair.b.name) for pair in pairs):
        partners.setdefault(("A", b), []).append(a)
        partners.setdefault(("B", a), []).append(b)
    return [
        f"{name} matches {len(found)} measurements in {side}: {', '.join(found[:SHOWN])}"
        f"{' …' if found[SHOWN:] else ''}; name one by its folder, or those of one label"
        for (side, name), found in sorted(partners.items())
        if len(found) > 1
    ][:SHOWN]


# The ratio of a pair.

Judgeable = tuple[Estimate, Method, list[Turn]]
"""B / A, how it was taken, and the pairs of repeats if they were interleaved."""


def _ratio(pair: Pair, level: float) -> Judgeable:
    """Beside a published number, which has no repeats, as if it were exact, the interval is
    that of the measured median."""
    if pair.a.measurement and pair.b.measurement:
        return ratio_of(pair.b.measurement.result, pair.a.measurement.result, level)
    a, b = (
        median_estimate(side.measurement.result.throughputs, level)
        if side.measurement
        else Estimate(value := side.row["throughput"], value, value, 1.0)
        for side in (pair.a, pair.b)
    )
    ends = (b.value / a.value, b.low / a.high, b.high / a.low)
    return Estimate(*ends, min(a.level, b.level)), "median", []


def judged(pair: Pair, found: Judgeable, level: float, threshold: float) -> PairResult:
    """A pair whose ratio is known; in what else the two of it differ is not known of a
    published number."""
    a, b, across = pair
    ratio, method, turns = found
    said, keys = verdict(ratio, level), b.keys if a.measurement else a.keys
    differs: Differences = {}
    same_work: SameWork | None = None
    if a.measurement and b.measurement:
        keys = {key: value for key, value in a.keys.items() if value == b.keys.get(key)}
        one, other = may_differ(a.measurement), may_differ(b.measurement)
        both = {key: (one.get(key), other.get(key)) for key in one | other}
        differs = {key: values for key, values in both.items() if values[0] != values[1]}
        same_work = _same_work(a.measurement, b.measurement)
    return PairResult(
        **estimated(ratio),
        keys=keys,
        a=a.number,
        b=b.number,
        method=method,
        verdict=said,
        regressed=said == "slower" and ratio.value < 1 - threshold,
        across=across,
        differs=differs,
        same_work=same_work,
        turns=turns,
    )


def _same_work(*both: Measurement) -> SameWork | None:
    one, other = (measurement.result for measurement in both)
    if one.config.framework == other.config.framework:
        return None
    verify = "" if one.imported or other.imported else command(one.config, other.config)
    for measurement in both:
        if found := verification_of(measurement.folder.parent, one, other):
            verification, *sides = found
            return SameWork(
                state="verified" if verification.agree(*sides) else "not the same",
                created=verification.created,
                command=verify,
            )
    return SameWork(state="not verified", command=verify)
