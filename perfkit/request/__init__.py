"""From a request to a plan, and what is wrong with a request, in sentences.

plan.py     parameters validated
resolve.py  what they leave open, filled in: a configuration
checks.py   what keeps it from being measured; facts of this machine and the framework
hosts.py    which machines take part, and which of them this is
"""

import difflib
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from pydantic import ValidationError

from perfkit.config import choices

T = TypeVar("T")
TYPES = {
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "True or False",
    "string_type": "text",
}
PATTERNS = {
    "device": "cpu, gpu, or another type of device that Paddle shows, in lower case",
    "label": "up to 40 letters, digits, - and _",
    "hosts": "names or addresses with a comma between: node1,node2",
    "disable_tuning": "names of settings with a comma between: affinity,cudnn_search",
}
BOUNDS = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}


class RequestError(ValueError):
    """The request itself is wrong; nothing was started. `problems` lists all that is wrong."""

    heading = "The request was refused; nothing was started."

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("\n  ".join([self.heading, *problems]))

    def _render_traceback_(self) -> list[str]:
        # IPython asks for this: a notebook's reader needs the problems, not our stack.
        return str(self).splitlines()


def validated(make: Callable[[], T], problems: list[str]) -> T | None:
    """The model that `make` returns, or None and what is wrong added to `problems`."""
    try:
        return make()
    except ValidationError as error:
        problems.extend(_sentence(e) for e in error.errors())
        return None


def _sentence(error: Any) -> str:
    """One pydantic error as: parameter, what is wrong, what is allowed."""
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
        # papermill's -p turns text that looks like a number into one.
        raw = f" (for papermill: -r {name} {value})" if kind == "string_type" else ""
        auto = ", or auto" if name == "repeats" else ""
        return f"{name}: {value!r} is of the wrong type; allowed: {TYPES[kind]}{auto}{raw}"
    fault = error["ctx"]["error"] if kind == "value_error" else error["msg"]
    return f"{name}: {value!r}: {fault}"


def not_available(name: str, value: object, allowed: tuple[Any, ...]) -> str:
    """That `value` is none of the words that the parameter may have."""
    words = ", ".join(str(word) for word in allowed)
    return f"{name}: {value!r} is not available; allowed: {words}{suggest(value, allowed)}"


def suggest(word: object, words: Iterable[Any]) -> str:
    """A question after the word that was meant; empty if none is near."""
    known = [str(one) for one in words]
    # fp16 means pure_fp16 rather than bf16, which is as near by its letters.
    longer = [one for one in known if one.endswith(f"_{word}")]
    close = longer or difflib.get_close_matches(str(word), known, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
