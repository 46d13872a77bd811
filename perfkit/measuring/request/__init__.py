"""From a request to a plan. This module: the error of a request.

plan.py            from the values of a request to a configuration and a protocol
values.py          wrong names and values, each by itself
described.py       the parameters of one model in words
resolve.py         fills in open parameters and returns a configuration
suite_notebook.py  the suite's notebooks, which only a checkout has
script.py          reads a script of the user's without running it, and what is wrong with it
command_files.py   reads the files that a command names, and what is wrong with it
checks.py          whether a configuration can be measured here; its data
contradictions.py  parameters that contradict each other, the model or the framework
requirements.py    what this machine lacks; facts of machine and framework
hosts.py           checks the machines of a measurement on several nodes

What is wrong is a sentence where it is found: the parameter, what is wrong with it, what is
allowed, and what to type instead.
"""

import difflib
from collections.abc import Iterable
from typing import Any


class RequestError(ValueError):
    """The request is invalid, and nothing was started. `problems` lists all errors as
    sentences, most of which begin with the name of a parameter or an option and a colon."""

    heading = "The request was refused; nothing was started."

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = [*problems]
        super().__init__("\n  ".join([self.heading, *self.problems]))

    def _render_traceback_(self) -> list[str]:
        # Called by IPython: a notebook shows the problems instead of a traceback.
        return str(self).splitlines()


def not_available(parameter: str, value: object, allowed: Iterable[Any]) -> str:
    """Return the problem of a value that is not one of the allowed words."""
    words = [str(word) for word in allowed]
    return (
        f"{parameter}: {value!r} is not available; allowed: {', '.join(words)}"
        f"{suggest(value, words)}"
    )


def suggest(word: object, names: Iterable[Any]) -> str:
    """Return "; did you mean …?" with the closest of `names`; empty if none is close."""
    nearest = nearest_name(word, names)
    return f"; did you mean {nearest!r}?" if nearest else ""


def nearest_name(name: object, names: Iterable[Any]) -> str | None:
    """Return the closest of `names` to a misspelt one; None if none is close."""
    candidates = [str(candidate) for candidate in names]
    # fp16 stands for pure_fp16 rather than bf16, which is equally close by its letters.
    longer = [candidate for candidate in candidates if candidate.endswith(f"_{name}")]
    close = longer or difflib.get_close_matches(str(name), candidates)
    return close[0] if close else None
