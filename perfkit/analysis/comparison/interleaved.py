"""Interleaved comparisons: one run measures one repeat of each variant at a time.

Repeats are made in rounds, A1 B1 C1 C2 B2 A2 A3 …, so that drift of the machine affects both
repeats of a pair alike. Each belongs to an ordinary measurement and is kept: after an
interruption, a kill or a failure, the same command continues where it stopped.
"""

import hashlib
import json
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any

from perfkit.analysis.comparison.keys import ALIASES, allowed, differing, format_pair
from perfkit.analysis.comparison.pairs import Pair, judged, measured
from perfkit.analysis.comparison.stored import (
    FOLDER,
    InterleavedComparison,
    PairResult,
    Variant,
    write_comparison,
)
from perfkit.analysis.ratios import turns
from perfkit.analysis.utilization import utilization
from perfkit.core.config import PROTOCOL_PARAMETERS, select
from perfkit.core.driver.measure import BEING_MEASURED, alone, measurement_folder, resume
from perfkit.core.driver.progress import RepeatsProgress, round_order
from perfkit.core.models import model_of
from perfkit.core.paths import portable, resolved_path
from perfkit.core.request import RequestError
from perfkit.core.request.plan import Plan, plan, typed
from perfkit.core.request.requirements import read_environment
from perfkit.core.results.identity import Reading
from perfkit.core.results.store import Measurement, ResultError, make_folder
from perfkit.core.results.summarize import check_against_raw
from perfkit.core.statistics import fewest_values, median, median_estimate

SHARED = {*PROTOCOL_PARAMETERS, "label", *select(identifies=False)}
"""Parameters that no variant can set for itself."""


@dataclass(frozen=True)
class Live:
    """A requested comparison: variant name -> the parameters it sets, and the variants' plans.
    The first variant is the base."""

    command: str
    variants: dict[str, dict[str, Any]]
    level: float
    threshold: float
    label: str
    plans: list[Plan]

    @property
    def named(self) -> list[str]:
        """The parameters that variants set."""
        return list(dict.fromkeys(name for values in self.variants.values() for name in values))

    @property
    def plan(self) -> Plan:
        """The base's plan, which has all shared values."""
        return self.plans[0]

    @cached_property
    def environments(self) -> list[dict[str, Reading]]:
        """Each variant's environment."""
        configs = [plan.config for plan in self.plans]
        return [read_environment(c.framework, c.data_folder, c.interpreter) for c in configs]

    @cached_property
    def folder(self) -> Path:
        """The folder in which it is stored, which depends on the environments."""
        names = [
            measurement_folder(plan.config, plan.protocol, environment).name
            for plan, environment in zip(self.plans, self.environments, strict=True)
        ]
        digest = hashlib.sha256("\n".join(names).encode()).hexdigest()[:8]
        name = "-".join(filter(None, [self.plan.config.model, *self.named, self.label, digest]))
        return resolved_path(self.plan.config.outputs_dir) / FOLDER / name


def judge_interleaved(live: Live, measurements: Sequence[Measurement]) -> InterleavedComparison:
    """Return the comparison of the variants' measurements in their current state."""
    sides = [*map(measured, measurements)]
    results = [measurement.result for measurement in measurements]
    used = [utilization(result) for result in results]
    highest = max((peak for use in used if use for peak in use.peaks), default=None)
    every = [repeat for result in results for repeat in result.repeats]
    varied = {ALIASES.get(name, name) for name in live.named}
    base, variants, pairs = sides[0], list[Variant](), list[PairResult]()
    each = zip(live.variants.items(), sides, results, used, strict=True)
    for (name, values), side, result, use in each:
        number = result.throughput
        across = differing(base.keys, side.keys)
        # Some keys are only known once the workers have reported them.
        is_known = result.effective and results[0].effective
        may = allowed(varied, across) if is_known else across.keys()
        differs = {key: pair for key, pair in across.items() if key not in may}
        reached = number.value * use.flops if number and use else None
        variants.append(
            Variant(
                name=name,
                values=values,
                id=side.name,
                number=side.number if number else None,
                failure=result.failure,
                differs=differs,
                matmul_flops_per_second=median(use.peaks) if use else None,
                of_own_peak=median(use.shares) if use else None,
                of_highest_peak=reached / highest if reached and highest else None,
            )
        )
        found = [] if side is base else turns(results[0], result, every)
        if found and not differs:
            ratio = median_estimate([turn.ratio for turn in found], live.level)
            pair, shares = Pair(base, side, across), (live.level, live.threshold)
            pairs.append(judged(pair, (ratio, "pairs", found), *shares))
    return InterleavedComparison(
        created=min(result.created for result in results),
        command=live.command,
        model=results[0].config.model,
        named=live.named,
        repeats=results[0].protocol.repeats,
        level=live.level,
        threshold=live.threshold,
        variants=variants,
        pairs=pairs,
        regressed=any(pair.regressed for pair in pairs),
    )


