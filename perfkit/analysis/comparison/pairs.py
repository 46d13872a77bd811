"""The sources A and B of a comparison, the pairs of their measurements, and the ratio of each
pair with its interval and verdict."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, product
from pathlib import Path
from typing import Any, Literal, NamedTuple

from perfkit.analysis.comparison.keys import (
    SEEN,
    Differences,
    KeyValue,
    allowed,
    differing,
    format_pair,
    may_differ,
    must_agree,
)
from perfkit.analysis.comparison.stored import (
    ComparedNumber,
    Comparison,
    PairResult,
    SameWork,
    Selection,
    TakenAs,
    Unmeasured,
)
from perfkit.analysis.published import RUNS, SHAPES, Cell, cells_of, matches, published
from perfkit.analysis.ratios import Method, Turn, judgement, ratio_of
from perfkit.analysis.verification.command import verify_command
from perfkit.analysis.verification.matching import verification_of
from perfkit.analysis.warnings import check
from perfkit.core.format import plain
from perfkit.core.models import model_named, model_of
from perfkit.core.models.model import Unit
from perfkit.core.paths import resolved_path
from perfkit.core.request import RequestError, suggest
from perfkit.core.results.frames import row_of, row_order
from perfkit.core.results.outputs import agreeing, measurements
from perfkit.core.results.store import Measurement, ResultError, Store, read_result
from perfkit.core.results.summarize import check_against_raw
from perfkit.core.statistics import Estimate, median_estimate

LABEL = "label:"
TABLES = [table for table in SHAPES if table != RUNS]
"""Tables that can be compared: single runs are left out, since another table averages them."""


class ComparisonError(RequestError):
    """Nothing was compared; `problems` lists the reasons, each of one or more lines."""

    heading = "Not compared."


@dataclass(frozen=True)
class Source:
    """The measurements, or the cells of a published table with a number, that a name means."""

    name: str
    taken_as: TakenAs
    measurements: list[Measurement] = field(default_factory=list)
    cells: list[Cell] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    @property
    def named(self) -> Selection:
        return Selection(
            name=plain(self.name),
            taken_as=self.taken_as,
            count=len(self.cells or self.measurements),
            left_out=[plain(reason) for reason in self.left_out],
        )


def source(name: str, outputs: str | Path) -> Source:
    """Return the source that `name` means, the first of:

    `label:NAME`, the measurements under `outputs` with this label, or without a label if NAME
    is empty; a result.json; a folder of one or many measurements; the id of a measurement under
    `outputs`; a published table; a label. A relative path starts at the checkout. Raises
    ComparisonError if there is none.
    """
    if name.startswith(LABEL):
        return _labelled(name.removeprefix(LABEL), outputs, [])
    path, left_out = resolved_path(name), list[str]()
    below = resolved_path(str(outputs)) / name
    path = below if not path.exists() and Store(below).result_file.is_file() else path
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
        several = list(agreeing(measurements(path, left_out), left_out))
        if not several:
            raise ComparisonError([f"no readable measurement in {path}", *left_out])
        return Source(name, "folder", several, left_out=left_out)
    if name in TABLES:
        cells = cells_of(published())
        numbers = [cell for cell in cells if cell["table"] == name and cell["throughput"]]
        return Source(name, "published table", cells=numbers)
    no_table = f"no such published table; there are {', '.join(TABLES)}{suggest(name, TABLES)}"
    return _labelled(name, outputs, [f"no file or folder {path}", no_table])


def _labelled(label: str, outputs: str | Path, before: list[str]) -> Source:
    """Return the measurements of a label; `before` has the problems found so far."""
    left_out: list[str] = []
    try:
        every = list(measurements(outputs, left_out))
    except ResultError as error:
        raise ComparisonError([*before, f"no label {label!r}: {error}"]) from None
    labelled = [found for found in every if found.result.config.label == label]
    if not labelled:
        known = sorted({measurement.result.config.label for measurement in every} - {""})
        problem = f"no label {label!r} under {resolved_path(str(outputs))}, which has "
        problem += f"{', '.join(known) or 'none'}{suggest(label, known)}"
        raise ComparisonError([*before, problem, *left_out])
    compared = list(agreeing(labelled, left_out))
    if not compared:
        raise ComparisonError([*before, f"no measurement to compare of {label!r}", *left_out])
    return Source(f"{LABEL}{label}", "label", compared, left_out=left_out)


SHOWN = 5
"""Most problems or names of a kind in an error."""


@dataclass(frozen=True, eq=False)
class Side:
    """A measurement, or a published number if `measurement` is None. `keys` has the values that
    must agree, for a published number its place in the table; `row` is the measurement's row of
    perfkit.load or the table's."""

    name: str
    unit: Unit
    keys: dict[str, KeyValue]
    row: dict[str, Any]
    measurement: Measurement | None = None

    @property
    def place(self) -> dict[str, Any]:
        """The place, or the possible place, in a published table."""
        return matches.place(self.row) if self.measurement else self.keys

    @property
    def number(self) -> ComparedNumber:
        """The stored form of a side that has a number."""
        if not self.measurement:
            value, source = self.row["throughput"], self.row["source"]
            return ComparedNumber(name=self.name, value=value, unit=self.unit, source=source)
        result = self.measurement.result
        assert result.throughput and result.status != "failed"
        return ComparedNumber(
            name=self.name,
            **result.throughput.model_dump(include={*ComparedNumber.model_fields}),
            repeats=result.protocol.repeats,
            status=result.status,
            created=result.created,
            label=result.config.label,
            warnings=[warning.code for warning in check(self.measurement).warnings],
        )


