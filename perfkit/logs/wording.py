"""An audit in words: sentences of its findings and figures, and all of it for a terminal."""

import os
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path, PurePath
from typing import Any, get_args

from rich.table import Table
from rich.text import Text

from perfkit.logs import dlperf
from perfkit.logs.audit import (
    Audit,
    AuditedLog,
    Claim,
    Explanation,
    Figure,
    State,
)
from perfkit.messages import Message
from perfkit.results.schema import Finding
from perfkit.text.format import number, percent
from perfkit.text.language import gettext as _
from perfkit.text.messages import filled
from perfkit.text.terminal import table_lines, wrapped

_DATA: dict[str, Any] = tomllib.loads(
    (Path(__file__).parent / "findings.toml").read_text(encoding="utf-8")
)
LABELS: dict[str, dict[str, str]] = _DATA.pop("labels")
"""Kind -> value -> its words: of states, statistics, stages and the like."""
SENTENCES: dict[str, str] = _DATA
"""Code -> sentence."""
DIGITS = 6
"""Significant digits of a rate; logs print about as many."""
SHOWN, REPORTED = 5, 12
"""So many explanations of a number and other figures of a log are shown; the JSON has all."""


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
        case str() if name == "how":
            return _(value)
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


def part_words(claim: Claim) -> str:
    """The part of a published table that a claim is in, or its place."""
    return " · ".join(filter(None, (claim.table, claim.gpu, claim.precision))) or claim.place


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
    same = float(shown) == claim.value
    if same:
        return shown
    if one.truncated:
        return number(one.value, 8)
    return f"{number(one.value, 8)} ± {number(one.figure.rounding * one.value, 2)}"


def difference_words(share: float | None) -> str:
    return "" if share is None else f"{'+' if share > 0 else ''}{percent(share, 3)}"


def wait_words(figure: Figure | None) -> str:
    """The data wait within the steps of a figure."""
    return percent(figure.wait_share if figure else None, 2)


def covers_words(log: AuditedLog) -> str:
    """Which steps a print covers."""
    return label("covers", log.covers, step=log.since)


def chance_words(claim: Claim) -> str:
    """How many figures were tried, and how many equally simple ones match by chance."""
    return label("figure", "chance", tried=claim.tried, chance=number(claim.chance, 2))


def short_names(logs: Iterable[AuditedLog]) -> dict[str, str]:
    """Each log's name in short: that of the file or, where several have it, from the folder on
    that all logs are in."""
    names = [log.name for log in logs]
    files = Counter(PurePath(name).name for name in names)
    folders = [Path(name).absolute().parent for name in names]
    common = os.path.commonpath(folders) if names else ""
    return {
        name: PurePath(name).name
        if files[PurePath(name).name] == 1
        else os.path.relpath(Path(name).absolute(), common)
        for name in names
    }


# For a terminal.


def text(audit: Audit) -> str:
    """All that a reader needs of it, in lines of 80 columns."""
    names = short_names(audit.logs)
    lines = _one(audit.logs[0]) if len(audit.logs) == 1 else _many(audit.logs, names)
    for _table, claims in groupby(audit.claims, lambda claim: claim.table):
        lines += ["", *_claims([*claims], names)]
    found = [*(one for log in audit.logs for one in log.findings), *audit.findings]
    if found:
        lines += ["", "Findings, as they were seen:", *_findings(found, names)]
    if audit.dlperf:
        for variant in ("mean", "median"):
            lines += ["", f"DLPerf's summary, its {variant} variant:"]
            lines.append(dlperf.text(audit.dlperf, variant))
    lines += [wrapped(f"left out: {reason}") for reason in audit.left_out]
    return "\n".join(lines)


