"""Sentences of findings, descriptions of figures, and the audit's text for a terminal."""

import os
import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from perfkit.audit.audit import Audit, AuditedLog, Claim, Explanation, Figure
from perfkit.core.format import change, number, percent
from perfkit.core.messages import Message
from perfkit.report.text.language import gettext as _
from perfkit.report.text.messages import filled
from perfkit.report.text.terminal import laid_out, tabulated

SENTENCES: dict[str, Any] = tomllib.loads(
    (Path(__file__).parent / "findings.toml").read_text(encoding="utf-8")
)
"""Code -> sentence."""
LABELS: dict[str, dict[str, str]] = SENTENCES.pop("labels")
"""Kind -> value -> words: of states, statistics, stages and other values."""
DIGITS = 6
"""Significant digits of a rate, about as many as logs print."""


def sentence(message: Message, short: Mapping[str, str] | None = None) -> str:
    """Return a message in the current language, with `short` names instead of paths of logs.
    Findings of older versions are shown as their code."""
    shown = {name: _shown(name, value, short or {}) for name, value in message.params.items()}
    return filled(SENTENCES.get(message.code, message.code), shown)


def _shown(name: str, value: Any, short: Mapping[str, str]) -> str:
    match value:
        case Message():
            return sentence(value, short)
        case list():
            return ", ".join(_shown(name, item, short) for item in value)
        case dict():
            figures = {place: Figure.model_validate(item) for place, item in value.items()}
            return "; ".join(f"{place}: {figure_words(f)}" for place, f in figures.items())
        case float():
            words = {"share": percent, "difference": difference_words}
            return words[name](value) if name in words else number(value, DIGITS)
    return "–" if value is None else short.get(str(value), str(value))


def label(kind: str, value: str, /, **shown: Any) -> str:
    return _(LABELS[kind][value]) % shown


def claim_state(claim: Claim) -> str:
    """Return the words for a claim's state and for truncated digits."""
    words = label("state", claim.state)
    is_truncated = any(best.truncated for best in claim.explanations[:1])
    return label("figure", "truncated", state=words) if is_truncated else words


def method_words(figure: Figure) -> str:
    return label("statistic", figure.statistic, name=figure.name, skipped=figure.skipped)


def range_words(figure: Figure) -> str:
    """Return the words for a figure's steps, or for its line in the log."""
    if figure.statistic == "reported":
        return label("figure", "line", line=figure.line)
    if figure.statistic in ("last print", "first print", "maximum"):
        return label("figure", "one line")
    words, lines = [], "lines"
    if figure.first is not None and figure.last is not None:
        # Each line is of one step, and steps between them are not printed.
        is_sampled = figure.prints == figure.steps < figure.last - figure.first + 1
        lines = "printed steps" if is_sampled else lines
        steps = "steps of epochs" if figure.epochs > 1 else "steps"
        words.append(label("figure", steps, **figure.model_dump()))
        if figure.period in LABELS["period"]:
            words.append(label("period", figure.period))
    return ", ".join([*words, label("figure", lines, prints=figure.prints)])


def figure_words(figure: Figure) -> str:
    return f"{method_words(figure)} ({range_words(figure)})"


def explanation_words(explanation: Explanation) -> str:
    words = figure_words(explanation.figure)
    if explanation.devices is None:
        return words
    return label("figure", "of devices", figure=words, devices=explanation.devices)


def explained_value(claim: Claim, explanation: Explanation) -> str:
    """Return an explanation's value to the claim's digits or, if these differ from the claim,
    with the bounds of the log's rounding."""
    decimals = len(claim.text.partition(".")[2]) if "e" not in claim.text.lower() else 0
    value = explanation.value
    shown = f"{value:.{decimals}f}"
    if float(shown) == claim.value:
        return shown
    error = number(explanation.figure.rounding * value, 2)
    return number(value, 8) + ("" if explanation.truncated else f" ± {error}")


def difference_words(share: float | None) -> str:
    return "" if share is None else change(share, 3)


def wait_words(figure: Figure | None) -> str:
    return percent(figure.wait_share if figure else None, 2)


def chance_words(claim: Claim) -> str:
    """Return how many figures were tried, and how many as simple would match by chance."""
    return label("figure", "chance", tried=claim.tried, chance=number(claim.chance, 2))


def short_names(logs: Iterable[AuditedLog]) -> dict[str, str]:
    """Return logs' short names: their paths in the common folder."""
    paths = {log.name: Path(log.name).absolute() for log in logs}
    common = os.path.commonpath([path.parent for path in paths.values()]) if paths else ""
    return {name: os.path.relpath(path, common) for name, path in paths.items()}


def audit_text(audit: Audit) -> str:
    """Return an audit as text for a terminal, in lines of 80 columns."""
    # Imported here: pages of measurements need no log formats, which take time to compile.
    from perfkit.audit import dlperf

    template, words = Path(__file__).parent / "audit.txt.j2", sys.modules[__name__]
    return laid_out(template, "audit", audit, words=words, dlperf=dlperf, tabulated=tabulated)
