"""What a format of logs is, and those that formats.toml has; one that a user gives on the
command line is made in the same way."""

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, ValidationError
from pydantic.dataclasses import dataclass as validated

from perfkit.request import RequestError

COLUMNS = {
    **{"rank": "process", "epoch": "epoch", "step": "step, by the log's own count"},
    "seconds": "time of a step in seconds, also the mean of several",
    "milliseconds": "the same in milliseconds",
    "steps_per_second": "its inverse",
    "window_seconds": "time of all steps since the last print, in seconds",
    "reader": "wait for input of a step, in seconds",
    "rate": "samples per second, or what `unit` names",
    "samples": "samples of a step",
    **{"loss": "loss", "accuracy": "accuracy", "at": "date and time", "clock": "UNIX time"},
    "since_index": "steps since the means began anew, from 0",
    "begin": "the last step before those that the print covers",
}
"""What a group of a pattern may hold: name -> meaning, with the unit."""
TIMES = ("seconds", "milliseconds", "steps_per_second", "window_seconds")
WHOLE = {"rank": -1, "epoch": 0, "step": 0, "since_index": -1, "begin": -1}
"""Columns of whole numbers, and what stands for those that are not printed."""
REAL = (
    r"[-+]?(?:[0-9]{1,18}(?:\.[0-9]{0,30})?|\.[0-9]{1,30})(?:[eE][-+]?[0-9]{1,3})?"
    r"|[-+]?(?:nan|NaN|NAN|inf|Inf|INF|Infinity)\b"
)
MOMENT = (
    r"[0-9]{4}[-/][0-9]{2}[-/][0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]{1,6})?"
    r"(?:Z|[+-][0-9]{2}:?[0-9]{2})?"
)


@validated(frozen=True, config=ConfigDict(extra="forbid"))
class Semantics:
    """What the printed figures of a format mean.

    `rate_of`: samples of one device or of all. `covers`: a printed time is the mean of the
    steps since the last print (window), of all since step `since` of the epoch (running), or
    that of the last step. `since`: the first step of the epoch whose time is in such a mean.
    `counts_from`: what the first step is called. `reader`: whether the printed time of a step
    has its wait for input in it; None if the format leaves it open. `step`: what is counted,
    the optimizer's updates or the batches, of which several may be accumulated for one.
    `mean_of`: what a printed rate is a mean of; that of rates is not the rate of several steps.
    `repeats`: the same step may be printed again without a restart. `source`: where all this is
    known from.
    """

    rate_of: Literal["device", "all"] = "all"
    covers: Literal["window", "running", "step"] = "window"
    since: int = 1
    counts_from: Literal[0, 1] = 1
    reader: Literal["in", "apart"] | None = None
    step: Literal["update", "batch"] = "update"
    mean_of: Literal["times", "rates"] = "times"
    repeats: bool = False
    source: str = ""


SEMANTICS = [one.name for one in fields(Semantics)]


@dataclass(frozen=True)
class LogFormat:
    """A format of lines. `key` is fixed text in each print, `line` matches one, `extra` a
    further line of the same step. `has_steps`: whether prints name steps. `options` are those
    that gave the format on the command line."""

    name: str
    semantics: Semantics
    key: str
    line: re.Pattern[str]
    extra: re.Pattern[str] | None = None
    framework: str = ""
    unit: str = "samples/s"
    has_steps: bool = True
    options: Mapping[str, str] = field(default_factory=dict)

    def match(self, line: str) -> re.Match[str] | None:
        return self.line.search(line) if self.key in line else None


PLAIN = ("name", "key", "framework", "unit", "has_steps")
"""What an entry of formats.toml has as it is."""


def expression(text: str) -> re.Pattern[str]:
    """A pattern in which `<name>` is a group for what the column of that name holds; accuracy2
    is one more accuracy."""

    def group(match: re.Match[str]) -> str:
        name = match[1]
        kind = MOMENT if name == "at" else r"[0-9]{1,12}+" if name in WHOLE else f"(?:{REAL})"
        return f"(?P<{name}>{kind})"

    return re.compile(re.sub(r"(?<!P)<(\w+)>", group, text))


def _line(head: str, wanted: Mapping[str, str], required: Iterable[str]) -> re.Pattern[str]:
    """`head`, and behind it the fields in any order, of several the last; of those that are not
    required, whatever there is."""
    for name, pattern in wanted.items():
        ahead = rf"(?=[^\n]{{0,4000}}{pattern})"
        head += ahead if name in required else f"(?:{ahead}|)"
    return expression(head)


def semantics_of(entry: Mapping[str, Any]) -> Semantics:
    """Those that an entry of formats.toml declares."""
    return Semantics(**{name: entry[name] for name in SEMANTICS if name in entry})


def _format(entry: Mapping[str, Any]) -> LogFormat:
    """The format of an entry of formats.toml."""
    # The fields that DLLogger writes under the `keys` of a print, and of a further line.
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


_DATA = tomllib.loads((Path(__file__).parent / "formats.toml").read_text(encoding="utf-8"))
DOCUMENTS: list[dict[str, Any]] = _DATA["document"]
"""Formats of files that are one JSON object or one table."""
REPORTED = [
    (key, expression(head), expression(figure)) for key, head, figure in _DATA["reported"]
]
"""How logs give figures of their own: in lines with the text `key`, behind what `head` matches,
whose group `where` is a part of their names."""
FORMATS = sorted(map(_format, _DATA["format"]), key=lambda form: not form.has_steps)
"""The first that is found in a file is taken: formats without steps come last."""


def user_format(regex: str, options: str = "") -> LogFormat:
    """The format whose prints `regex` matches; its groups are named as COLUMNS. `options` are
    NAME=VALUE, separated by spaces: those of Semantics, `unit` and `framework`. Raises
    RequestError."""
    try:
        pattern = expression(regex)
    except re.error as error:
        raise RequestError([f"--format-regex: {error}"]) from error
    groups = {name.rstrip("0123456789") for name in pattern.groupindex}
    pairs = [option.partition("=") for option in options.split()]
    given: dict[str, Any] = {name: int(v) if v.isdigit() else v for name, _, v in pairs}
    named = {name: given.pop(name) for name in ("unit", "framework") if name in given}
    given["source"] = f"given on the command line: {regex} {options}".strip()
    problems, semantics = [], Semantics()
    if unknown := ", ".join(sorted(groups - {*COLUMNS})):
        problems = [f"--format-regex: no group {unknown}; there are {', '.join(COLUMNS)}"]
    elif "step" not in groups or not groups & {*TIMES, "rate", "at", "clock"}:
        problems = ["--format-regex: needs a group `step`, and one for a time or a rate"]
    try:
        semantics = Semantics(**given)
    except ValidationError as error:
        wrong = "; ".join(f"{one['loc'][0]}: {one['msg']}" for one in error.errors())
        known = ", ".join((*SEMANTICS, "unit", "framework"))
        problems.append(f"--format-options {wrong}; there are {known}")
    else:
        if "rate" in groups and "rate_of" not in given:
            problems.append(
                "--format-options: rate_of=device or rate_of=all; whose is the rate?"
            )
    if problems:
        raise RequestError(problems)
    typed = {"--format-regex": regex} | ({"--format-options": options} if options else {})
    name = "given on the command line"
    return LogFormat(name, semantics, key="", line=pattern, options=typed, **named)
