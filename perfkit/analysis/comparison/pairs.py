"""Pairs of measurements or published numbers: differences, ratio and verdict."""

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from perfkit.analysis.comparison.keys import (
    Differences,
    KeyValue,
    differing,
    may_differ,
    must_agree,
)
from perfkit.analysis.comparison.stored import ComparedNumber, PairResult, SameWork
from perfkit.analysis.published import matches
from perfkit.analysis.published.cells import PublishedCell
from perfkit.analysis.rates import MachineRate, machine_rates
from perfkit.analysis.ratios import PairRatio, estimated, ratio_of
from perfkit.analysis.verdicts import has_regressed, verdict
from perfkit.analysis.verification.command import verify_command
from perfkit.analysis.verification.matching import verification_of
from perfkit.analysis.warnings import check
from perfkit.measuring.format import plain
from perfkit.measuring.results.frames import row_of
from perfkit.measuring.results.store import Measurement
from perfkit.measuring.statistics import Estimate, median_estimate
from perfkit.training.models import model_named


@dataclass(frozen=True, eq=False)
class Operand:
    """A measurement, or a published number, that can be part of a pair."""

    name: str
    unit: str
    keys: dict[str, KeyValue]
    """Values that must agree; for a published number its place in the table."""
    row: dict[str, Any]
    """The measurement's row of perfkit.load, or the table's row."""
    measurement: Measurement | None = None
    """None for a published number."""

    @property
    def place(self) -> dict[str, Any]:
        """The place, or the possible place, in a published table, which has no scripts."""
        if self.measurement and not self.measurement.result.work.facts:
            return {"model": self.row["model"]}
        return matches.place(self.row)._asdict() if self.measurement else self.keys

    @property
    def has_number(self) -> bool:
        return bool(self.row.get("throughput"))

    @property
    def number(self) -> ComparedNumber:
        """The stored form of an operand that has a number."""
        if not self.measurement:
            value, source = self.row["throughput"], self.row["source"]
            return ComparedNumber(name=self.name, value=value, unit=self.unit, source=source)
        result = self.measurement.result
        throughput = result.throughput
        assert throughput and result.status != "failed"
        return ComparedNumber(
            name=self.name,
            value=throughput.value,
            unit=throughput.unit,
            interval=throughput.interval,
            interval_level=throughput.interval_level,
            n=throughput.n,
            repeats=result.protocol.repeats,
            status=result.status,
            created=result.created,
            label=result.config.label,
            warnings=[warning.code for warning in check(self.measurement).warnings],
        )

    def estimate(self, level: float) -> Estimate:
        """Return the throughput with its interval. A published number is taken as exact."""
        if self.measurement:
            return median_estimate(self.measurement.result.throughputs, level)
        value = self.row["throughput"]
        return Estimate(value, value, value, 1.0)


def measured(measurement: Measurement) -> Operand:
    """Return the operand of a measurement."""
    result, row = measurement.result, row_of(measurement)
    row["effective.precision"] = row.get("effective.precision") or "not known"
    unit = result.counts.unit
    return Operand(plain(result.id), unit, must_agree(measurement), row, measurement)


def from_cell(cell: PublishedCell) -> Operand:
    """Return the operand of a published number. Its unit is the model's: the samples of a
    source in samples/s are images."""
    place = matches.place_of(cell)
    work = f"{cell.table} {cell.framework} {cell.precision} {cell.topology}"
    name = f"{work} b{cell.batch_per_gpu} on {cell.gpu}"
    if cell.note:
        name += f" ({cell.note})"
    unit = model_named(place.model).unit if cell.unit == "samples/s" else cell.unit
    return Operand(name, unit, place._asdict(), asdict(cell))


class Pair(NamedTuple):
    """B compared with A; `across` has the differences in keys that should agree."""

    a: Operand
    b: Operand
    across: Differences


def differences(a: Operand, b: Operand) -> Differences:
    """Return the differences in keys that should agree. For a published number, these are the
    place in its table or, if that agrees, the work as its source states it."""
    if a.measurement and b.measurement:
        return differing(a.keys, b.keys)
    if a.measurement:
        swapped = differences(b, a)
        return {key: (of_a, of_b) for key, (of_b, of_a) in swapped.items()}
    elsewhere = differing(a.place, b.place)
    if elsewhere:
        return elsewhere
    stated: Differences = {}
    for difference in matches.differences(PublishedCell(**a.row), b.row):
        stated[difference.key] = (difference.published, difference.measured)
    return stated


def ratio_of_pair(pair: Pair, level: float) -> PairRatio:
    """Return the ratio of a pair. Beside a published number, which has no repeats, its interval
    is that of the measured median."""
    if pair.a.measurement and pair.b.measurement:
        return ratio_of(pair.b.measurement.result, pair.a.measurement.result, level)
    a, b = pair.a.estimate(level), pair.b.estimate(level)
    estimate = Estimate(
        value=b.value / a.value,
        low=b.low / a.high,
        high=b.high / a.low,
        level=min(a.level, b.level),
    )
    return PairRatio(estimate, "median", [])


def judge_pair(pair: Pair, ratio: PairRatio, level: float, threshold: float) -> PairResult:
    """Return the result of a pair. Its `differs` is empty beside a published number."""
    a, b = pair.a, pair.b
    keys = b.keys if a.measurement else a.keys
    differs: Differences = {}
    same_work: SameWork | None = None
    rates: list[MachineRate] = []
    if a.measurement and b.measurement:
        keys = {key: value for key, value in a.keys.items() if value == b.keys.get(key)}
        differs = _other_differences(a.measurement, b.measurement)
        same_work = _same_work(a.measurement, b.measurement)
        if ratio.method == "Hodges-Lehmann" and not pair.across:
            before, after = [a.measurement.result], [b.measurement.result]
            rates = machine_rates(before, after, ratio.estimate, level)
    return PairResult(
        **estimated(ratio.estimate),
        verdict=verdict(ratio.estimate, level, threshold),
        regressed=has_regressed(ratio.estimate, level, threshold),
        keys=keys,
        a=a.number,
        b=b.number,
        method=ratio.method,
        across=pair.across,
        differs=differs,
        same_work=same_work,
        turns=ratio.turns,
        rates=rates,
    )


def _other_differences(a: Measurement, b: Measurement) -> Differences:
    """Return the differences in keys that need not agree, None where one has no value."""
    a_values, b_values = may_differ(a), may_differ(b)
    differs: Differences = {}
    for key in a_values | b_values:
        values = a_values.get(key), b_values.get(key)
        if values[0] != values[1]:
            differs[key] = values
    return differs


def _same_work(a: Measurement, b: Measurement) -> SameWork | None:
    """Return whether a verification shows that the frameworks do the same work; None for a
    single framework. Scripts can't be verified."""
    a_config, b_config = a.result.config, b.result.config
    if a_config.framework == b_config.framework:
        return None
    verify = verify_command(a_config, b_config)
    for outputs in (a.folder.parent, b.folder.parent):
        match = verification_of(outputs, a.result, b.result)
        if match:
            return SameWork(
                state="verified" if match.agreed else "not the same",
                created=match.verification.created,
                command=verify,
            )
    return SameWork(state="not verified", command=verify)
