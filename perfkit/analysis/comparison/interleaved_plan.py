"""Plans of interleaved comparisons: the variants, their shared values, and what is wrong with
them."""

import hashlib
import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any

from perfkit.analysis.comparison.stored import FOLDER
from perfkit.analysis.verdicts import LEVEL, THRESHOLD
from perfkit.measuring.driver.measure import measurement_folder
from perfkit.measuring.parameters import PROTOCOL_PARAMETERS, select
from perfkit.measuring.paths import stored_path
from perfkit.measuring.protocol import Protocol
from perfkit.measuring.request import RequestError
from perfkit.measuring.request.plan import Plan, plan, typed
from perfkit.measuring.request.requirements import read_environment
from perfkit.measuring.results.base import Reading
from perfkit.measuring.results.identity import folder_name
from perfkit.measuring.statistics import fewest_values
from perfkit.measuring.work import COMMAND, SCRIPT
from perfkit.timing.failure import portable

SHARED = {*PROTOCOL_PARAMETERS, "label", *select(identifies=False)} - {"script"}
"""Parameters that no variant can set for itself. A variant may be another script, whose name
and content identify it."""
ARGUMENTS = re.compile(r"(?:^|,)(?:arguments|flags|command)=")
"""Start of a script's arguments, or a command's flags, which are the rest of a variant."""


@dataclass(frozen=True)
class InterleavedPlan:
    """A requested comparison of variants. The first variant is the base."""

    command: str
    """The command that repeats the comparison."""
    variants: dict[str, dict[str, Any]]
    """Name of each variant -> the parameters it sets."""
    level: float
    threshold: float
    label: str
    """The label as requested, which may be empty."""
    plans: list[Plan]
    """The plan of each variant."""

    @property
    def named(self) -> list[str]:
        """The parameters that variants set."""
        names: dict[str, None] = {}
        for values in self.variants.values():
            names |= dict.fromkeys(values)
        return [*names]

    @property
    def plan(self) -> Plan:
        """The base's plan, which has all shared values."""
        return self.plans[0]

    @cached_property
    def environments(self) -> list[dict[str, Reading]]:
        """Each variant's environment."""
        environments = []
        for variant in self.plans:
            config = variant.config
            environments.append(
                read_environment(config.framework, config.work.data_folder, config.interpreter)
            )
        return environments

    @cached_property
    def folder(self) -> Path:
        """The folder in which it is stored, which depends on the environments."""
        names = []
        for variant, environment in zip(self.plans, self.environments, strict=True):
            folder = measurement_folder(variant.config, variant.protocol, environment)
            names.append(folder.name)
        digest = hashlib.sha256("\n".join(names).encode()).hexdigest()[:8]
        config = self.plan.config
        parts = [folder_name(config.work), *self.named, self.label, digest]
        return stored_path(config.outputs_dir) / FOLDER / "-".join(filter(None, parts))


def plan_interleaved(
    model: str,
    words: Sequence[str],
    shared: Mapping[str, Any],
    level: float = LEVEL,
    threshold: float = THRESHOLD,
) -> InterleavedPlan:
    """Plan the comparison of the variants in `words`, each NAME=VALUE joined by commas, with
    the `shared` values for all of them. `model` is "script" for a script, whose path is one of
    the shared values. Nothing is measured.

    Without a label, the variants get one of their own, so that they are measured anew and
    together. Unless `shared` has a number of repeats, the protocol's number is raised, if
    necessary, to what a verdict at `level` needs. Raises RequestError with the problems of all
    variants, also if the requested repeats are too few for a verdict.
    """
    variants: dict[str, dict[str, Any]] = {}
    planned: list[tuple[str, Plan]] = []
    of_variants: list[tuple[str, list[str]]] = []
    for word in words:
        values, wrong = _parsed(word, shared)
        variants[portable(word)] = values
        try:
            variant = plan(model, {**shared, **values})
        except RequestError as error:
            wrong += error.problems
        if not wrong:
            planned.append((word, variant))
        of_variants.append((word, wrong))
    problems = [
        *_of_all(model, words, shared, level),
        *_of_variants(of_variants),
        *_of_pairs(planned),
    ]
    if problems:
        raise RequestError(problems)
    plans = [variant for _word, variant in planned]
    protocol = plans[0].protocol
    if shared.get("repeats") is None:
        protocol = _with_enough_repeats(protocol, level)
    label = shared.get("label") or ""
    own_label = {"label": label or _label(plans)}
    labelled = [Plan(each.config.model_copy(update=own_label), protocol) for each in plans]
    command = _command(model, variants, shared, level, threshold)
    return InterleavedPlan(command, variants, level, threshold, label, labelled)


