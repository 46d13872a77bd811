"""Wrong names and values in a request, each by itself, whatever the machine."""

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from perfkit.measuring.config import Config
from perfkit.measuring.format import shortened
from perfkit.measuring.parameters import (
    EVERY_FIELD,
    FIELDS,
    PROTOCOL_PARAMETERS,
    SCRIPT_FIELDS,
    Kind,
    choices_for,
    fields_of,
    is_open,
    models_with,
    parameters,
    takes,
)
from perfkit.measuring.protocol import Protocol
from perfkit.measuring.request import nearest_name, not_available
from perfkit.measuring.request.requested_script import SUFFIX
from perfkit.measuring.work import SCRIPT, kind_of
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
OF_MODELS = (
    "only for built-in models; a script decides this itself: change the script, or give it an "
    "argument: -- ARGUMENTS"
)
OR_AUTO = ("repeats", "warmup_steps")
"""Numbers that may also be "auto"."""
COMMA_SEPARATED = ("hosts", "disable_tuning")
"""Text whose words are separated by commas; the words of other text by spaces."""
MOST_CHARACTERS = 200
"""Most characters shown of a value."""


def wrong_values(model: str, values: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with the names and values of a request. `model` is the name of a
    built-in model, or "script"."""
    kind = kind_of(model)
    known = {name: value for name, value in values.items() if name in fields_of(kind)}
    of_work: dict[str, Any] = {}
    of_config: dict[str, Any] = {}
    of_protocol: dict[str, Any] = {}
    for name, value in known.items():
        if is_open(name, value, kind) or (name in OR_AUTO and value == "auto"):
            continue
        if name == "protocol":
            of_protocol["name"] = value
        elif name in PROTOCOL_PARAMETERS:
            of_protocol[name] = value
        elif name in kind.model_fields:
            of_work[name] = value
        else:
            of_config[name] = value
    problems = [_unknown_name(name, kind) for name in values if name not in known]
    if model in MODELS:
        problems += _not_taken(model, known)
    if model.endswith(SUFFIX):
        problems.append(
            f"model: {model} is a script; perfkit run, doctor, sweep and compare --live "
            f"measure one; in Python: perfkit.plan('script', {{'script': '{model}'}})"
        )
    elif model != SCRIPT:
        of_work["model"] = model
    problems += _invalid(kind, of_work, model)
    problems += _invalid(Config, of_config, model)
    return [*problems, *_invalid(Protocol, of_protocol)]


def _unknown_name(name: str, kind: Kind) -> str:
    """Return the problem of a name that is no parameter of such a work."""
    if name in SCRIPT_FIELDS:
        return f"{name}: only for a script: perfkit run train.py -- ARGUMENTS"
    if name in FIELDS:
        return f"{name}: {OF_MODELS}"
    nearest = nearest_name(name, FIELDS | fields_of(kind))
    if nearest and nearest not in fields_of(kind):
        return f"{name}: no such parameter; {nearest} is {OF_MODELS}"
    question = f"; did you mean {nearest!r}?" if nearest else ""
    return (
        f"{name}: no such parameter{question} (for a variable of your own, use a name with a "
        "leading underscore)"
    )


def _not_taken(model: str, values: Mapping[str, Any]) -> Iterator[str]:
    """Yield the parameters that a model does not take, unless they are the defaults."""
    for name, value in values.items():
        default, _meaning = parameters()[name]
        if value not in (None, default) and not takes(model, name):
            models = ", ".join(models_with(name))
            yield f"{name}: {model} does not take it, only {models}; leave it out"


def _invalid(kind: type[BaseModel], values: Mapping[str, Any], model: str = "") -> list[str]:
    """Return the errors of values for some fields of a pydantic model."""
    try:
        kind.model_validate(values)
    except ValidationError as error:
        return sentences(error, model)
    return []


def sentences(error: ValidationError, model: str = "") -> list[str]:
    """Return pydantic's errors as sentences, without those of fields that are not set. Those of
    a model name its own choices."""
    every = error.errors()
    return [_sentence(details, model) for details in every if details["type"] != "missing"]


def _sentence(details: ErrorDetails, model: str) -> str:
    context = details.get("ctx", {})
    fault = str(context.get("error", details["msg"]))
    if not details["loc"]:
        # Of several fields, which the sentence names.
        return fault
    name, value, kind = str(details["loc"][0]), details["input"], details["type"]
    if name == "name":
        name = "protocol"
    shown = f"{name}: {shortened(repr(value), MOST_CHARACTERS)}"
    if kind in TYPES:
        return f"{shown} is of the wrong type; allowed: {_allowed_type(name, value, kind)}"
    if kind == "literal_error":
        return not_available(name, value, choices_for(model, name))
    if kind == "string_pattern_mismatch":
        return f"{shown}; allowed: {PATTERNS[name]}"
    if kind.startswith(("greater", "less")):
        return f"{shown} is out of range; allowed: {_bounds(name)}"
    return f"{shown}: {fault}"


def _allowed_type(name: str, value: object, kind: str) -> str:
    """Return the type of a parameter in words, with its bounds, or with the option of papermill
    that keeps text: its -p converts what looks like a number."""
    if kind == "string_type":
        return f"text (for papermill: -r {name} {shlex.quote(_as_text(name, value))})"
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


def _as_text(name: str, value: object) -> str:
    """Return the value of a parameter as text; papermill's -y and -f make lists of words."""
    if not isinstance(value, list | tuple):
        return str(value)
    words = [str(word) for word in value]
    return ",".join(words) if name in COMMA_SEPARATED else shlex.join(words)
