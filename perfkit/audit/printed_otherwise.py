"""A claim that no statistic of a log has, and no line of a step, but that the log prints."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from perfkit.audit.audit import Claim, LocatedFinding
from perfkit.audit.claims import EXACT
from perfkit.audit.numbers import END, REAL, number
from perfkit.audit.quantity import ClaimedKind
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
PER = r"[\s_-]{0,2}(?:/|p|per)[\s_-]{0,2}(?:s|gpu|device|chip)"
SPEED = r"throughput|speed"
SIGNS: dict[ClaimedKind, str] = {
    "tokens/s": rf"tok(?:en)?s?{PER}|\b(?:tps|tgs)\b|{SPEED}",
    "samples/s": rf"(?:sample|sequence|seq|image|img|sentence|example|frame)s?{PER}"
    rf"|\b(?:ips|fps)\b|{SPEED}",
    "TFLOP/s": "flop",
    "MFU": "mfu|utili[sz]ation",
    "s/step": r"time|sec|\bm?s\s?(?:/|per)\s?(?:it|step)",
    "steps/s": rf"(?:step|it|iter|iteration|update)s?{PER}|speed",
    "minutes": "min|hour|time|duration",
}
"""Regex of a quantity's name or unit, of which one has to stand beside a claimed quantity."""
AROUND = 40
"""Characters on both sides of a number that are searched for its quantity."""
ARGUMENT = re.compile(r"\.{3,}\s*$")
"""Dots between an argument's name and its value."""


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
    lines = [*_lines_with(claim, figures)]
    if not lines:
        return claim
    first = min(lines, key=lambda printed: not printed.is_exact)
    finding = PrintedOtherwise(line=first.line, name=first.name, excerpt=first.excerpt)
    located = LocatedFinding(finding=finding)
    return claim.model_copy(
        update={"state": "printed otherwise", "findings": [*claim.findings, located]}
    )


def _lines_with(claim: Claim, figures: Figures) -> Iterator[PrintedNumber]:
    """Yield the lines of a log's file that print the number of a claim, to its digits, and as
    the claim's quantity if it has a unit."""
    written = NUMBER.search(claim.text)
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
            if difference <= half * EXACT and _is_of_quantity(content, match, claim.quantity):
                yield _printed(line, content, match, is_exact=not difference)
                break


def _is_of_quantity(content: str, match: re.Match[str], kind: ClaimedKind | None) -> bool:
    """Return whether the words beside a number are of a quantity; any number is of None. Other
    numbers end these words."""
    if kind is None:
        return True
    before = content[max(0, match.start() - AROUND) : match.start()]
    if ARGUMENT.search(before):
        return False
    after = content[match.end() : match.end() + AROUND]
    for words in (re.split(r"\d", before)[-1], re.split(r"\d", after)[0]):
        if re.search(SIGNS[kind], words, re.I):
            return True
    return False


def _printed(line: int, content: str, match: re.Match[str], *, is_exact: bool) -> PrintedNumber:
    before = content[max(0, match.start() - BEFORE) : match.start()]
    name = NAME.search(before)
    begin = max(0, match.end() - EXCERPT) if len(content) > EXCERPT else 0
    excerpt = shortened(plain(content[begin : begin + EXCERPT]), EXCERPT)
    return PrintedNumber(line, excerpt, plain(name[1]) if name else "", is_exact)
