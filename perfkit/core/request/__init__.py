"""From a request to a plan. This module: the errors of a request, all at once.

plan.py            validates parameters
described.py       the parameters of one model in words
resolve.py         fills in open parameters and returns a configuration
suite_notebook.py  the suite's notebooks, which only a checkout has
requested_script.py  the script of a request, and its refusals
script.py          reads a script of the user's without running it
checks.py          checks whether a configuration can be measured here
contradictions.py  parameters that contradict each other, the model or the framework
requirements.py    what this machine lacks; facts of machine and framework
shared_memory.py   whether /dev/shm is enough for a DataLoader's processes
hosts.py           checks the machines of a measurement on several nodes
"""

import shlex
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from pydantic import ValidationError

from perfkit.core import refusals
from perfkit.core.config import ParameterError
from perfkit.core.parameters import EVERY_FIELD, choices, choices_for
from perfkit.core.refusals import Refusal, nearest_name

T = TypeVar("T")
PATTERNS = {
    "device": "cpu, gpu, or another device type that Paddle reports, in lower case",
    "label": "up to 40 letters, digits, - and _",
    "node": "up to 100 letters, digits, ., - and _",
    "hosts": "comma-separated names or addresses: node1,node2",
    "disable_tuning": "comma-separated names of settings: affinity,cudnn_search",
}
EXPECTED: dict[str, refusals.ExpectedType] = {
    "int_type": "int",
    "float_type": "float",
    "bool_type": "bool",
    "string_type": "text",
}
"""Pydantic's type of an error -> the type that was expected."""
RELATIONS = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}
"""Pydantic's names of the relations of a value to its bound."""
OR_AUTO = ("repeats", "warmup_steps")
"""Numbers that may also be "auto"."""
COMMA_SEPARATED = ("hosts", "disable_tuning")
"""Text whose words are separated by commas; the words of other text by spaces."""


class RequestError(ValueError):
    """The request is invalid, and nothing was started. `problems` lists all errors as
    sentences, `refusals` those that are typed."""

    heading = "The request was refused; nothing was started."

    def __init__(self, problems: Sequence[Refusal | str]) -> None:
        self.refusals: list[Refusal] = []
        self.problems: list[str] = []
        for problem in problems:
            if isinstance(problem, Refusal):
                self.refusals.append(problem)
                self.problems += problem.lines()
            else:
                self.problems.append(problem)
        super().__init__("\n  ".join([self.heading, *self.problems]))

    def _render_traceback_(self) -> list[str]:
        # Called by IPython: a notebook shows the problems instead of a traceback.
        return str(self).splitlines()


def validated(
    make: Callable[[], T], invalid: list[Refusal], model: str | None = None
) -> T | None:
    """Return `make()`; None if that is invalid, with its errors appended to `invalid`. Of a
    model, they name its own choices."""
    try:
        return make()
    except ValidationError as error:
        invalid.extend(_refusal(details, model) for details in error.errors())
        return None


def _refusal(details: Any, model: str | None) -> Refusal:
    """Convert one of pydantic's errors."""
    context = details.get("ctx", {})
    cause = context.get("error")
    if isinstance(cause, ParameterError):
        return cause.refusal
    kind, name, value = details["type"], details["loc"][0], details["input"]
    if kind in EXPECTED:
        expected = "int_or_auto" if name in OR_AUTO else EXPECTED[kind]
        typed = shlex.quote(_as_text(name, value))
        return refusals.WrongType(
            parameter=name,
            value=repr(value),
            typed=typed,
            expected=expected,
            bounds=_bounds(name),
        )
    if kind == "literal_error":
        allowed = choices_for(model, name) if model else choices(name)
        return refusals.NotAvailable.of(name, value, allowed)
    if kind == "string_pattern_mismatch":
        return refusals.WrongPattern(parameter=name, value=repr(value), allowed=PATTERNS[name])
    if kind.startswith(("greater", "less")):
        ((relation, bound),) = context.items()
        return refusals.OutOfRange(
            parameter=name, value=repr(value), relation=relation, bound=str(bound)
        )
    fault = str(cause or details["msg"])
    return refusals.OtherFault(parameter=name, value=repr(value), fault=fault)


def _bounds(name: str) -> str:
    """Return the bounds of a parameter in words, such as " of at least 1 and at most 64"; empty
    if it has none."""
    bounds = []
    for constraint in EVERY_FIELD[name].metadata:
        for relation, words in RELATIONS.items():
            bound = getattr(constraint, relation, None)
            if bound is not None:
                bounds.append(f"{words} {bound}")
    return f" of {' and '.join(bounds)}" if bounds else ""


def _as_text(name: str, value: object) -> str:
    """Return the value of a parameter as text; papermill's -y and -f make lists of words."""
    if not isinstance(value, list | tuple):
        return str(value)
    words = [str(word) for word in value]
    return ",".join(words) if name in COMMA_SEPARATED else shlex.join(words)


def suggest(word: object, names: Iterable[Any]) -> str:
    """Return "; did you mean …?" with the closest of `names`; empty if none is close."""
    nearest = nearest_name(word, names)
    return f"; did you mean {nearest!r}?" if nearest else ""
