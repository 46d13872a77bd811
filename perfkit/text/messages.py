"""Messages: what the suite says of a number is stored as a code with parameters; the sentence
is looked up when it is shown, in the current language."""

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from perfkit.text.format import changes, number, percent
from perfkit.text.language import gettext

WARNINGS: dict[str, dict[str, str]] = tomllib.loads(
    (Path(__file__).parent / "warnings.toml").read_text(encoding="utf-8")
)
"""Warning code -> `severity` ("error" or "caution") and `sentence`, the worst first."""
SEVERITIES = ("error", "caution")


class Message(NamedTuple):
    """A code and the parameters of its sentence."""

    code: str
    params: dict[str, Any]


def worst_first(codes: Iterable[str]) -> list[str]:
    """Known warning codes in the order of WARNINGS, then the others."""
    order = list(WARNINGS)
    return sorted(codes, key=lambda code: order.index(code) if code in order else len(order))


def severity(codes: Iterable[str]) -> str | None:
    """The highest severity among these warning codes; None without a warning."""
    found = {WARNINGS.get(code, {}).get("severity", "caution") for code in codes}
    return next((level for level in SEVERITIES if level in found), None)


def sentence(message: Message) -> str:
    """The sentence of a warning in the current language."""
    shown = {name: _formatted(name, value) for name, value in message.params.items()}
    return gettext(WARNINGS[message.code]["sentence"]) % shown


def _formatted(name: str, value: Any) -> str:
    match name:
        case "share" | "share_limit":
            return percent(value)
        case "shares":
            return changes(value)
        case "repeats" | "reasons":
            return ", ".join(map(str, value))
        case "cores" | "core_limit":
            return number(value, 2)
        case "loss" | "low" | "high":
            return number(value, 3)
    return f"{value:,}" if isinstance(value, int) else str(value)
