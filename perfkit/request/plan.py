"""From a request to a plan: parameters validated, and what they leave open filled in.

All that is wrong with a request is said at once, before anything starts.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from perfkit.config import (
    PATHS,
    PROTOCOL_PARAMETERS,
    PROTOCOLS,
    Config,
    Protocol,
    parameters,
    typed_path,
)
from perfkit.models import MODELS
from perfkit.request.errors import RequestError, not_available, suggest, validated
from perfkit.request.resolve import Unseen, not_run, resolve
from perfkit.system.gpus import visible_gpus


@dataclass(frozen=True)
class Plan:
    """A configuration and a protocol in which nothing is left open."""

    config: Config
    protocol: Protocol


def plan(model: str, namespace: Mapping[str, Any], unseen: Collection[Unseen] = ()) -> Plan:
    """Validate the parameters found in `namespace` and fill in what they leave open.

    `namespace` is a notebook's `globals()` or any mapping of names to values: every public
    name that holds a plain literal counts as a parameter, so that a misspelt one is noticed.
    What is `unseen` from here is not judged. Raises RequestError with all problems at once.
    """
    given = {name: value for name, value in namespace.items() if _is_parameter(name, value)}
    known = parameters()
    problems = [
        f"{name}: no such parameter{suggest(name, known)} "
        "(a variable of your own? Begin its name with an underscore)"
        for name in given.keys() - known.keys()
    ]
    if model not in MODELS:
        problems.append(not_available("model", model, tuple(MODELS)))
    given = {name: value for name, value in given.items() if name in known}
    steps = {name: given.pop(name, None) for name in PROTOCOL_PARAMETERS}
    protocol = steps.pop("protocol")
    if protocol is None:
        protocol = "auto"
    if wrong := value_problems("protocol", protocol):
        problems += wrong
        protocol = "auto"

    config = _asked({"model": model if model in MODELS else "resnet50"} | given, problems)
    validated(Protocol.named, {"name": "quick"} | steps, problems)
    if problems or config is None:
        raise RequestError(sorted(problems))
    config = resolve(config, len(visible_gpus()), unseen)
    if protocol == "auto":
        protocol = "published" if config.device == "gpu" else "quick"
    return Plan(config, Protocol.named(protocol, **steps))


def value_problems(name: str, value: Any) -> list[str]:
    """What is wrong with this value of the parameter `name`, whatever the others are."""
    problems: list[str] = []
    if name == "protocol":
        if value not in ("auto", None, *PROTOCOLS):
            problems.append(not_available(name, value, ("auto", *PROTOCOLS)))
    elif name not in PROTOCOL_PARAMETERS:
        _asked({"model": "resnet50", name: value}, problems)
    else:
        # Of two that need each other, one alone is not wrong by itself.
        beside = {"repeats": "auto"} if name in ("budget", "interval_target") else {}
        validated(Protocol.named, {"name": "quick", name: value} | beside, problems)
    return problems


def typed(name: str, value: str) -> Any:
    """`value`, as it was typed, as the parameter's type, where its text has one; else the text
    itself. A relative path starts in the working directory."""
    if name in PATHS:
        return typed_path(value)
    if value in ("True", "False", "None"):
        return {"True": True, "False": False, "None": None}[value]
    default, _meaning = parameters().get(name, (None, ""))
    if isinstance(default, str):
        return value
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value


def _is_parameter(name: str, value: object) -> bool:
    literal = value is None or isinstance(value, str | int | float | list | tuple | dict)
    # In and Out are IPython's.
    return literal and not name.startswith("_") and name not in ("In", "Out")


def _asked(values: dict[str, Any], problems: list[str]) -> Config | None:
    """The configuration that is asked for, or None and what is wrong with it added to
    `problems`."""
    if unknown := not_run(values.get("framework", "paddle")):
        problems += unknown
        values = values | {"framework": "paddle"}
    config: Config | None = validated(Config, values, problems)
    return config
