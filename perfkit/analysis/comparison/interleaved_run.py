"""Interleaved comparisons, measured: one repeat of each variant at a time.

Repeats are made in rounds, A1 B1 C1 C2 B2 A2 A3 …, so that drift of the machine affects both
repeats of a pair alike. Each belongs to an ordinary measurement and is kept: after an
interruption, a kill or a failure, the same command continues where it stopped.
"""

from perfkit.analysis.comparison.interleaved import judge_interleaved
from perfkit.analysis.comparison.interleaved_plan import InterleavedPlan
from perfkit.analysis.comparison.keys import format_pair
from perfkit.analysis.comparison.stored import (
    InterleavedComparison,
    Variant,
    write_comparison,
)
from perfkit.analysis.script_arguments import arguments_text, own_options
from perfkit.measuring.driver.measure import BEING_MEASURED, alone, resume
from perfkit.measuring.driver.progress import RepeatsProgress, round_order
from perfkit.measuring.format import printable
from perfkit.measuring.results.store import Measurement


def measure_interleaved(plan: InterleavedPlan) -> None:
    """Measure the missing repeats of all variants in turn, and store the comparison after each
    repeat.

    A variant that fails, or differs in a key that must agree, makes no more repeats; the others
    continue as long as the base is among them. Raises RequestError if another process measures
    one of the variants, and KeyboardInterrupt; finished repeats are stored.
    """
    plan.folder.mkdir(parents=True, exist_ok=True)
    taken = f"{plan.folder.name} {BEING_MEASURED}. Wait for it to end"
    with alone(plan.folder / ".lock", taken):
        _measure(plan)


def _measure(plan: InterleavedPlan) -> None:
    names = _short_names(plan)
    # Checks all variants before any is measured.
    measurements = [_resume(plan, number, 0) for number in range(len(names))]
    _store(plan, measurements)
    if not all(measurement.result.status == "complete" for measurement in measurements):
        _make_rounds(plan, names, measurements)
    if plan.plan.config.profile:
        for number, measurement in enumerate(measurements):
            if measurement.result.status == "complete":
                _resume(plan, number)


def _make_rounds(
    plan: InterleavedPlan, names: list[str], measurements: list[Measurement]
) -> None:
    """Make the missing repeats in turn."""
    protocol, unit = plan.plan.protocol, plan.plan.config.work.counts().unit
    remaining = [*range(len(names))]
    with RepeatsProgress(protocol.repeats, protocol.steps, unit, variants=[*names]) as progress:
        for repeat in range(1, protocol.repeats + 1):
            for number in round_order(remaining, repeat):
                name = names[number]
                progress.variant = name
                variant = _measure_repeat(plan, measurements, number, repeat, progress)
                reason = _why_it_stops(variant, names[0])
                if reason:
                    stops = f"{name} makes no more repeats: {reason}"
                    progress.display.print(printable(stops))
                    remaining.remove(number)
                    progress.variants.remove(name)
            if 0 not in remaining or len(remaining) < 2:
                return


def _short_names(plan: InterleavedPlan) -> list[str]:
    """Return the variants as typed; of a script, the arguments in which they differ."""
    if plan.named != ["arguments"]:
        return [*plan.variants]
    every = [str(values["arguments"]) for values in plan.variants.values()]
    names = []
    for arguments in every:
        own = " ".join(own_options(arguments, every))
        names.append(arguments_text(own or arguments) or "no arguments")
    return names


def _resume(
    plan: InterleavedPlan,
    number: int,
    until: int | None = None,
    progress: RepeatsProgress | None = None,
) -> Measurement:
    """Measure variant `number` up to its repeat `until`; None: completely, with its profile."""
    config, environment = plan.plans[number].config, plan.environments[number]
    return resume(config, plan.plan.protocol, environment, until, progress)


def _measure_repeat(
    plan: InterleavedPlan,
    measurements: list[Measurement],
    number: int,
    repeat: int,
    progress: RepeatsProgress,
) -> Variant:
    """Measure a repeat of variant `number`, and store the comparison even if that fails or is
    interrupted."""
    try:
        _resume(plan, number, repeat, progress)
    finally:
        measurements[number] = Measurement.read(measurements[number].folder)
        comparison = _store(plan, measurements)
    return comparison.variants[number]


def _store(plan: InterleavedPlan, measurements: list[Measurement]) -> InterleavedComparison:
    comparison = judge_interleaved(plan, measurements)
    write_comparison(plan.folder, comparison)
    return comparison


def _why_it_stops(variant: Variant, base: str) -> str:
    """Return why a variant makes no more repeats; empty if it goes on."""
    if variant.failure:
        return variant.failure.line()
    if not variant.differs:
        return ""
    differences = []
    for key, values in variant.differs.items():
        differences.append(f"{key} {format_pair(key, *values)}")
    return f"it differs from {base} in {'; '.join(differences)}"
