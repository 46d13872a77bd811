"""Wrong names and values in a request, each by itself, whatever the machine."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from perfkit.measuring.format import shortened
from perfkit.measuring.parameters import (
    COMMAND_FIELDS,
    EVERY_FIELD,
    FIELDS,
    SCRIPT_FIELDS,
    choices_for,
    fields_of,
    is_open,
    models_with,
    takes,
)
from perfkit.measuring.request import not_available, suggest
from perfkit.measuring.request.script import SUFFIX
from perfkit.measuring.work import KINDS, Kind, kind_of
from perfkit.training.models import MODELS

PATTERNS = {
    "device": "cpu, gpu, or another device type that Paddle reports, in lower case",
    "label": "up to 40 letters, digits, - and _",
    "node": "up to 100 letters, digits, ., - and _",
    "hosts": "comma-separated names or addresses: node1,node2",
    "disable_tuning": "comma-separated names of settings: affinity,cudnn_search",
}
TYPES = {
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "True or False",
    "string_type": "text",
}
"""Pydantic's type of an error -> the type that was expected."""
RELATIONS = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}
"""Pydantic's names of the relations of a value to its bound."""
OR_AUTO = ("repeats", "warmup_steps")
"""Numbers that may also be "auto"."""
MOST_CHARACTERS = 200
"""Most characters shown of a value."""


def wrong_values(model: str, values: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with the names and values of a request. `model` is the name of a
    built-in model, or "script"."""
    problems = []
    if model.endswith(SUFFIX):
        problems.append(
            f"model: {model} is a script; perfkit run, doctor, sweep and compare --live "
            f"measure one; in Python: perfkit.plan('script', {{'script': '{model}'}})"
        )
    elif model not in (*KINDS, *MODELS):
        problems.append(not_available("model", model, MODELS))
    for name, value in values.items():
        if name in fields_of(kind_of(model)):
            problems += _wrong_value(model, name, value)
        else:
            problems.append(_unknown_name(name, kind_of(model)))
    return problems


def _unknown_name(name: str, kind: Kind) -> str:
    """Return the problem of a name that is no parameter of such a work."""
    if name in SCRIPT_FIELDS:
        return f"{name}: only for a script: perfkit run train.py -- ARGUMENTS"
    if name in COMMAND_FIELDS and name not in FIELDS:
        return f"{name}: only for a command: perfkit run -- COMMAND"
    if name in FIELDS:
        return (
            f"{name}: only for built-in models; a script or command decides it itself: change "
            "it, or give it an argument: -- ARGUMENTS"
        )
    return (
        f"{name}: no such parameter{suggest(name, fields_of(kind))} (for a variable of your "
        "own, use a name with a leading underscore)"
    )


def _wrong_value(model: str, name: str, value: Any) -> Iterator[str]:
    """Yield what is wrong with a value of a parameter, by itself."""
    if is_open(name, value, kind_of(model)) or (name in OR_AUTO and value == "auto"):
        return
    if not takes(model, name) and value != EVERY_FIELD[name].default:
        models = ", ".join(models_with(name))
        yield f"{name}: {model} does not take it, only {models}; leave it out"
    try:
        _type_of(name).validate_python(value, strict=True)
    except ValidationError as error:
        for details in error.errors():
            yield _sentence(model, name, value, details)


@cache
def _type_of(name: str) -> TypeAdapter[Any]:
    """Return the validator of one parameter."""
    field = EVERY_FIELD[name]
    annotated: Any = Annotated[field.annotation, field]
    return TypeAdapter(annotated)


def _sentence(model: str, name: str, value: Any, details: ErrorDetails) -> str:
    kind = details["type"]
    shown = f"{name}: {shortened(repr(value), MOST_CHARACTERS)}"
    if kind in TYPES:
        return f"{shown} is of the wrong type; allowed: {_allowed_type(name, kind)}"
    if kind == "literal_error":
        return not_available(name, value, choices_for(model, name))
    if kind == "string_pattern_mismatch":
        return f"{shown}; allowed: {PATTERNS[name]}"
    if kind.startswith(("greater", "less")):
        return f"{shown} is out of range; allowed: {_bounds(name)}"
    return f"{shown}: {cause(details)}"


def cause(details: ErrorDetails) -> str:
    """Return the sentence of a validator, or pydantic's own."""
    return str(details.get("ctx", {}).get("error", details["msg"]))


def _allowed_type(name: str, kind: str) -> str:
    """Return the type of a parameter in words, with its bounds, or with the option of papermill
    that keeps text: its -p converts what looks like a number."""
    if kind == "string_type":
        return f"text (for papermill: -r {name} TEXT)"
    bounds = _bounds(name)
    allowed = f"{TYPES[kind]} of {bounds}" if bounds else TYPES[kind]
    return f"{allowed}, or auto" if name in OR_AUTO else allowed


def _bounds(name: str) -> str:
    """Return the bounds of a parameter in words, such as "at least 1 and at most 64"; empty if
    it has none."""
    bounds = []
    for constraint in EVERY_FIELD[name].metadata:
        for relation, words in RELATIONS.items():
            bound = getattr(constraint, relation, None)
            if bound is not None:
                bounds.append(f"{words} {bound}")
    return " and ".join(bounds)
