"""From a request to a plan. This module: errors of a request as sentences.

plan.py     validates parameters
resolve.py  fills in open parameters and returns a configuration
checks.py   checks whether a configuration can be measured; facts of machine and framework
hosts.py    checks the machines of a measurement on several nodes
"""

import difflib
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from pydantic import ValidationError

from perfkit.core.config import choices

T = TypeVar("T")
TYPES = {
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "True or False",
    "string_type": "text",
}
PATTERNS = {
    "device": "cpu, gpu, or another device type that Paddle reports, in lower case",
    "label": "up to 40 letters, digits, - and _",
    "hosts": "comma-separated names or addresses: node1,node2",
    "disable_tuning": "comma-separated names of settings: affinity,cudnn_search",
}
BOUNDS = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}


class RequestError(ValueError):
    """The request is invalid, and nothing was started. `problems` lists all errors."""

    heading = "The request was refused; nothing was started."

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("\n  ".join([self.heading, *problems]))

    def _render_traceback_(self) -> list[str]:
        # Called by IPython: a notebook shows the problems instead of a traceback.
        return str(self).splitlines()


def validated(make: Callable[[], T], problems: list[str]) -> T | None:
    """Return `make()`; None if invalid, with its errors appended to `problems`."""
    try:
        return make()
    except ValidationError as error:
        problems.extend(_sentence(e) for e in error.errors())
        return None


def _sentence(error: Any) -> str:
    """Turn a pydantic error into a sentence: parameter, error, allowed values."""
    if not error["loc"]:
        return str(error["ctx"]["error"])
    name, value, kind = error["loc"][0], error["input"], error["type"]
    if kind == "literal_error":
        return not_available(name, value, choices(name))
    if kind.startswith(("greater", "less")):
        limit = "; ".join(f"{BOUNDS[key]} {bound}" for key, bound in error["ctx"].items())
        return f"{name}: {value!r} is out of range; allowed: {limit}"
    if kind == "string_pattern_mismatch":
        return f"{name}: {value!r}; allowed: {PATTERNS[name]}"
    if kind in TYPES:
        # papermill's -p converts text that looks like a number.
        raw = f" (for papermill: -r {name} {value})" if kind == "string_type" else ""
        auto = ", or auto" if name in ("repeats", "warmup_steps") else ""
        return f"{name}: {value!r} is of the wrong type; allowed: {TYPES[kind]}{auto}{raw}"
    fault = error["ctx"]["error"] if kind == "value_error" else error["msg"]
    return f"{name}: {value!r}: {fault}"


def not_available(name: str, value: object, allowed: tuple[Any, ...]) -> str:
    """The error for a `value` that is not one of the allowed words."""
    words = ", ".join(str(word) for word in allowed)
    return f"{name}: {value!r} is not available; allowed: {words}{suggest(value, allowed)}"


def suggest(word: object, words: Iterable[Any]) -> str:
    """Return "; did you mean …?" with the closest of `words`; empty if none is close."""
    close = nearest(word, words)
    return f"; did you mean {close[0]!r}?" if close else ""


def nearest(word: object, words: Iterable[Any]) -> list[str]:
    """Return the closest of `words`; empty if none is close."""
    known = [str(known_word) for known_word in words]
    # fp16 stands for pure_fp16 rather than bf16, which is equally close by its letters.
    longer = [name for name in known if name.endswith(f"_{word}")]
    return (longer or difflib.get_close_matches(str(word), known))[:1]
