"""An interleaved comparison: one repeat of each variant at a time, in one run.

Repeats are made A1 B1 C1 A2 B2 C2 …, each an ordinary one of an ordinary measurement, so that
what the machine does meanwhile is in both repeats of a pair. What is made already stays: after
an interruption, a kill or a failure the same command goes on where it was.
"""

import hashlib
import json
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from perfkit.analysis.ratios import turns
from perfkit.analysis.utilization import utilization
from perfkit.comparison.keys import ALIASES, allowed, differing, format_pair
from perfkit.comparison.pairs import Pair, judged, measured
from perfkit.comparison.stored import (
    FOLDER,
    InterleavedComparison,
    PairResult,
    Variant,
    write_comparison,
)
from perfkit.config import PROTOCOL_PARAMETERS, portable, resolved_path, select
from perfkit.driver.measure import measurement_folder, resume
from perfkit.driver.progress import Progress
from perfkit.models import MODELS
from perfkit.request import RequestError
from perfkit.request.checks import read_environment
from perfkit.request.plan import Plan, plan, typed
from perfkit.results.schema import Reading
from perfkit.results.store import Measurement, ResultError, make_folder
from perfkit.results.summarize import check_against_raw
from perfkit.statistics import fewest_values, median, median_estimate
from perfkit.text.messages import coded

SHARED = {*PROTOCOL_PARAMETERS, "label", *select(identifies=False)}
"""Parameters that no variant can have for itself."""

# Judged.


@dataclass(frozen=True)
class Asked:
    """What was asked for: of each variant, by its name, the parameters that it sets. The first
    one is the base."""

    command: str
    variants: dict[str, dict[str, Any]]
    level: float
    threshold: float

    @property
    def named(self) -> list[str]:
        """The parameters that variants set."""
        return list(dict.fromkeys(name for one in self.variants.values() for name in one))


def judge_interleaved(
    asked: Asked, measurements: Sequence[Measurement]
) -> InterleavedComparison:
    """The comparison of these measurements of the variants, as they are now."""
    sides, results = [*map(measured, measurements)], [one.result for one in measurements]
    used = [utilization(result) for result in results]
    highest = max((peak for one in used if one for peak in one.peaks), default=None)
    every = [repeat for result in results for repeat in result.repeats]
    meant = {ALIASES.get(name, name) for name in asked.named}
    base, variants, pairs = sides[0], list[Variant](), list[PairResult]()
    each = zip(asked.variants.items(), sides, results, used, strict=True)
    for (name, values), one, result, use in each:
        number = result.throughput
        across = differing(base.keys, one.keys)
        # What workers alone can show is not judged before they have.
        is_known = result.effective and results[0].effective
        may = allowed(meant, across) if is_known else across.keys()
        differs = {key: both for key, both in across.items() if key not in may}
        reached = number.value * use.flops if number and use else None
        variants.append(
            Variant(
                name=name,
                values=values,
                id=one.name,
                number=one.number if number else None,
                failure=result.failure,
                differs=differs,
                matmul_flops_per_second=median(use.peaks) if use else None,
                of_own_peak=median(use.shares) if use else None,
                of_highest_peak=reached / highest if reached and highest else None,
            )
        )
        found = [] if one is base else turns(results[0], result, every)
        if found and not differs:
            ratio = median_estimate([turn.ratio for turn in found], asked.level)
            pair, shares = Pair(base, one, across), (asked.level, asked.threshold)
            pairs.append(judged(pair, (ratio, "pairs", found), *shares))
    return InterleavedComparison(
        created=min(result.created for result in results),
        command=asked.command,
        model=results[0].config.model,
        named=asked.named,
        repeats=results[0].protocol.repeats,
        level=asked.level,
        threshold=asked.threshold,
        variants=variants,
        pairs=pairs,
        regressed=any(pair.regressed for pair in pairs),
    )