def measured(measurement: Measurement) -> Side:
    result, row = measurement.result, row_of(measurement)
    row["effective.precision"] = row.get("effective.precision") or "not known"
    unit = model_of(result.config).unit
    return Side(plain(result.id), unit, must_agree(measurement), row, measurement)


def side_of_cell(cell: Cell) -> Side:
    """Return the side of a published number. Its unit is the model's: the samples of a source
    in samples/s are images."""
    place, note = matches.place_of(cell), f" ({cell['note']})" if cell["note"] else ""
    words = [cell[key] for key in ("table", "framework", "precision", "topology")]
    name = f"{' '.join(words)} b{cell['batch_per_gpu']} on {cell['gpu']}{note}"
    return Side(name, model_named(place["model"]).unit, place, cell)


class Pair(NamedTuple):
    """B compared with A; `across` has the differences in keys that should agree."""

    a: Side
    b: Side
    across: Differences


def differences(a: Side, b: Side) -> Differences:
    """Return the differences in keys that should agree. For a published number, these are the
    place in its table or, if that agrees, the work as its source states it."""
    if a.measurement and b.measurement:
        return differing(a.keys, b.keys)
    if a.measurement:
        return {key: (y, x) for key, (x, y) in differences(b, a).items()}
    found: Any = differing(a.place, b.place) or matches.differing(a.row, b.row)
    return {"gpus" if key == "gpu" else key: values for key, values in found.items()}


def compared(
    a: Source, b: Source, across: Sequence[str], level: float, threshold: float
) -> Comparison:
    """Compare the pairs of A and B whose keys that should agree differ only in `across`.

    A published number is compared with every measurement in its place, a measurement with a
    single one. Raises ComparisonError if a measurement has several partners, or if none has any
    and no measurement of B failed where A has a number.
    """
    if a.cells and b.cells:
        raise ComparisonError(["A and B are both published; one of them must be measured"])
    (sides_a, failed_a), (sides_b, failed_b) = _with_numbers(a), _with_numbers(b)
    table = bool(a.cells or b.cells)
    every = [*product(sides_a, sides_b)]
    near = [(a, b) for a, b in every if not table or a.place == b.place]
    found = (Pair(a, b, differences(a, b)) for a, b in near)
    pairs = [pair for pair in found if pair.across.keys() <= allowed(across, pair.across)]
    taken = {id(side) for pair in pairs for side in (pair.a, pair.b)}
    alone_a = [side for side in sides_a if id(side) not in taken]
    alone_b = [side for side in sides_b if id(side) not in taken]
    failed = [_unmeasured("A", side, alone_b, across) for side in failed_a]
    failed += [_unmeasured("B", side, alone_a, across) for side in failed_b]
    problems = [*islice(_wrong(pairs), SHOWN), *([] if table else _ambiguous(pairs))]
    lost = any(side.side == "B" and side.partner and side.failure for side in failed)
    if not (pairs or lost):
        problems = [
            f"{side.side} {side.name} has no number: {side.reason}" for side in failed[:SHOWN]
        ]
        problems += _refusal(near or every, not near) if every else []
    if problems or not (pairs or lost):
        raise ComparisonError(problems)
    results = [judged(pair, _ratio(pair, level), level, threshold) for pair in pairs]
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
    """Return the sides with a number, sorted by model and `row_order`, and those without."""
    sides = [measured(measurement) for measurement in source.measurements]
    sides.sort(key=lambda side: (side.row["model"], *row_order(side.row)))
    sides += [side_of_cell(cell) for cell in source.cells]
    found = [side for side in sides if side.row.get("throughput")]
    return found, [side for side in sides if not side.row.get("throughput")]