def _one(log: AuditedLog) -> list[str]:
    """A log with all its figures."""
    table = _table("statistic", "of", "all devices", "one device")
    for figure in log.figures:
        values = (number(one, 7) for one in (figure.throughput, figure.per_device))
        table.add_row(*map(Text, (method_words(figure), range_words(figure), *values)))
    facts = ", ".join(f"{name} {fact.value}" for name, fact in log.facts.items())
    rates = "one device" if log.rate_of == "device" else "all devices"
    meaning = (
        f"{log.format}; printed rates are of {rates}; a print tells of {covers_words(log)}"
    )
    lines = [wrapped(log.name), wrapped(meaning, "  "), wrapped(facts, "  ")]
    if log.reported:
        some = [f"{name} {text}" for name, text in [*log.reported.items()][-REPORTED:]]
        more = f" and {len(log.reported) - REPORTED} more" * (len(log.reported) > REPORTED)
        lines.append(wrapped(f"reported too: {', '.join(some)}{more}", "  "))
    if log.reference and log.reference.wait_share is not None:
        steps = f"steps {log.reference.first}–{log.reference.last}"
        waits = f"{wait_words(log.reference)} of the time of {steps} waited for input"
        lines.append(f"  {waits}; {percent(log.input_share, 2)} of all steps")
    return [*lines, "", *table_lines(table)]


def _many(logs: list[AuditedLog], names: dict[str, str]) -> list[str]:
    """A line for each of several logs, or of none."""
    if not logs:
        return []
    table = _table("log", "samples / time", "steps", "waits", "findings")
    for log in logs:
        right = log.reference
        steps = f"{right.first}–{right.last}" if right else "–"
        value = number(right.value, DIGITS) if right else "–"
        each = "" if right is None or right.throughput else " each"
        count = str(len(log.findings))
        cells = (names[log.name], value + each, steps, wait_words(right), count)
        table.add_row(*map(Text, cells))
    what = "samples / time over these steps, and the share of their time that waits for input"
    return [wrapped(f"{len(logs)} logs; {what}"), *table_lines(table)]


def _table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(headings[0], overflow="fold")
    table.add_column(headings[1], overflow="fold")
    for heading in headings[2:]:
        table.add_column(heading, justify="right")
    return table


def _claims(claims: list[Claim], names: dict[str, str]) -> Iterator[str]:
    """The claimed numbers of one table."""
    counts = Counter(claim.state for claim in claims)
    states = ", ".join(f"{counts[state]} {state}" for state in get_args(State) if counts[state])
    yield f"{claims[0].table or 'The claim'}: {states}"
    for claim in claims:
        if claim.state != "no log":
            yield from _claim(claim, names)


def _claim(claim: Claim, names: dict[str, str]) -> Iterator[str]:
    place = claim.place.removeprefix(f"{claim.table}: ")
    yield wrapped(f"{claim.text}  {claim_state(claim)}  {place}", "  ")
    if claim.table:
        yield wrapped(f"log {names[claim.log or '']}", "    ")
    for one in claim.explanations[:SHOWN]:
        words = f"= {explanation_words(one)}: {explained_value(claim, one)}"
        yield wrapped(words, "    ")
    if more := claim.explanations[SHOWN:]:
        yield f"    and {len(more)} more"
    if claim.explanations:
        yield wrapped(chance_words(claim), "    ")
    elif claim.closest:
        value = number(claim.closest.value, DIGITS)
        closest = f"{value}, {difference_words(claim.difference)}; {claim.tried} figures tried"
        yield wrapped(f"closest: {figure_words(claim.closest)}: {closest}", "    ")
    for stage in claim.waterfall[1:]:
        steps = f" ({range_words(stage.figure)})" if stage.figure else ""
        value = f"{number(stage.value, DIGITS)}, {difference_words(stage.difference)}"
        yield wrapped(f"-> {label('stage', stage.stage)}{steps}: {value}", "    ")
    if claim.reference and claim.reference.wait_share is not None:
        yield f"    data wait in these steps: {wait_words(claim.reference)}"
    yield from _seen(claim.findings, names)


def _findings(found: Iterable[Finding], names: dict[str, str]) -> Iterator[str]:
    """Each finding, below the file that it is of."""
    for file, some in groupby(found, lambda one: one.file):
        yield wrapped(names[file] if file else "several logs or numbers together", "  ")
        yield from _seen(some, names)


def _seen(found: Iterable[Finding], names: dict[str, str]) -> Iterator[str]:
    for one in found:
        line = f"line {one.line}: " if one.line else ""
        yield wrapped(f"{one.code}: {line}{sentence(one, names)}", "    ")
