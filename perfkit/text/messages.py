"""The sentences of messages, looked up by code when they are shown, in the current language."""

import re
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from perfkit.messages import Message
from perfkit.results.schema import Failure
from perfkit.text.format import changes, number, percent
from perfkit.text.language import gettext
from perfkit.text.terminal import plain

Sentence = str | list[str]
"""A text with parameters as `%(name)s`, or fragments of it, each shown if all its parameters
are there."""


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads((Path(__file__).parent / name).read_text(encoding="utf-8"))


WARNINGS: dict[str, dict[str, str]] = _read("warnings.toml")
"""Warning code -> `severity` ("error" or "caution") and `sentence`, the worst first."""
FAILURES: dict[str, list[str]] = _read("failures.toml")
"""Failure code -> fragments of its sentence."""
COMPARISON: dict[str, str] = _read("comparison.toml")
"""What a comparison says of a pair, by code."""
DIAGNOSIS: dict[str, str] = _read("diagnosis.toml")
"""What a diagnosis says, by code."""
SEVERITIES = ("error", "caution")
FORMATTERS: dict[str, Callable[[Any], str]] = {
    **dict.fromkeys(("share", "share_limit"), percent),
    "shares": changes,
    **dict.fromkeys(("cores", "core_limit"), lambda value: number(value, 2)),
    **dict.fromkeys(("loss", "low", "high"), lambda value: number(value, 3)),
    **dict.fromkeys(("here", "there"), repr),
    "port": str,
}
"""Name of a parameter -> its text, where the type alone does not say it."""


def worst_first(codes: Iterable[str]) -> list[str]:
    """Known warning codes in the order of WARNINGS, then the others."""
    order = list(WARNINGS)
    return sorted(codes, key=lambda code: order.index(code) if code in order else len(order))


def severity(codes: Iterable[str]) -> str | None:
    """The highest severity among these warning codes; None without a warning."""
    found = {WARNINGS.get(code, {}).get("severity", "caution") for code in codes}
    return next((level for level in SEVERITIES if level in found), None)


def sentence(message: Message) -> str:
    """The sentence of a failure or a warning in the current language."""
    known = isinstance(message, Failure)
    text = FAILURES[message.code] if known else WARNINGS[message.code]["sentence"]
    shown = {name: _formatted(name, value) for name, value in message.params.items()}
    return filled(text, shown)


def coded(failure: Failure) -> str:
    """Code and sentence of a failure, on one line: "timeout: repeat 1 took over 9 s"."""
    return f"{failure.code}: {plain(sentence(failure))}"


def filled(text: Sentence, shown: dict[str, str]) -> str:
    """A sentence in the current language, with these parameters."""
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