def _unmeasured(
    side: Literal["A", "B"], failed: Side, others: Iterable[Side], across: Iterable[str]
) -> Unmeasured:
    """Return a measurement without a number, with the first of the `others` that did the
    requested work on the same hardware as its partner."""
    assert failed.measurement
    keys = _requested(failed)
    work = {s.name: differing(keys, _requested(s)) for s in others if s.measurement}
    able = (name for name, found in work.items() if found.keys() <= allowed(across, found))
    failure = failed.measurement.result.failure
    return Unmeasured(side=side, name=failed.name, failure=failure, partner=next(able, None))


def _requested(side: Side) -> dict[str, KeyValue]:
    """Return the keys as requested, without those that only workers report."""
    assert side.measurement
    config = side.measurement.result.config
    asked = {key: value for key, value in side.keys.items() if key not in SEEN}
    return asked | {"precision": config.precision, "tf32": config.tf32}


def _refusal(sides: list[tuple[Side, Side]], is_elsewhere: bool) -> list[str]:
    """Return the keys in which the closest pair differs, and the options that allow it.
    `is_elsewhere`: no measurement has the place of a published number."""
    each = (Pair(a, b, differences(a, b)) for a, b in sides)
    nearest = min(each, key=lambda pair: len(pair.across))
    lines = [f"A {nearest.a.name}", f"B {nearest.b.name}", "differ in"]
    lines += [f"  {key}: {format_pair(key, *values)}" for key, values in nearest.across.items()]
    if len(sides) > 1:
        lines.insert(0, "nothing in A agrees with anything in B; the closest pair:")
    if is_elsewhere:
        return [*lines, "a published number is compared with measurements in its place only"]
    options = " ".join(f"--across {key}" for key in nearest.across)
    return [*lines, "to compare them anyway, and record the differences:", f"  {options}"]


def _wrong(pairs: list[Pair]) -> Iterator[str]:
    """Yield errors for pairs of a measurement with itself, and of different units."""
    for a, b, _across in pairs:
        if a.measurement and b.measurement and a.measurement.result == b.measurement.result:
            yield f"A and B name the same measurement, {a.name}"
        if a.unit != b.unit:
            yield f"{a.name} is in {a.unit}, {b.name} in {b.unit}"


def _ambiguous(pairs: list[Pair]) -> list[str]:
    """Return errors for measurements with several partners."""
    partners: dict[tuple[str, str], list[str]] = {}
    for a, b in ((pair.a.name, pair.b.name) for pair in pairs):
        partners.setdefault(("A", b), []).append(a)
        partners.setdefault(("B", a), []).append(b)
    return [
        f"{name} matches {len(found)} measurements in {side}: {', '.join(found[:SHOWN])}"
        f"{' …' if found[SHOWN:] else ''}; pick one by its folder, or select a label"
        for (side, name), found in sorted(partners.items())
        if len(found) > 1
    ][:SHOWN]


PairRatio = tuple[Estimate, Method, list[Turn]]
"""B / A, the method, and the pairs of repeats if they were interleaved."""


def _ratio(pair: Pair, level: float) -> PairRatio:
    """Return the ratio of a pair. A published number has no repeats and is taken as exact, so
    that the interval is the measured median's."""
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


def judged(pair: Pair, found: PairRatio, level: float, threshold: float) -> PairResult:
    """Return the result of a pair. Its `differs` is empty beside a published number."""
    a, b, across = pair
    ratio, method, turns = found
    keys = b.keys if a.measurement else a.keys
    differs: Differences = {}
    same_work: SameWork | None = None
    if a.measurement and b.measurement:
        keys = {key: value for key, value in a.keys.items() if value == b.keys.get(key)}
        a_facts, b_facts = may_differ(a.measurement), may_differ(b.measurement)
        facts = {key: (a_facts.get(key), b_facts.get(key)) for key in a_facts | b_facts}
        differs = {key: values for key, values in facts.items() if values[0] != values[1]}
        same_work = _same_work(a.measurement, b.measurement)
    return PairResult(
        **judgement(ratio, level, threshold),
        keys=keys,
        a=a.number,
        b=b.number,
        method=method,
        across=across,
        differs=differs,
        same_work=same_work,
        turns=turns,
    )


def _same_work(*pair: Measurement) -> SameWork | None:
    a, b = (measurement.result for measurement in pair)
    if a.config.framework == b.config.framework:
        return None
    verify = verify_command(a.config, b.config)
    for measurement in pair:
        if found := verification_of(measurement.folder.parent, a, b):
            return SameWork(
                state="verified" if found.agreed else "not the same",
                created=found.verification.created,
                command=verify,
            )
    return SameWork(state="not verified", command=verify)