def disagreements(comparison: InterleavedComparison, outputs: Path) -> list[str]:
    """In what the comparison is not what its measurements under `outputs` give now."""
    problems, results = [], {}
    for variant in comparison.variants:
        try:
            measurement = Measurement.read(outputs / variant.id)
            results[variant.id] = measurement.result
            wrong = check_against_raw(measurement) or ()
            problems += [f"{variant.id}: {problem}" for problem in wrong]
        except ResultError as error:
            problems.append(str(error).replace(f"{outputs}/", ""))
    if problems:
        return problems
    base, every = comparison.base.id, [one for r in results.values() for one in r.repeats]
    stored = {pair.b.name: pair.turns for pair in comparison.pairs}
    for variant in comparison.variants[1:]:
        now = [] if variant.differs else turns(results[base], results[variant.id], every)
        if stored.get(variant.id, []) != now:
            problems.append(f"{variant.id}: its repeats, or those of {base}, have changed")
    return problems


# Planned.


@dataclass(frozen=True)
class Live(Asked):
    """An interleaved comparison that can be made: what all share, and the variants' plans."""

    model: str
    label: str
    plans: list[Plan]

    @property
    def plan(self) -> Plan:
        """That of the base, which has what all share."""
        return self.plans[0]

    @cached_property
    def environments(self) -> list[dict[str, Reading]]:
        """Of each variant, that in which it was found."""
        configs = [plan.config for plan in self.plans]
        return [
            read_environment(one.framework, one.data_folder, one.interpreter) for one in configs
        ]

    @cached_property
    def folder(self) -> Path:
        """Where it is stored, here and now."""
        names = [
            measurement_folder(plan.config, plan.protocol, environment).name
            for plan, environment in zip(self.plans, self.environments, strict=True)
        ]
        digest = hashlib.sha256("\n".join(names).encode()).hexdigest()[:8]
        name = "-".join(filter(None, [self.model, *self.named, self.label, digest]))
        return resolved_path(self.plan.config.outputs_dir) / FOLDER / name


def plan_interleaved(
    model: str,
    words: Sequence[str],
    shared: Mapping[str, Any],
    level: float = 0.95,
    threshold: float = 0.02,
) -> Live:
    """The comparison of the variants that `words` name, NAME=VALUE joined by commas; all have
    what is `shared`. Nothing is measured.

    Without a label they get one that no other comparison has, so that they are measured anew
    and together; and where the protocol has too few repeats to decide at `level`, and none were
    asked for, as many as can. Raises RequestError with the problems of all variants, also where
    the repeats that were asked for can't decide.
    """
    variants: dict[str, dict[str, Any]] = {}
    plans: dict[str, Plan] = {}
    wrong: list[list[str]] = []
    for word in words:
        values, problems = _parsed(word, shared)
        variants[portable(word)] = values
        try:
            plans[portable(word)] = plan(model, {**shared, **values})
        except RequestError as error:
            problems += error.problems
        wrong.append(problems)
    # What is wrong with all variants is wrong with what they share.
    common = [one for one in wrong[0] if all(one in own for own in wrong)] if wrong else []
    problems = [*_shared_problems(words, shared, level), *common]
    for word, own in zip(words, wrong, strict=True):
        problems += [f"{word}: {problem}" for problem in own if problem not in common]
    problems += _pair_problems(plans)
    if problems:
        raise RequestError(problems)
    protocol = next(iter(plans.values())).protocol
    if shared.get("repeats") is None:
        enough = max(protocol.repeats, fewest_values(level))
        protocol = protocol.model_copy(update={"repeats": enough})
    label = shared.get("label") or ""
    update = {"label": label or _label(plans.values())}
    made = [Plan(one.config.model_copy(update=update), protocol) for one in plans.values()]
    command = ["perfkit", "compare", "--live", model, *variants]
    for name, value in shared.items():
        command += ["-p", name, portable(str(value))]
    return Live(shlex.join(command), variants, level, threshold, model, label, made)


def _shared_problems(
    words: Sequence[str], shared: Mapping[str, Any], level: float
) -> Iterator[str]:
    """What is wrong whatever the variants are."""
    if len(words) < 2:
        yield (
            f"variants: {len(words)} given, and it takes two or more, the first being the "
            "base: framework=paddle framework=torch"
        )
    for name in ("interval_target", "budget"):
        if shared.get(name) is not None:
            yield f"{name}: not for --live: all variants make as many repeats; leave it out"
    repeats, enough = shared.get("repeats"), fewest_values(level)
    if repeats == "auto":
        yield "repeats: 'auto' is not for --live: all variants make as many; name a number"
    elif isinstance(repeats, int) and 1 <= repeats < enough:
        yield (
            f"repeats: {repeats} of each can't decide at the {level * 100:g} % level, which "
            f"takes at least {enough}: -p repeats {enough}"
        )
    if shared.get("launcher") == "manual":
        yield "launcher: 'manual' is not for --live; srun and mpirun are"
    if len({*map(portable, words)}) < len(words):
        yield "two variants are the same; name in what they differ"


