"""A claim that no statistic of a log has, and no line of a step, but that the log prints."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from perfkit.audit.audit import Claim, LocatedFinding
from perfkit.audit.claims import EXACT
from perfkit.audit.numbers import END, REAL, number
from perfkit.audit.reader import text_lines
from perfkit.audit.recompute import Figures, half_of
from perfkit.audit.statements import PrintedOtherwise
from perfkit.core.format import plain, shortened

FEWEST_DIGITS = 3
"""Digits below which a number stands in too many lines for one of them to tell anything."""
DIGITS_TO_ROUND = 4
"""Fewest digits of a claim that may be the rounded form of a printed number."""
NUMBER = re.compile(rf"(?<![\w.,])(?<!\d[-:/]){REAL}{END}(?![-:/]\d)")
"""A number in a line that is no part of a word, of another number, or of a date and time."""
WORD = r"[A-Za-z_][\w./%-]{0,60}"
NAME = re.compile(rf"({WORD}(?: {WORD}){{0,3}})[\s\"'=:({{\[|]{{0,9}}$")
"""The words before a number that name it."""
BEFORE = 120
"""Characters before a number that are searched for its name."""
EXCERPT = 90
"""Most characters of a line that are shown."""


class PrintedNumber(NamedTuple):
    """A number in a line, what it is called there, and whether it has the claim's digits."""

    line: int
    excerpt: str
    name: str
    is_exact: bool


def with_other_lines(claim: Claim, figures: Figures) -> Claim:
    """Return a claim that nothing in a log explains with the first line that prints its number,
    if any."""
    is_explained = claim.explanations or claim.quantities
    if claim.state not in ("not reproduced", "no number") or is_explained:
        return claim
    lines = [*_lines_with(claim.text, figures)]
    if not lines:
        return claim
    first = min(lines, key=lambda printed: not printed.is_exact)
    finding = PrintedOtherwise(line=first.line, name=first.name, excerpt=first.excerpt)
    located = LocatedFinding(finding=finding, file=figures.log.name)
    return claim.model_copy(
        update={"state": "printed otherwise", "findings": [*claim.findings, located]}
    )


def _lines_with(claim: str, figures: Figures) -> Iterator[PrintedNumber]:
    """Yield the lines of a log's file that print the number of a claim, to its digits."""
    written = NUMBER.search(claim)
    if not written:
        return
    text = written[0].replace(",", "")
    digits = sum(character.isdigit() for character in text.lstrip("0."))
    if digits < FEWEST_DIGITS:
        return
    value, half = number(text), half_of(text)
    if digits < DIGITS_TO_ROUND:
        half = 0.0
    for line, content in text_lines(figures.log.path):
        for match in NUMBER.finditer(content):
            difference = abs(number(match[0].replace("_", "")) - value)
            if difference <= half * EXACT:
                yield _printed(line, content, match, is_exact=not difference)
                break


def _printed(line: int, content: str, match: re.Match[str], *, is_exact: bool) -> PrintedNumber:
    before = content[max(0, match.start() - BEFORE) : match.start()]
    name = NAME.search(before)
    begin = max(0, match.end() - EXCERPT) if len(content) > EXCERPT else 0
    excerpt = shortened(plain(content[begin : begin + EXCERPT]), EXCERPT)
    return PrintedNumber(line, excerpt, plain(name[1]) if name else "", is_exact)
