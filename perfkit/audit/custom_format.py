"""A log format that the command line defines: --format-regex and --format-options."""

import re
from collections.abc import Collection, Iterator
from typing import Any

from pydantic import ValidationError

from perfkit.audit.formats import COLUMNS, SEMANTICS, TIMES, LogFormat, Semantics, expression
from perfkit.measuring.request import RequestError, nearest_name

REGEX, OPTIONS = "--format-regex", "--format-options"
"""Options of the command line that define a format."""
SPEEDS = (*TIMES, "rate", "at", "clock", "clock_hours")
"""Groups that tell the speed of a step."""


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
    groups = pattern.groupindex
    problems = [*_problems_of_groups(groups)]
    semantics = Semantics()
    try:
        semantics = Semantics(**values)
    except ValidationError as error:
        allowed = ", ".join([*SEMANTICS, "unit", "framework"])
        for fault in error.errors():
            problems.append(f"{OPTIONS}: {fault['loc'][0]}: {fault['msg']}; known: {allowed}")
    if "rate" in groups and "rate_of" not in values:
        problems.append(f"{OPTIONS}: add rate_of=device or rate_of=all")
    if problems:
        raise RequestError(problems)
    return LogFormat("a custom format", semantics, "", pattern, **work)


def _compiled(regex: str) -> re.Pattern[str]:
    """Compile a regex of the command line. An error tells its place in the regex as it was
    typed, not in the one with the patterns of the groups."""
    try:
        re.compile(regex)
        return expression(regex)
    except (re.error, OverflowError, RecursionError) as error:
        raise RequestError([f"{REGEX}: {error}"]) from error


def _problems_of_groups(groups: Collection[str]) -> Iterator[str]:
    for name in sorted({*groups} - {*COLUMNS}):
        nearest = "seconds" if name == "time" else nearest_name(name, COLUMNS)
        hint = f"did you mean {nearest}?" if nearest else f"known: {', '.join(COLUMNS)}"
        yield f"{REGEX}: unknown group {name}; {hint}"
    if "step" not in groups:
        yield f"{REGEX}: put <step> where the number of a line's step is"
    if not {*groups} & {*SPEEDS}:
        yield f"{REGEX}: put one of these where the speed of a step is: {', '.join(SPEEDS)}"
