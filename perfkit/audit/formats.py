"""Log formats and their semantics, from formats.toml or the command line."""

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, PositiveInt, ValidationError
from pydantic.dataclasses import dataclass as validated

from perfkit.core.request import RequestError

_DATA = tomllib.loads((Path(__file__).parent / "formats.toml").read_text(encoding="utf-8"))
COLUMNS: dict[str, str] = _DATA["columns"]
"""Group name of a pattern -> meaning, with the unit."""
REAL, MOMENT = _DATA["real"], _DATA["moment"]
"""Patterns of a number and of a date with a time."""
TIMES = ("seconds", "milliseconds", "steps_per_second", "window_seconds")
WHOLE = {"rank": -1, "epoch": 0, "step": 0, "since_index": -1, "begin": -1}
"""Columns of integers and their values if not printed."""


@validated(frozen=True, config=ConfigDict(extra="forbid"))
class Semantics:
    """Meaning of the figures that a format prints.

    `rate_of`: samples of one device or of all. `covers`: a printed time is the mean of the
    steps since the last print (window), of all since step `since` of the epoch (running), or
    that of the last step. `since`: first step of the epoch whose time is in such a mean.
    `counts_from`: number of the first step. `reader`: whether the printed time of a step
    includes its data wait; None if the format leaves it open. `step`: steps are optimizer
    updates, or batches, several of which may be accumulated for one update. `mean_of`: quantity
    that a printed rate averages; a mean of rates is not the rate of several steps. `repeats`: a
    step may be printed again without a restart. `source`: source of the semantics.
    """

    rate_of: Literal["device", "all"] = "all"
    covers: Literal["window", "running", "step"] = "window"
    since: PositiveInt = 1
    counts_from: Literal[0, 1] = 1
    reader: Literal["in", "apart"] | None = None
    step: Literal["update", "batch"] = "update"
    mean_of: Literal["times", "rates"] = "times"
    repeats: bool = False
    source: str = ""


SEMANTICS = [field.name for field in fields(Semantics)]


@dataclass(frozen=True)
class LogFormat:
    """A format of lines. `key` is fixed text in each print, `line` matches a print, `extra` a
    further line of the same step. `has_steps`: whether prints name steps. `is_custom`: whether
    the command line defined the format."""

    name: str
    semantics: Semantics
    key: str
    line: re.Pattern[str]
    extra: re.Pattern[str] | None = None
    framework: str = ""
    unit: str = "samples/s"
    has_steps: bool = True
    is_custom: bool = False

    def match(self, line: str) -> re.Match[str] | None:
        return self.line.search(line) if self.key in line else None


PLAIN = ("name", "key", "framework", "unit", "has_steps")
"""Keys of formats.toml copied without conversion."""


def expression(text: str) -> re.Pattern[str]:
    """Compile a pattern in which `<name>` is a group for a column; accuracy2 is an accuracy."""

    def group(match: re.Match[str]) -> str:
        name = match[1]
        kind = MOMENT if name == "at" else r"[0-9]{1,12}+" if name in WHOLE else f"(?:{REAL})"
        return f"(?P<{name}>{kind})"

    return re.compile(re.sub(r"(?<!P)<(\w+)>", group, text))


def _line(head: str, wanted: Mapping[str, str], required: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern of `head` followed by the fields in any order, the last match of each;
    fields that are not required may be missing."""
    for name, pattern in wanted.items():
        # `re` skips fast to a literal: what must stand before the first is checked behind it.
        literal = re.sub(r"^(\\b|\(\?<!\[[^]]*\]\))(\w)", r"\2(?<=\1\2)", pattern)
        ahead = rf"(?=[^\n]{{0,4000}}{literal})"
        head += ahead if name in required else f"(?:{ahead}|)"
    return expression(head)


def semantics_of(entry: Mapping[str, Any]) -> Semantics:
    return Semantics(**{name: entry[name] for name in SEMANTICS if name in entry})


def _format(entry: Mapping[str, Any]) -> LogFormat:
    entry = {**(_DATA["dllogger"] if "keys" in entry else {}), **entry}
    # DLLogger writes fields as "key : value".
    printed, extra = (
        {name: rf"(?<![\w.]){key} : <{name}>(?![\w.])" for name, key in keys.items()}
        for keys in (entry.get("keys", {}), entry.get("extra", {}))
    )
    wanted = entry.get("fields", {}) | printed
    return LogFormat(
        semantics=semantics_of(entry),
        line=_line(entry["line"], wanted, entry.get("required", ())),
        extra=_line(entry["line"], extra, extra) if extra else None,
        **{name: entry[name] for name in PLAIN if name in entry},
    )


DOCUMENTS: list[dict[str, Any]] = _DATA["document"]
"""Formats of files that are one JSON object or one table."""
REPORTED = [
    (key, expression(head), expression(figure)) for key, head, figure in _DATA["reported"]
]
"""Patterns of figures that logs report: `key`, fixed text in the line; `head`, the text before
the figures, whose group `where` is part of their names; and the figure."""
FORMATS = sorted(map(_format, _DATA["format"]), key=lambda form: not form.has_steps)
"""The first format found in a file is used, so formats without steps come last."""


def user_format(regex: str, options: str = "") -> LogFormat:
    """Return the format whose prints `regex` matches; groups are named as in COLUMNS. `options`
    are NAME=VALUE of Semantics, `unit` and `framework`, by spaces. Raises RequestError."""
    try:
        pattern = expression(regex)
    except re.error as error:
        raise RequestError([f"--format-regex: {error}"]) from error
    groups = {name.rstrip("0123456789") for name in pattern.groupindex}
    pairs = [option.partition("=") for option in options.split()]
    given: dict[str, Any] = {name: int(v) if v.isdecimal() else v for name, _, v in pairs}
    named = {name: given.pop(name) for name in ("unit", "framework") if name in given}
    given["source"] = f"given on the command line: {regex} {options}".strip()
    problems, semantics = [], Semantics()
    if unknown := ", ".join(sorted(groups - {*COLUMNS})):
        problems = [f"--format-regex: unknown group {unknown}; known: {', '.join(COLUMNS)}"]
    elif "step" not in groups or not groups & {*TIMES, "rate", "at", "clock"}:
        problems = ["--format-regex: needs a group `step` and a group for a time or a rate"]
    try:
        semantics = Semantics(**given)
    except ValidationError as error:
        wrong = "; ".join(f"{one['loc'][0]}: {one['msg']}" for one in error.errors())
        known = ", ".join((*SEMANTICS, "unit", "framework"))
        problems.append(f"--format-options {wrong}; known options: {known}")
    else:
        if "rate" in groups and "rate_of" not in given:
            problems.append("--format-options: add rate_of=device or rate_of=all")
    if problems:
        raise RequestError(problems)
    return LogFormat("a custom format", semantics, "", pattern, is_custom=True, **named)
