"""An audit as text for a terminal."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path, PurePath
from typing import get_args

from rich.table import Table
from rich.text import Text

from perfkit.audit import dlperf
from perfkit.audit.sentences import (
    chance_words,
    difference_words,
    explanation_words,
    finding_words,
    range_words,
    value_of,
    way_words,
)
from perfkit.audit.stored import Audit, AuditedLog, Claim, Finding, State
from perfkit.text.format import number, percent
from perfkit.text.terminal import table_lines, wrapped

DIGITS = 6
SHOWN = 5
"""So many explanations of a number are shown; the JSON has all."""


def text(audit: Audit) -> str:
    """All that a reader needs of it, in lines of 80 columns."""
    names = _names(audit.logs)
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
        every, device = (number(one, 7) for one in (figure.throughput, figure.per_device))
        table.add_row(*map(Text, (way_words(figure), range_words(figure), every, device)))
    facts = ", ".join(f"{name} {said.value}" for name, said in log.facts.items())
    rates = "one device" if log.rate_of == "device" else "all devices"
    meaning = f"{log.format}; printed rates are of {rates}; a print tells of {log.covers}"
    lines = [wrapped(log.name), wrapped(meaning, "  "), wrapped(facts, "  ")]
    if log.input_share is not None:
        lines.append(f"  {percent(log.input_share, 2)} of the time waited for input")
    return [*lines, "", *table_lines(table)]


def _names(logs: list[AuditedLog]) -> dict[str, str]:
    """Each log's name in short: that of the file or, where several have it, from the folder on
    that all logs are in."""
    files = Counter(PurePath(log.name).name for log in logs)
    common = (
        os.path.commonpath([Path(log.name).absolute().parent for log in logs]) if logs else ""
    )
    short = {}
    for log in logs:
        file = PurePath(log.name).name
        short[log.name] = (
            file if files[file] == 1 else os.path.relpath(Path(log.name).absolute(), common)
        )
    return short


def _many(logs: list[AuditedLog], names: dict[str, str]) -> list[str]:
    """A line for each of several logs, or of none."""
    if not logs:
        return []
    table = _table("log", "samples / time", "steps", "waits", "findings")
    for log in logs:
        right = log.right
        steps = f"{right.first}–{right.last}" if right else "–"
        value = number(value_of(right), DIGITS) if right else "–"
        each = "" if right is None or right.throughput else " each"
        share, count = percent(log.input_share, 2), str(len(log.findings))
        table.add_row(*map(Text, (names[log.name], value + each, steps, share, count)))
    what = "samples / time over the steps, and the share of it that waits for input"
    return [f"{len(logs)} logs; {what}", *table_lines(table)]


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
    told = ", ".join(f"{counts[state]} {state}" for state in get_args(State) if counts[state])
    yield f"{claims[0].table or 'The claim'}: {told}"
    for claim in claims:
        if claim.state != "no log":
            yield from _claim(claim, names)


def _claim(claim: Claim, names: dict[str, str]) -> Iterator[str]:
    place = claim.place.removeprefix(f"{claim.table}: ")
    yield wrapped(f"{claim.text}  {claim.state}  {place}", "  ")
    if claim.table:
        yield wrapped(f"log {names[claim.log or '']}", "    ")
    for one in claim.explanations[:SHOWN]:
        yield wrapped(f"= {explanation_words(one)}: {number(one.value, 8)}", "    ")
    if more := claim.explanations[SHOWN:]:
        yield f"    and {len(more)} more"
    if claim.explanations:
        yield wrapped(chance_words(claim), "    ")
    elif claim.closest:
        words = f"{way_words(claim.closest)} ({range_words(claim.closest)})"
        told = (
            f"{number(value_of(claim.closest), DIGITS)}, {difference_words(claim.difference)}"
        )
        yield wrapped(f"closest: {words}: {told}; {claim.tried} figures tried", "    ")
    if claim.right and claim.right_difference is not None:
        value, share = number(value_of(claim.right), DIGITS), claim.right_difference
        words = f"{range_words(claim.right)}: {value}, {difference_words(share)}"
        yield wrapped(f"{way_words(claim.right)}, {words}", "    ")
    yield from _seen(claim.findings, names)


def _findings(found: Iterable[Finding], names: dict[str, str]) -> Iterator[str]:
    """Each finding, below the file that it is of."""
    for file, some in groupby(found, lambda one: one.file):
        yield wrapped(names[file] if file else "several logs or numbers together", "  ")
        yield from _seen(some, names)


def _seen(found: Iterable[Finding], names: dict[str, str]) -> Iterator[str]:
    for one in found:
        line = f"line {one.line}: " if one.line else ""
        sentence = finding_words(one)
        for name, short in names.items():
            sentence = sentence.replace(name, short)
        yield wrapped(f"{one.name}: {line}{sentence}", "    ")
