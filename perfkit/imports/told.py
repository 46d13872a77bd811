"""What is known of a training that is over, and who says it: its logs, or a hand."""

from collections.abc import Mapping, Sequence
from typing import Any

from perfkit.config import Config, choices
from perfkit.importers.log import Log
from perfkit.request.frameworks import FRAMEWORKS
from perfkit.request.plan import typed
from perfkit.request.refusal import nearest, validated
from perfkit.results.schema import Reading
from perfkit.system.environment import FACTS
from perfkit.text.terminal import plain

NEEDED = ("model", "framework", "precision", "batch_size", "accumulate", "input", "device")
"""Parameters without which no table has a place for a measurement, beside its topology."""
STEPS = ("warmup_steps", "measured_steps")
MEANINGLESS = ("outputs_dir", "timeout", "port")
"""Parameters that say nothing of a training that is over."""
ENVIRONMENT = "environment."
BY_HAND = "given by hand"

Told = dict[str, tuple[Any, str]]
"""Parameter or fact -> its value and who says it."""


def told_of(logs: Sequence[Log], given: Mapping[str, str], problems: list[str]) -> Told:
    """What the logs tell and what is given, which takes the place of that; what lacks is added
    to `problems`, as is what is no parameter."""
    facts = {*FACTS, *choices(Config.model_fields["framework"].annotation)}
    facts |= {fact for framework in FRAMEWORKS.values() for fact in framework.facts}
    known = [name for name in Config.model_fields if name not in MEANINGLESS]
    known += [*STEPS, *(f"{ENVIRONMENT}{fact}" for fact in sorted(facts))]
    problems += [
        f"{name}: nothing that is told of a log{nearest(name, known)}"
        for name in given
        if name not in known
    ]
    told = _facts(logs, problems)
    by_hand = {
        name: plain(value) if name.startswith(ENVIRONMENT) else typed(name, value)
        for name, value in given.items()
    }
    for name, kind in (("gpus", "gpu"), ("processes", "cpu")):
        if name in by_hand:
            told.setdefault("device", (kind, f"follows from {name}"))
    device = by_hand.get("device", told.get("device", ("gpu", ""))[0])
    devices = "processes" if device == "cpu" else "gpus"
    if "devices" in told:
        told[devices] = told.pop("devices")
    for name, value in by_hand.items():
        other = "; {1} says {0}".format(*told[name]) if name in told else ""
        told[name] = (value, f"{BY_HAND}{other}")
    problems += [
        f"{name}: no log tells it; -p {name} {_values(name)}"
        for name in (*NEEDED, "nodes", devices)
        if name not in told
    ]
    return told


def _facts(logs: Sequence[Log], problems: list[str]) -> Told:
    """What the logs tell, in which they have to agree."""
    facts: Told = {}
    for log in logs:
        for name, fact in log.facts.items():
            by = plain(f"{log.path.name}, {fact.said_by}")
            value, first = facts.setdefault(name, (fact.value, by))
            if fact.value != value:
                told = f"{value!r} by {first}, {fact.value!r} by {by}"
                problems.append(f"{name}: differs, so these are no repeats: {told}")
    if "ranks" in facts and facts["ranks"][0] == 1:
        for name in ("nodes", "devices"):
            facts.setdefault(name, facts["ranks"])
    return facts


def _values(name: str) -> str:
    """What may be typed for a parameter."""
    words = choices(Config.model_fields[name].annotation)
    return "|".join(str(word) for word in words if word not in (None, "auto")) or "NUMBER"


def config_of(told: Told, problems: list[str]) -> Config | None:
    values = {name: told[name][0] for name in Config.model_fields if name in told}
    config: Config | None = validated(Config, values, problems)
    if config is None:
        return None
    if config.device == "auto" or (config.device == "gpu" and not config.gpus):
        problems.append("device: say what trained, cpu with processes or gpu with gpus")
    ranks, by = told.get("ranks", (config.ranks, ""))
    if ranks != config.ranks:
        problems.append(
            f"nodes, {'gpus' if config.device == 'gpu' else 'processes'}: {config.topology} "
            f"makes {config.ranks} ranks; {by} says {ranks}"
        )
    whole, by = told.get("global_batch_size", (config.global_batch, ""))
    if whole != config.global_batch:
        problems.append(
            f"batch_size, accumulate: they and {config.topology} make {config.global_batch} "
            f"samples an update; {by} says {whole}"
        )
    return config


def environment_of(told: Told, config: Config) -> dict[str, Reading]:
    """The facts of where it was made. Of the GPUs, the name alone: how many a node had, beside
    those that trained, nobody said."""
    framework = FRAMEWORKS.get(config.framework)
    facts = [*FACTS, *(framework.facts if framework else [config.framework])]
    environment = {fact: Reading(value=None, missing="the log does not tell") for fact in facts}
    for name, (value, _by) in told.items():
        if name.startswith(ENVIRONMENT):
            fact = name.removeprefix(ENVIRONMENT)
            environment[fact] = Reading(value=[value] if fact == "gpus" else value)
    return environment