def _with_enough_repeats(protocol: Protocol, level: float) -> Protocol:
    repeats = max(protocol.repeats, fewest_values(level))
    return protocol.model_copy(update={"repeats": repeats})


def _command(
    model: str,
    variants: Iterable[str],
    shared: Mapping[str, Any],
    level: float,
    threshold: float,
) -> str:
    """Return the command of a comparison, with level and threshold if they are not the usual
    ones."""
    options = dict(shared)
    if model == SCRIPT:
        model = portable(str(options.pop(SCRIPT, "")))
    elif model == COMMAND:
        model = f"{COMMAND}={options.pop(COMMAND, '')}"
    words = ["perfkit", "compare", "--live", model, *variants]
    for name, value in options.items():
        words += ["-p", name, portable(str(value))]
    if level != LEVEL:
        words += ["--level", f"{100 * level:g}"]
    if threshold != THRESHOLD:
        words += ["--threshold", f"{100 * threshold:g}"]
    return shlex.join(words)


def _of_variants(variants: Sequence[tuple[str, list[str]]]) -> Iterator[str]:
    """Yield the problems of the variants, those of a single variant after its name. A problem
    of all variants is one of the shared values."""
    if not variants:
        return
    _word, first = variants[0]
    common = [problem for problem in first if all(problem in wrong for _, wrong in variants)]
    yield from common
    for word, wrong in variants:
        for problem in wrong:
            if problem not in common:
                yield f"{word}: {problem}"


def _of_all(
    model: str, words: Sequence[str], shared: Mapping[str, Any], level: float
) -> Iterator[str]:
    """Yield the problems that do not depend on a single variant."""
    if len(words) < 2:
        example = "framework=paddle framework=torch"
        if model == COMMAND:
            example = "flags='' flags='--x'"
        elif model == SCRIPT:
            example = "arguments='' arguments='--x'"
        yield (
            f"variants: {len(words)} given, but at least two are needed, the base first: "
            f"{example}"
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


def _of_pairs(planned: Iterable[tuple[str, Plan]]) -> Iterator[str]:
    """Yield why variants that can be measured can't be compared."""
    for (a_name, a), (b_name, b) in combinations(planned, 2):
        if a.config.identity == b.config.identity:
            yield f"{a_name} and {b_name} are the same"
        if a.protocol != b.protocol:
            yield (
                "protocol: must be the same for all variants; -p protocol "
                f"{a.protocol.name} or {b.protocol.name}"
            )


def _parsed(word: str, shared: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the values that a variant sets, and what is wrong with its text."""
    values: dict[str, Any] = {}
    problems = []
    for part in _assignments(word):
        name, equals, text = part.partition("=")
        if not equals:
            problems.append(f"{part!r} is not NAME=VALUE")
        elif name in SHARED:
            problems.append(f"{name}: must be the same for all variants; use -p {name} {text}")
        elif name in shared and name != "script":
            problems.append(f"{name}: set for all variants by -p; set it in only one place")
        elif name in values:
            problems.append(f"{name}: is set twice")
        else:
            values[name] = typed(name, text)
    return values, problems


def _assignments(word: str) -> list[str]:
    """Return the assignments of a variant. A value may be a list, such as
    disable_tuning=affinity,threads; arguments may contain anything."""
    start = ARGUMENTS.search(word)
    before = word[: start.start()] if start else word
    assignments = re.split(r",(?=\w+=)", before) if before else []
    if start:
        arguments = word[start.start() :]
        assignments.append(arguments.removeprefix(","))
    return assignments


def _label(plans: Iterable[Plan]) -> str:
    """Return a label that depends on variants and protocol, but not on their order."""
    parts = sorted(json.dumps([p.config.identity, p.protocol.model_dump()]) for p in plans)
    return f"live-{hashlib.sha256(''.join(parts).encode()).hexdigest()[:6]}"