def _pair_problems(variants: Mapping[str, Plan]) -> Iterator[str]:
    """What keeps variants that could be measured from being compared."""
    for (name, one), (other_name, other) in combinations(variants.items(), 2):
        if one == other:
            yield f"{name} and {other_name} are the same"
        if one.protocol != other.protocol:
            names = f"{one.protocol.name} or {other.protocol.name}"
            yield f"protocol: must be the same for all variants; -p protocol {names}"


def _parsed(word: str, shared: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The values that a variant sets, and what is wrong with how it is typed."""
    values: dict[str, Any] = {}
    problems = []
    for part in word.split(","):
        name, sets, text = part.partition("=")
        if not sets:
            problems.append(f"{part!r} is not NAME=VALUE")
        elif name in SHARED:
            problems.append(f"{name}: the same for all variants; -p {name} {text}")
        elif name in shared:
            problems.append(f"{name}: set for all variants by -p; set it by one or the other")
        elif name in values:
            problems.append(f"{name}: is set twice")
        else:
            values[name] = typed(name, text)
    return values, problems


def _label(plans: Iterable[Plan]) -> str:
    """The same for the same variants under the same protocol, whichever is the base."""
    parts = sorted(
        json.dumps([one.config.identity, one.protocol.model_dump()]) for one in plans
    )
    return f"live-{hashlib.sha256(''.join(parts).encode()).hexdigest()[:6]}"


# Measured.


def round_order(variants: Sequence[int], repeat: int) -> Sequence[int]:
    """The variants in the order of a round: every second round is reversed, so that a machine
    that becomes steadily faster or slower favors no variant."""
    return variants[:: 1 if repeat % 2 else -1]


def measure_interleaved(found: Live, say: Callable[[str], None]) -> None:
    """Make what is missing of the repeats of all variants, in turn, and store the comparison
    after each. `say` is called with what else happens.

    A variant that fails, or turns out to do what must not differ, makes no more repeats; the
    others go on while the base is one of them. Raises RequestError if another process measures
    one of the variants, and KeyboardInterrupt; what was measured is stored.
    """
    make_folder(found.folder)
    try:
        with FileLock(found.folder / ".lock", timeout=0):
            _measure(found, say)
    except Timeout:
        raise RequestError(
            [f"{found.folder.name} is being made by another process right now; wait for it"]
        ) from None


def _measure(found: Live, say: Callable[[str], None]) -> None:
    protocol, names = found.plan.protocol, [*found.variants]

    def resumed(number: int, until: int, progress: Progress | None = None) -> Measurement:
        """Variant `number` with its repeats up to `until`."""
        config, environment = found.plans[number].config, found.environments[number]
        return resume(config, protocol, environment, until, progress)

    def stored() -> InterleavedComparison:
        comparison = judge_interleaved(found, measurements)
        write_comparison(found.folder, comparison)
        return comparison

    # All of them first, so that what can't be measured is refused before anything is.
    measurements = [resumed(number, 0) for number in range(len(names))]
    stored()
    if all(one.result.status == "complete" for one in measurements):
        return
    going, unit = [*range(len(names))], MODELS[found.model].unit
    with Progress(protocol.repeats, protocol.steps, unit, variants=[*names]) as progress:
        for repeat in range(1, protocol.repeats + 1):
            for number in round_order(going, repeat):
                progress.turn_to(names[number])
                try:
                    resumed(number, repeat, progress)
                finally:
                    measurements[number] = Measurement.read(measurements[number].folder)
                    variant = stored().variants[number]
                if variant.failure or variant.differs:
                    differs = (f"{k} {format_pair(k, *v)}" for k, v in variant.differs.items())
                    why = f"it differs from {names[0]} in {'; '.join(differs)}"
                    why = coded(variant.failure) if variant.failure else why
                    say(f"{names[number]} makes no more repeats: {why}")
                    going.remove(number)
                    progress.leave(names[number])
            if 0 not in going or len(going) < 2:
                return
