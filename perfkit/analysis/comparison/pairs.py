"""Pairs of measurements: differences, ratio and verdict."""

from dataclasses import dataclass
from typing import NamedTuple

from perfkit.analysis.comparison.keys import (
    Differences,
    KeyValue,
    differing,
    may_differ,
    must_agree,
)
from perfkit.analysis.comparison.stored import ComparedNumber, PairResult, SameWork
from perfkit.analysis.rates import MachineRate, machine_rates
from perfkit.analysis.ratios import PairRatio, estimated
from perfkit.analysis.verdicts import has_regressed, verdict
from perfkit.analysis.verification.command import verify_command
from perfkit.analysis.verification.matching import verification_of
from perfkit.analysis.warnings import check
from perfkit.measuring.format import plain
from perfkit.measuring.results.schema import Result
from perfkit.measuring.results.store import Measurement


@dataclass(frozen=True, eq=False)
class Operand:
    """A measurement that can be part of a pair."""

    measurement: Measurement
    keys: dict[str, KeyValue]
    """Values that must agree."""

    @property
    def result(self) -> Result:
        return self.measurement.result

    @property
    def name(self) -> str:
        return plain(self.result.id)

    @property
    def number(self) -> ComparedNumber:
        """The stored form of an operand that has a throughput."""
        result, throughput = self.result, self.result.throughput
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


def measured(measurement: Measurement) -> Operand:
    """Return the operand of a measurement."""
    return Operand(measurement, must_agree(measurement))


class Pair(NamedTuple):
    """B compared with A; `across` has the differences in keys that should agree."""

    a: Operand
    b: Operand
    across: Differences


def pair_of(a: Operand, b: Operand) -> Pair:
    return Pair(a, b, differing(a.keys, b.keys))


def judge_pair(pair: Pair, ratio: PairRatio, level: float, threshold: float) -> PairResult:
    """Return the result of a pair."""
    a, b = pair.a, pair.b
    rates: list[MachineRate] = []
    if ratio.method == "Hodges-Lehmann" and not pair.across:
        rates = machine_rates([a.result], [b.result], ratio.estimate, level)
    return PairResult(
        **estimated(ratio.estimate),
        verdict=verdict(ratio.estimate, level, threshold),
        regressed=has_regressed(ratio.estimate, level, threshold),
        keys={key: value for key, value in a.keys.items() if value == b.keys.get(key)},
        a=a.number,
        b=b.number,
        method=ratio.method,
        across=pair.across,
        differs=_other_differences(a.measurement, b.measurement),
        same_work=_same_work(a.measurement, b.measurement),
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
