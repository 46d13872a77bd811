"""A log format that the command line defines: --format-regex and --format-options."""

import re
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from pydantic import ValidationError

from perfkit.audit.formats import COLUMNS, SEMANTICS, TIMES, LogFormat, Semantics, expression
from perfkit.audit.refusals import (
    InvalidRegex,
    RateOfMissing,
    SpeedMissing,
    StepMissing,
    UnknownGroup,
    WrongOption,
)
from perfkit.core.refusals import Refusal, nearest_name
from perfkit.core.request import RequestError

REGEX, OPTIONS = "--format-regex", "--format-options"
"""Options of the command line that define a format."""
SPEEDS = (*TIMES, "rate", "at", "clock", "clock_hours")
"""Groups that tell the speed of a step."""
TIME_GROUP = "seconds"
"""Group that a user who writes <time> means."""
LINES_SEARCHED = 10_000
"""Lines searched for a part of a regex that matches."""
SHOWN_CHARACTERS = 40
"""Characters of a regex or a line that an error shows."""


def user_format(regex: str, options: str = "") -> LogFormat:
    """Return the format whose prints `regex` matches; groups are named as in COLUMNS. `options`
    are NAME=VALUE of Semantics, `unit` and `framework`, by spaces. Raises RequestError."""
    pattern = _compiled(regex)
    values: dict[str, Any] = {}
    for option in options.split():
        name, _equals, text = option.partition("=")
        values[name] = int(text) if text.isdecimal() else text
    work = {name: values.pop(name) for name in ("unit", "framework") if name in values}
    values["source"] = f"given on the command line: {regex} {options}".strip()
    groups = {name.rstrip("0123456789") for name in pattern.groupindex}
    problems: list[Refusal] = [*_problems_of_groups(groups)]
    semantics = Semantics()
    try:
        semantics = Semantics(**values)
    except ValidationError as error:
        allowed = [*SEMANTICS, "unit", "framework"]
        for detail in error.errors():
            option, fault = str(detail["loc"][0]), detail["msg"]
            problems.append(
                WrongOption(parameter=OPTIONS, option=option, fault=fault, allowed=allowed)
            )
    else:
        if "rate" in groups and "rate_of" not in values:
            problems.append(RateOfMissing(parameter=OPTIONS))
    if problems:
        raise RequestError(problems)
    return LogFormat("a custom format", semantics, "", pattern, regex=regex, **work)


def _compiled(regex: str) -> re.Pattern[str]:
    """Compile a regex of the command line. An error tells its place in the regex as it was
    typed, not in the one with the patterns of the groups."""
    for compiled in (re.compile, expression):
        try:
            pattern = compiled(regex)
        except (re.error, OverflowError, RecursionError) as error:
            fault = getattr(error, "msg", None) or str(error)
            place = getattr(error, "pos", None) if compiled is re.compile else None
            rest = "" if place is None else regex[place : place + SHOWN_CHARACTERS]
            invalid = InvalidRegex(parameter=REGEX, fault=fault, place=place, rest=rest)
            raise RequestError([invalid]) from error
    return pattern


def _problems_of_groups(groups: Collection[str]) -> Iterator[Refusal]:
    unknown = sorted({*groups} - {*COLUMNS})
    if unknown:
        nearest = TIME_GROUP if unknown == ["time"] else nearest_name(unknown[0], COLUMNS)
        yield UnknownGroup(parameter=REGEX, names=unknown, allowed=[*COLUMNS], nearest=nearest)
        return
    if "step" not in groups:
        yield StepMissing(parameter=REGEX)
    if not {*groups} & {*SPEEDS}:
        yield SpeedMissing(parameter=REGEX, allowed=[*SPEEDS])


class PartialMatch(NamedTuple):
    """The longest beginning of a regex that matches a line, and what follows in that line."""

    beginning: str
    line: int
    rest: str

    def __str__(self) -> str:
        return f"line {self.line} matches up to '{self.beginning}', then has '{self.rest}'"


def partial_match(regex: str, lines: Sequence[tuple[int, str]]) -> PartialMatch | None:
    """Return the longest beginning of a regex that matches one of the first lines; None if no
    group of the regex matches."""
    ends = [match.end() for match in re.finditer(r"<\w+>|\)|\s", regex)]
    for end in reversed(ends):
        beginning = regex[:end]
        try:
            pattern = expression(beginning)
        except re.error:
            continue
        if not pattern.groupindex:
            return None
        for number, line in islice(lines, LINES_SEARCHED):
            match = pattern.search(line)
            if match:
                rest = line[match.end() : match.end() + SHOWN_CHARACTERS]
                return PartialMatch(beginning, number, rest)
    return None
