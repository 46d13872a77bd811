"""Sentences of messages: looked up by code when shown, in the current language."""

import re
import tomllib
from pathlib import Path
from typing import Any

from perfkit.report.text.language import gettext

Sentence = str | list[str]
"""A text with parameters as `%(name)s`, or a list of fragments; a fragment is shown if all its
parameters are known."""


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads((Path(__file__).parent / name).read_text(encoding="utf-8"))


DIAGNOSIS: dict[str, str] = _read("diagnosis.toml")
"""Code in a diagnosis -> its sentence."""


def filled(text: Sentence, shown: dict[str, str]) -> str:
    """Return a sentence in the current language with the formatted parameters `shown`."""
    if isinstance(text, str):
        return gettext(text) % shown
    parts = [part for part in text if shown.keys() >= {*re.findall(r"%\((\w+)\)", part)}]
    return "".join(gettext(part) % shown for part in parts)