def disagreements(comparison: InterleavedComparison, outputs: Path) -> list[str]:
    """Return where the comparison disagrees with its measurements under `outputs`."""
    problems, results = [], {}
    for variant in comparison.variants:
        try:
            measurement = Measurement.read(outputs / variant.id)
            results[variant.id] = measurement.result
            wrong = check_against_raw(measurement) or ()
            problems += [f"{variant.id}: {problem}" for problem in wrong]
        except ResultError as error:
            problems.append(error.relative_to(outputs))
    if problems:
        return problems
    base = comparison.base.id
    every = [repeat for result in results.values() for repeat in result.repeats]
    for variant in comparison.variants:
        stored_number, number = variant.number, results[variant.id].throughput
        if (stored_number and stored_number.value) != (number and number.value):
            problems.append(f"{variant.id}: its throughput has changed")
    stored = {pair.b.name: pair.turns for pair in comparison.pairs}
    for variant in comparison.variants[1:]:
        now = [] if variant.differs else turns(results[base], results[variant.id], every)
        if stored.get(variant.id, []) != now:
            problems.append(f"{variant.id}: its repeats, or those of {base}, have changed")
    return problems


def plan_interleaved(
    model: str,
    words: Sequence[str],
    shared: Mapping[str, Any],
    level: float = 0.95,
    threshold: float = 0.02,
) -> Live:
    """Plan the comparison of the variants in `words`, each NAME=VALUE joined by commas, with
    the `shared` values for all of them. Nothing is measured.

    Without a label, the variants get one of their own, so that they are measured anew and
    together. Unless `shared` has a number of repeats, the protocol's number is raised, if
    necessary, to what a verdict at `level` needs. Raises RequestError with the problems of all
    variants, also if the requested repeats are too few for a verdict.
    """
    variants: dict[str, dict[str, Any]] = {}
    named: list[tuple[str, Plan]] = []
    wrong: list[list[str]] = []
    for word in words:
        values, problems = _parsed(word, shared)
        variants[portable(word)] = values
        try:
            found = plan(model, {**shared, **values})
            named += [] if problems else [(word, found)]
        except RequestError as error:
            problems += error.problems
        wrong.append(problems)
    # A problem of all variants is a problem of the shared values.
    common = [p for p in wrong[0] if all(p in own for own in wrong)] if wrong else []
    problems = [*_shared_problems(words, shared, level), *common]
    for word, own in zip(words, wrong, strict=True):
        problems += [f"{word}: {problem}" for problem in own if problem not in common]
    problems += _pair_problems(named)
    if problems:
        raise RequestError(problems)
    plans = [plan for _word, plan in named]
    protocol = plans[0].protocol
    if shared.get("repeats") is None:
        enough = max(protocol.repeats, fewest_values(level))
        protocol = protocol.model_copy(update={"repeats": enough})
    label = shared.get("label") or ""
    update = {"label": label or _label(plans)}
    labelled = [Plan(p.config.model_copy(update=update), protocol) for p in plans]
    command = ["perfkit", "compare", "--live", model, *variants]
    for name, value in shared.items():
        command += ["-p", name, portable(str(value))]
    for option, share, default in (("--level", level, 0.95), ("--threshold", threshold, 0.02)):
        command += [option, f"{100 * share:g}"] if share != default else []
    return Live(shlex.join(command), variants, level, threshold, label, labelled)


