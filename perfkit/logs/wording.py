"""Sentences of what an audit finds, words for its figures, and an audit for a terminal."""

import os
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from perfkit.logs import dlperf
from perfkit.logs.audit import Audit, AuditedLog, Claim, Explanation, Figure
from perfkit.messages import Message
from perfkit.text.format import number, percent
from perfkit.text.language import gettext as _
from perfkit.text.messages import filled
from perfkit.text.terminal import laid_out, tabulated

SENTENCES: dict[str, Any] = tomllib.loads(
    (Path(__file__).parent / "findings.toml").read_text(encoding="utf-8")
)
"""Code -> sentence."""
LABELS: dict[str, dict[str, str]] = SENTENCES.pop("labels")
"""Kind -> value -> its words: of states, statistics, stages and the like."""
DIGITS = 6
"""Significant digits of a rate; logs print about as many."""


def sentence(message: Message, short: Mapping[str, str] | None = None) -> str:
    """A message in the current language, with the `short` names of logs instead of paths."""
    shown = {name: _shown(name, value) for name, value in message.params.items()}
    text = filled(SENTENCES[message.code], shown)
    for name, other in (short or {}).items():
        text = text.replace(name, other)
    return text


def _shown(name: str, value: Any) -> str:
    match value:
        case Message():
            return sentence(value)
        case list():
            return ", ".join(_shown(name, one) for one in value)
        case dict():
            figures = {place: Figure.model_validate(one) for place, one in value.items()}
            return "; ".join(f"{place}: {figure_words(one)}" for place, one in figures.items())
        case float():
            words = {"share": percent, "difference": difference_words}
            return words[name](value) if name in words else number(value, DIGITS)
    return "–" if value is None else str(value)


def label(kind: str, value: str, /, **shown: Any) -> str:
    """The words of LABELS in the current language."""
    return _(LABELS[kind][value]) % shown


def claim_state(claim: Claim) -> str:
    """The state, and whether the digits were truncated."""
    cut = any(one.truncated for one in claim.explanations[:1])
    words = label("state", claim.state)
    return label("figure", "truncated", state=words) if cut else words


def method_words(figure: Figure) -> str:
    """The statistic of a figure."""
    return label("statistic", figure.statistic, name=figure.name, skipped=figure.skipped)


def range_words(figure: Figure) -> str:
    """The steps of a figure, or its line in the log."""
    if figure.statistic == "reported":
        return label("figure", "line", line=figure.line)
    if figure.statistic in ("last print", "first print", "maximum"):
        return label("figure", "one line")
    words = []
    if figure.first is not None:
        steps = "steps of epochs" if figure.epochs > 1 else "steps"
        words.append(label("figure", steps, **figure.model_dump()))
        if figure.period in LABELS["period"]:
            words.append(label("period", figure.period))
    return ", ".join([*words, label("figure", "lines", prints=figure.prints)])


def figure_words(figure: Figure) -> str:
    return f"{method_words(figure)} ({range_words(figure)})"


def explanation_words(one: Explanation) -> str:
    """A figure that is the claimed number, and of how many devices."""
    words = figure_words(one.figure)
    if one.devices is None:
        return words
    return label("figure", "of devices", figure=words, devices=one.devices)


def explained_value(claim: Claim, one: Explanation) -> str:
    """What explains a claim, to the claim's digits; what is not the claim then, with how far
    the log's own rounding may move it."""
    decimals = len(claim.text.partition(".")[2]) if "e" not in claim.text.lower() else 0
    shown = f"{one.value:.{decimals}f}"
    if float(shown) == claim.value:
        return shown
    own = number(one.value, 8)
    return own if one.truncated else f"{own} ± {number(one.figure.rounding * one.value, 2)}"


def difference_words(share: float | None) -> str:
    return "" if share is None else f"{'+' if share > 0 else ''}{percent(share, 3)}"


def wait_words(figure: Figure | None) -> str:
    """The data wait within the steps of a figure."""
    return percent(figure.wait_share if figure else None, 2)


def chance_words(claim: Claim) -> str:
    """How many figures were tried, and how many equally simple ones match by chance."""
    return label("figure", "chance", tried=claim.tried, chance=number(claim.chance, 2))


def short_names(logs: Iterable[AuditedLog]) -> dict[str, str]:
    """Each log's name in short: that of the file or, where several have it, from the folder on
    that all logs are in."""
    paths = {log.name: Path(log.name).absolute() for log in logs}
    files = Counter(path.name for path in paths.values())
    common = os.path.commonpath([path.parent for path in paths.values()]) if paths else ""
    return {
        name: path.name if files[path.name] == 1 else os.path.relpath(path, common)
        for name, path in paths.items()
    }


def audit_text(audit: Audit) -> str:
    """All that a reader needs of an audit, in lines of 80 columns."""
    template, words = Path(__file__).parent / "audit.txt.j2", sys.modules[__name__]
    return laid_out(template, "audit", audit, words=words, dlperf=dlperf, tabulated=tabulated)
