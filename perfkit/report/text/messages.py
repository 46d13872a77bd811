"""Sentences of messages: looked up by code when shown, in the current language."""

import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from perfkit.core.format import changes, number, percent, plain
from perfkit.core.messages import Message
from perfkit.core.results.repeat import Failure
from perfkit.core.statements import Statement
from perfkit.report.text.language import gettext, ngettext, translations

Sentence = str | list[str]
"""A text with parameters as `%(name)s`, or a list of fragments; a fragment is shown if all its
parameters are known."""


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads((Path(__file__).parent / name).read_text(encoding="utf-8"))


FAILURES: dict[str, list[str]] = _read("failures.toml")
"""Failure code -> fragments of its sentence."""
COMPARISON: dict[str, str] = _read("comparison.toml")
"""Verdict code of a pair -> its sentence."""
DIAGNOSIS: dict[str, str] = _read("diagnosis.toml")
"""Code in a diagnosis -> its sentence."""


def _repeats(indices: list[int]) -> str:
    words = ngettext("Repeat %(numbers)s", "Repeats %(numbers)s", len(indices))
    return words % {"numbers": ", ".join(map(str, indices))}


FORMATTERS: dict[str, Callable[[Any], str]] = {
    "repeats": _repeats,
    **dict.fromkeys(("share", "share_limit"), percent),
    "shares": changes,
    **dict.fromkeys(("cores", "core_limit"), lambda value: number(value, 2)),
    **dict.fromkeys(("loss", "low", "high"), lambda value: number(value, 3)),
    **dict.fromkeys(("here", "there"), repr),
    "port": str,
}
"""Name of a parameter -> its formatter, if the value's type does not determine the format."""


def sentence(message: Message | Statement) -> str:
    """Return the sentence of a failure or a warning in the current language."""
    if isinstance(message, Statement):
        return message.text(translations())
    text = FAILURES[message.code]
    shown = {name: _formatted(name, value) for name, value in message.params.items()}
    return filled(text, shown)


def coded(failure: Failure) -> str:
    """Return code and sentence of a failure on one line: "timeout: repeat 1 took over 9 s"."""
    return f"{failure.code}: {plain(sentence(failure))}"


def filled(text: Sentence, shown: dict[str, str]) -> str:
    """Return a sentence in the current language with the formatted parameters `shown`."""
    if isinstance(text, str):
        return gettext(text) % shown
    parts = [part for part in text if shown.keys() >= {*re.findall(r"%\((\w+)\)", part)}]
    return "".join(gettext(part) % shown for part in parts)


def _formatted(name: str, value: Any) -> str:
    if name in FORMATTERS:
        return FORMATTERS[name](value)
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) else str(value)