def _shared_problems(
    words: Sequence[str], shared: Mapping[str, Any], level: float
) -> Iterator[str]:
    """Yield the errors that do not depend on a single variant."""
    if len(words) < 2:
        yield (
            f"variants: {len(words)} given, but at least two are needed, the base first: "
            "framework=paddle framework=torch"
        )
    for name in ("interval_target", "budget"):
        if shared.get(name) is not None:
            yield f"{name}: not for --live, where all variants make equally many repeats"
    repeats, enough = shared.get("repeats"), fewest_values(level)
    if repeats == "auto":
        yield "repeats: 'auto' is not for --live: all variants make equally many; set a number"
    elif isinstance(repeats, int) and 1 <= repeats < enough:
        yield (
            f"repeats: {repeats} are too few for a verdict at the {level * 100:g} % level, "
            f"which takes at least {enough}: -p repeats {enough}"
        )


def _pair_problems(named: Iterable[tuple[str, Plan]]) -> Iterator[str]:
    """Yield why variants that can be measured can't be compared."""
    for (a_name, a), (b_name, b) in combinations(named, 2):
        if a == b:
            yield f"{a_name} and {b_name} are the same"
        if a.protocol != b.protocol:
            names = f"{a.protocol.name} or {b.protocol.name}"
            yield f"protocol: must be the same for all variants; -p protocol {names}"


def _parsed(word: str, shared: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the values that a variant sets, and the errors in its text."""
    values: dict[str, Any] = {}
    problems = []
    # A value may be a list, such as disable_tuning=affinity,threads.
    for part in re.split(r",(?=\w+=)", word):
        name, equals, text = part.partition("=")
        if not equals:
            problems.append(f"{part!r} is not NAME=VALUE")
        elif name in SHARED:
            problems.append(f"{name}: must be the same for all variants; use -p {name} {text}")
        elif name in shared:
            problems.append(f"{name}: set for all variants by -p; set it in only one place")
        elif name in values:
            problems.append(f"{name}: is set twice")
        else:
            values[name] = typed(name, text)
    return values, problems


def _label(plans: Iterable[Plan]) -> str:
    """Return a label that depends on variants and protocol, but not on their order."""
    parts = sorted(json.dumps([p.config.identity, p.protocol.model_dump()]) for p in plans)
    return f"live-{hashlib.sha256(''.join(parts).encode()).hexdigest()[:6]}"


def measure_interleaved(found: Live, say: Callable[[str], None]) -> None:
    """Measure the missing repeats of all variants in turn, and store the comparison after each
    repeat. `say` is called with messages about variants that stop.

    A variant that fails, or differs in a key that must agree, makes no more repeats; the others
    continue as long as the base is among them. Raises RequestError if another process measures
    one of the variants, and KeyboardInterrupt; finished repeats are stored.
    """
    make_folder(found.folder)
    taken = f"{found.folder.name} {BEING_MEASURED}. Wait for it to end"
    with alone(found.folder / ".lock", taken):
        _measure(found, say)


def _measure(found: Live, say: Callable[[str], None]) -> None:
    protocol, names = found.plan.protocol, [*found.variants]

    def resumed(
        number: int, until: int, progress: RepeatsProgress | None = None
    ) -> Measurement:
        """Measure variant `number` up to its repeat `until`."""
        config, environment = found.plans[number].config, found.environments[number]
        return resume(config, protocol, environment, until, progress)

    def stored() -> InterleavedComparison:
        comparison = judge_interleaved(found, measurements)
        write_comparison(found.folder, comparison)
        return comparison

    # Checks all variants before any is measured.
    measurements = [resumed(number, 0) for number in range(len(names))]
    stored()
    if all(measurement.result.status == "complete" for measurement in measurements):
        return
    going, unit = [*range(len(names))], model_of(found.plan.config).unit
    with RepeatsProgress(protocol.repeats, protocol.steps, unit, variants=[*names]) as progress:
        for repeat in range(1, protocol.repeats + 1):
            for number in round_order(going, repeat):
                progress.variant = names[number]
                try:
                    resumed(number, repeat, progress)
                finally:
                    measurements[number] = Measurement.read(measurements[number].folder)
                    variant = stored().variants[number]
                if variant.failure or variant.differs:
                    differs = (f"{k} {format_pair(k, *v)}" for k, v in variant.differs.items())
                    why = f"it differs from {names[0]} in {'; '.join(differs)}"
                    why = variant.failure.line() if variant.failure else why
                    say(f"{names[number]} makes no more repeats: {why}")
                    going.remove(number)
                    progress.variants.remove(names[number])
            if 0 not in going or len(going) < 2:
                return
