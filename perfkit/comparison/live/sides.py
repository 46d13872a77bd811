"""The sides of a live comparison: what each is asked to do, judged before anything starts."""

import hashlib
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from perfkit.config import PROTOCOL_PARAMETERS, portable, select
from perfkit.request.errors import RequestError
from perfkit.request.plan import Plan, plan, typed
from perfkit.statistics import fewest_values

SHARED = {*PROTOCOL_PARAMETERS, "label", *select(identifies=False)}
"""Parameters that no side can have for itself."""


@dataclass(frozen=True)
class Side:
    """What one side sets, as it is typed and by parameter, and its plan."""

    name: str
    values: dict[str, Any]
    plan: Plan


@dataclass(frozen=True)
class Sides:
    """What a live comparison was asked to do. The first side is the base."""

    model: str
    shared: dict[str, Any]
    sides: list[Side]

    @property
    def plan(self) -> Plan:
        """That of the base, which has what all share."""
        return self.sides[0].plan

    @property
    def command(self) -> str:
        """The command that makes this comparison."""
        words = ["perfkit", "compare", "--live", self.model, *(one.name for one in self.sides)]
        for name, value in self.shared.items():
            words += ["-p", name, portable(str(value))]
        return shlex.join(words)


def sides_of(
    model: str, words: Sequence[str], shared: Mapping[str, Any], level: float = 0.95
) -> Sides:
    """The sides that `words` name, NAME=VALUE joined by commas; all have what is `shared`.

    Without a label they get one that no other comparison has, so that they are measured anew
    and together; and where the protocol has too few repeats to tell anything at `level`, and
    none were asked for, as many as can. Raises RequestError with the problems of all sides.
    """
    planned = [_planned(model, word, shared) for word in words]
    sides = [side for side, _wrong in planned if side]
    problems = [*_shared_problems(words, shared)]
    problems += _told_once(words, [wrong for _side, wrong in planned])
    problems += _pair_problems(sides)
    if problems:
        raise RequestError(problems)
    update: dict[str, Any] = {"label": shared.get("label") or _label(sides)}
    repeats = sides[0].plan.protocol.repeats
    if shared.get("repeats") is None:
        repeats = max(repeats, fewest_values(level))
    made = []
    for side in sides:
        config = side.plan.config.model_copy(update=update)
        protocol = side.plan.protocol.model_copy(update={"repeats": repeats})
        made.append(replace(side, plan=Plan(config, protocol)))
    return Sides(model, dict(shared), made)


def _shared_problems(words: Sequence[str], shared: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong whatever the sides are."""
    if len(words) < 2:
        yield (
            f"sides: {len(words)} given, and it takes two or more, the first being the base: "
            "framework=paddle framework=torch"
        )
    for name in ("interval_target", "budget"):
        if shared.get(name) is not None:
            yield f"{name}: is not for --live, whose sides make as many repeats; leave it out"
    if shared.get("repeats") == "auto":
        yield "repeats: 'auto' is not for --live, whose sides make as many; name a number"
    if shared.get("launcher") == "manual":
        yield "launcher: 'manual' is not for --live; srun and mpirun are"
    if len({*words}) < len(words):
        yield "two sides are the same; name in what they differ"


def _planned(model: str, word: str, shared: Mapping[str, Any]) -> tuple[Side | None, list[str]]:
    """The side that a word names, and what is wrong with it."""
    values, problems = _parsed(word, shared)
    try:
        return Side(portable(word), values, plan(model, {**shared, **values})), problems
    except RequestError as error:
        return None, problems + error.problems


def _told_once(words: Sequence[str], wrong: Sequence[Sequence[str]]) -> Iterator[str]:
    """What is wrong with each side; what is wrong with all is so with what they share."""
    common = [one for one in wrong[0] if all(one in own for own in wrong)] if wrong else []
    yield from common
    for word, own in zip(words, wrong, strict=True):
        yield from (f"{word}: {problem}" for problem in own if problem not in common)


def _pair_problems(sides: Sequence[Side]) -> Iterator[str]:
    """What keeps sides that could be measured from being compared."""
    for one, other in combinations(sides, 2):
        if one.plan == other.plan and one.name != other.name:
            yield f"{one.name} and {other.name} are the same"
        if one.plan.protocol != other.plan.protocol:
            names = f"{one.plan.protocol.name} or {other.plan.protocol.name}"
            yield f"protocol: must be the same for all sides; -p protocol {names}"


def _parsed(word: str, shared: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The values that a side sets, and what is wrong with how it is typed."""
    values: dict[str, Any] = {}
    problems = []
    for part in word.split(","):
        name, sets, text = part.partition("=")
        if not sets:
            problems.append(f"{part!r} is not NAME=VALUE")
        elif name in SHARED:
            problems.append(f"{name}: is the same for all sides; -p {name} {text}")
        elif name in shared:
            problems.append(f"{name}: is set for all sides by -p; set it by one or the other")
        elif name in values:
            problems.append(f"{name}: is set twice")
        else:
            values[name] = typed(name, text)
    return values, problems


def _label(sides: Sequence[Side]) -> str:
    """The same for the same sides under the same protocol, whichever is the base."""
    parts = sorted(
        json.dumps([side.plan.config.identity, side.plan.protocol.model_dump()])
        for side in sides
    )
    return f"live-{hashlib.sha256(''.join(parts).encode()).hexdigest()[:6]}"
