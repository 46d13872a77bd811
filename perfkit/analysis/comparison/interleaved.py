"""Interleaved comparisons, judged: variants, their pairs with the base, and whether these still
follow from the measurements."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from perfkit.analysis.comparison.interleaved_plan import InterleavedPlan
from perfkit.analysis.comparison.keys import ALIASES, Differences, allowed, differing
from perfkit.analysis.comparison.pairs import Operand, Pair, judge_pair, measured
from perfkit.analysis.comparison.stored import InterleavedComparison, PairResult, Variant
from perfkit.analysis.ratios import PairRatio, turns
from perfkit.analysis.utilization import utilization
from perfkit.measuring.request.resolve import with_portable_paths
from perfkit.measuring.results.repeat import Repeat
from perfkit.measuring.results.schema import Result
from perfkit.measuring.results.store import Measurement, ResultError
from perfkit.measuring.results.summarize import check_against_raw
from perfkit.measuring.statistics import median, median_estimate


def judge_interleaved(
    plan: InterleavedPlan, measurements: Sequence[Measurement]
) -> InterleavedComparison:
    """Return the comparison of the variants' measurements in their current state."""
    operands = [measured(measurement) for measurement in measurements]
    results = [measurement.result for measurement in measurements]
    repeats, highest_peak = _repeats(results), _highest_peak(results)
    base, variants, pairs = operands[0], list[Variant](), list[PairResult]()
    for (name, values), operand in zip(plan.variants.items(), operands, strict=True):
        pair = Pair(base, operand, differing(base.keys, operand.keys))
        differs = _forbidden_differences(pair, plan.named)
        variants.append(_variant(name, values, operand, differs, highest_peak))
        if operand is base or differs:
            continue
        ratio = _ratio(pair, repeats, plan.level)
        if ratio:
            pairs.append(judge_pair(pair, ratio, plan.level, plan.threshold))
    return InterleavedComparison(
        created=min(result.created for result in results),
        command=plan.command,
        model=results[0].work.name,
        named=plan.named,
        repeats=results[0].protocol.repeats,
        level=plan.level,
        threshold=plan.threshold,
        variants=variants,
        pairs=pairs,
        regressed=any(pair.regressed for pair in pairs),
    )


def _repeats(results: Iterable[Result]) -> list[Repeat]:
    repeats: list[Repeat] = []
    for result in results:
        repeats += result.repeats
    return repeats


def _highest_peak(results: Iterable[Result]) -> float:
    """Return the highest measured peak of all repeats; 0 without any."""
    peaks = [0.0]
    for result in results:
        used = utilization(result)
        if used:
            peaks += used.peaks
    return max(peaks)


def _forbidden_differences(pair: Pair, named: Iterable[str]) -> Differences:
    """Return the differences in keys that must agree, though no variant sets the key."""
    a, b = pair.a.measurement, pair.b.measurement
    assert a and b
    if not (_has_reported(a.result) and _has_reported(b.result)):
        # Some keys are only known once the workers have reported them.
        return {}
    varied = {ALIASES.get(name, name) for name in named}
    may_differ = allowed(varied, pair.across)
    return {key: values for key, values in pair.across.items() if key not in may_differ}


def _has_reported(result: Result) -> bool:
    return result.effective is not None or result.told is not None


def _variant(
    name: str,
    values: dict[str, Any],
    operand: Operand,
    differs: Differences,
    highest_peak: float,
) -> Variant:
    assert operand.measurement
    result = operand.measurement.result
    throughput, used = result.throughput, utilization(result)
    share_of_peak = None
    if throughput and used:
        share_of_peak = throughput.value * used.flops / highest_peak
    return Variant(
        name=name,
        values=with_portable_paths(values),
        id=operand.name,
        number=operand.number if throughput else None,
        failure=result.failure,
        differs=differs,
        matmul_flops_per_second=median(used.peaks) if used else None,
        share_of_peak=share_of_peak,
    )


def _ratio(pair: Pair, repeats: Sequence[Repeat], level: float) -> PairRatio | None:
    """Return the ratio of a pair, None without a complete repeat of both."""
    assert pair.a.measurement and pair.b.measurement
    complete = turns(pair.a.measurement.result, pair.b.measurement.result, repeats)
    if not complete:
        return None
    estimate = median_estimate([turn.ratio for turn in complete], level)
    return PairRatio(estimate, "pairs", complete)


def disagreements(comparison: InterleavedComparison, outputs: Path) -> list[str]:
    """Return where the comparison disagrees with its measurements under `outputs`."""
    problems: list[str] = []
    results: dict[str, Result] = {}
    for variant in comparison.variants:
        try:
            measurement = Measurement.read(outputs / variant.id)
        except ResultError as error:
            problems.append(error.relative_to(outputs))
            continue
        results[variant.id] = measurement.result
        if difference := check_against_raw(measurement):
            problems.append(f"{variant.id}: {difference}")
    return problems or _changes(comparison, results)


def _changes(comparison: InterleavedComparison, results: dict[str, Result]) -> list[str]:
    """Return what has changed in the measurements since the comparison was stored."""
    problems = []
    for variant in comparison.variants:
        stored, current = variant.number, results[variant.id].throughput
        if (stored and stored.value) != (current and current.value):
            problems.append(f"{variant.id}: its throughput has changed")
    base, *others = comparison.variants
    repeats = _repeats(results.values())
    stored_turns = {pair.b.name: pair.turns for pair in comparison.pairs}
    for variant in others:
        current_turns = []
        if not variant.differs:
            current_turns = turns(results[base.id], results[variant.id], repeats)
        if stored_turns.get(variant.id, []) != current_turns:
            problems.append(f"{variant.id}: its repeats, or those of {base.id}, have changed")
    for pair in comparison.pairs:
        if pair != pair.judged_anew(comparison.level, comparison.threshold):
            problems.append(f"{pair.b.name}: its ratio does not follow from its repeats")
    return problems
