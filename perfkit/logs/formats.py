"""What a format of logs is, and those that formats.toml has; one that a user gives on the
command line is made in the same way."""

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from pydantic import TypeAdapter, ValidationError

Unit = Literal["samples/s", "s", ""]
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
Prints = dict[str, np.ndarray]
"""Arrays by column, with a value for each print: whole numbers of `line`, WHOLE and `since`
(steps that a mean covers; 0 if unknown), floats of the others, nan where nothing is printed."""
REAL = (
    r"[-+]?(?:[0-9]{1,18}(?:\.[0-9]{0,18})?|\.[0-9]{1,18})(?:[eE][-+]?[0-9]{1,3})?"
    r"|[-+]?(?:nan|NaN|NAN|inf|Inf|INF|Infinity)\b"
)
MOMENT = (
    r"[0-9]{4}[-/][0-9]{2}[-/][0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]{1,6})?"
    r"(?:Z|[+-][0-9]{2}:?[0-9]{2})?"
)
SUITES = "NVIDIA/DeepLearningExamples, "


@dataclass(frozen=True)
class Semantics:
    """What the printed figures of a format mean.

    `rate_of`: samples of one device or of all. `covers`: a printed time is the mean of the
    steps since the last print (window), of all since step `since` of the epoch (running), or
    that of the last step. `since`: the first step of the epoch whose time is in such a mean; if
    not `restarts`, running means go on over epochs. `counts_from`: what the first step is
    called. `reader`: whether the printed time of a step has its wait for input in it; None if
    the format leaves it open. `step`: what is counted, the optimizer's updates or the batches,
    of which several may be accumulated for one. `mean_of`: what a printed rate is a mean of;
    that of rates is not the rate of several steps. `repeats`: the same step may be printed
    again without a restart. `source`: where all this is known from.
    """

    rate_of: Literal["device", "all"] = "all"
    covers: Literal["window", "running", "step"] = "window"
    since: int = 1
    restarts: bool = True
    counts_from: Literal[0, 1] = 1
    reader: Literal["in", "apart"] | None = None
    step: Literal["update", "batch"] = "update"
    mean_of: Literal["times", "rates"] = "times"
    repeats: bool = False
    source: str = ""


@dataclass(frozen=True)
class LogFormat:
    """A format of lines. `key` is fixed text in each print, `line` matches one, `extra` a
    further line of the same step. `has_steps`: whether prints name steps. `reported`: patterns
    of the log's own figures, each with its unit. `infer` gives the semantics that only the
    figures of a log tell, from its first prints. `options` are those that gave the format on
    the command line."""

    name: str
    semantics: Semantics
    key: str
    line: re.Pattern[str]
    extra: re.Pattern[str] | None = None
    framework: str = ""
    unit: str = "samples/s"
    has_steps: bool = True
    reported: tuple[tuple[Unit, re.Pattern[str]], ...] = ()
    infer: Callable[[Semantics, Prints], Semantics] = lambda semantics, prints: semantics
    options: Mapping[str, str] = field(default_factory=dict)

    def match(self, line: str) -> re.Match[str] | None:
        return self.line.search(line) if self.key in line else None


def expression(text: str) -> re.Pattern[str]:
    """A pattern in which `<name>` is a group for what the column of that name holds; accuracy2
    is one more accuracy."""

    def group(match: re.Match[str]) -> str:
        name = match[1]
        kind = MOMENT if name == "at" else r"[0-9]{1,12}+" if name in WHOLE else f"(?:{REAL})"
        return f"(?P<{name}>{kind})"

    return re.compile(re.sub(r"(?<!P)<(\w+)>", group, text))


def _line(head: str, wanted: Mapping[str, str], required: list[str]) -> re.Pattern[str]:
    """`head`, and behind it the fields in any order, of several the last; of those that are not
    required, whatever there is."""
    text = head
    for name, pattern in wanted.items():
        ahead = rf"(?=[^\n]{{0,4000}}{pattern})"
        text += ahead if name in required else f"(?:{ahead}|)"
    return expression(text)


def _semantics(entry: Mapping[str, Any]) -> Semantics:
    names = {one.name for one in fields(Semantics)}
    return Semantics(**{key: value for key, value in entry.items() if key in names})


def _of_lines(entry: Mapping[str, Any]) -> LogFormat:
    wanted = entry.get("fields", {})
    return LogFormat(
        name=entry["name"],
        semantics=_semantics(entry),
        key=entry["key"],
        line=_line(entry["line"], wanted, entry.get("required", [])),
        framework=entry.get("framework", ""),
        unit=entry.get("unit", "samples/s"),
        has_steps=entry.get("has_steps", True),
        reported=tuple((unit, expression(text)) for unit, text in entry.get("reported", ())),
        infer=INFER[entry.get("infer", "")],
    )


def _of_dllogger(entry: dict[str, Any]) -> list[LogFormat]:
    """The text form and the file form of one of NVIDIA's suites (`keys`: column -> key)."""
    suite = (
        entry if entry["name"] == "perfkit" else entry | {"source": SUITES + entry["source"]}
    )
    common = {
        "semantics": replace(_semantics(suite), rate_of="all"),
        "framework": suite.get("framework", ""),
        "unit": suite.get("unit", ""),
    }
    step_text = suite.get("step_text", "Epoch: <epoch> Iteration: <step>")
    step_file = suite.get("step_file", r"\[<epoch>, ?<step>\]")
    heads = {
        "text": rf"DLL <at> - {step_text} ",
        # No brace before the date: else a line of braces is searched from each of them.
        "file": r"(?:DLLL )?\{(?=[^\n{]{0,200}?\"datetime\": ?\"<at>\")[^\n]{0,200}?\"step\": ?"
        rf"{step_file}, ?\"data\": ?\{{",
    }
    spelled = {"text": r"(?<![\w.]){key} : <{name}>(?![\w.])", "file": r"\"{key}\": ?<{name}>"}
    found = []
    for form, head in heads.items():
        wanted, extra = (
            {name: spelled[form].format(key=key, name=name) for name, key in keys.items()}
            for keys in (suite["keys"], suite.get("extra", {}))
        )
        if form == "text":
            wanted |= suite.get("text_keys", {})
        found.append(
            LogFormat(
                name=f"NVIDIA DLLogger{'' if form == 'text' else chr(39) + 's file'}, "
                f"{suite['name']}",
                key="DLL " if form == "text" else '"data"',
                line=_line(head, wanted, suite["required"]),
                extra=_line(head, extra, [*extra]) if extra else None,
                **common,
            )
        )
    return found


def _restarts_by_clock(semantics: Semantics, prints: Prints) -> Semantics:
    """Whether PaddleClas begins its means anew after each print or goes on from step `since`:
    the clock between two prints passes either (q - p) c_q or (q - 4) c_q - (p - 4) c_p."""
    reset = semantics.since - 1
    epoch, step, seconds = prints["epoch"], prints["step"], prints["seconds"]
    follows = (np.diff(epoch) == 0) & (step[:-1] >= reset) & (np.diff(step) > 0)
    passed = np.diff(prints["at"])[follows]
    if not np.isfinite(passed).any():
        unknown = (
            "; nothing in this log does: its means are taken to begin anew after each print"
        )
        return replace(semantics, source=semantics.source + unknown)
    sums = (step - reset + 1) * seconds
    if_window = np.nansum((np.diff(step) * seconds[1:])[follows] - passed)
    if_running = np.nansum(np.diff(sums)[follows] - passed)
    # The clock counts whole seconds, so that it is off by up to one in each epoch.
    if abs(if_window) > abs(if_running) + len(np.unique(epoch)):
        return replace(semantics, covers="running", restarts=False)
    return semantics


def _reader_by_samples(semantics: Semantics, prints: Prints) -> Semantics:
    """Which of B / batch and B / (reader + batch) gives the samples that are printed beside it;
    these are fewer where a file of the data set ended."""
    found = pd.DataFrame(prints)
    samples = found["samples"].max()
    alone = (found["rate"] * found["seconds"] - samples).abs().median()
    both = (found["rate"] * (found["seconds"] + found["reader"]) - samples).abs().median()
    return replace(semantics, reader="in") if alone < both else semantics


INFER: dict[str, Callable[[Semantics, Prints], Semantics]] = {
    "": lambda semantics, prints: semantics,
    "restarts_by_clock": _restarts_by_clock,
    "reader_by_samples": _reader_by_samples,
}
_DATA = tomllib.loads((Path(__file__).parent / "formats.toml").read_text(encoding="utf-8"))
_DLLOGGER = [form for entry in _DATA["dllogger"] for form in _of_dllogger(entry)]
_LINES = [_of_lines(entry) for entry in _DATA["format"]]
SUMMARIES = next(one for one in _LINES if one.name == "NVIDIA DLLogger, summaries")
FORMATS: tuple[LogFormat, ...] = (
    *_DLLOGGER,
    *sorted(_LINES, key=lambda one: not one.has_steps),
)
"""The first that is found in a file is taken: formats without steps come last."""


class FormatError(ValueError):
    """A format that was given on the command line is none; the message says why."""


def user_format(regex: str, options: str = "") -> LogFormat:
    """The format whose prints `regex` matches; its groups are named as COLUMNS. `options` are
    NAME=VALUE, separated by spaces: those of Semantics, `unit` and `framework`. Raises
    FormatError."""
    try:
        pattern = expression(regex)
    except re.error as error:
        raise FormatError(f"--format-regex: {error}") from error
    groups = {re.sub(r"\d+$", "", name) for name in pattern.groupindex}
    if unknown := sorted(groups - {*COLUMNS}):
        allowed = ", ".join(COLUMNS)
        raise FormatError(f"--format-regex: no group {', '.join(unknown)}; there are {allowed}")
    if "step" not in groups or not groups & {*TIMES, "rate", "at", "clock"}:
        raise FormatError("--format-regex: needs a group `step`, and one for a time or a rate")
    pairs = [option.partition("=") for option in options.split()]
    given: dict[str, Any] = {name: int(v) if v.isdigit() else v for name, _, v in pairs}
    known = [one.name for one in fields(Semantics)]
    if wrong := [name for name in given if name not in (*known, "unit", "framework")]:
        raise FormatError(
            f"--format-options {wrong[0]}: there are {', '.join(known)}, unit, framework"
        )
    if "rate" in groups and "rate_of" not in given:
        raise FormatError("--format-options: rate_of=device or rate_of=all; whose is the rate?")
    try:
        checked = {name: value for name, value in given.items() if name in known}
        checked |= {"source": f"given on the command line: {regex} {options}".strip()}
        semantics = TypeAdapter(Semantics).validate_python(checked)
    except ValidationError as error:
        wrong = [f"{one['loc'][0]}: {one['msg']}" for one in error.errors()]
        raise FormatError(f"--format-options {'; '.join(wrong)}") from error
    return LogFormat(
        name="given on the command line",
        semantics=semantics,
        key="",
        line=pattern,
        framework=given.get("framework", ""),
        unit=given.get("unit", "samples/s"),
        options={"--format-regex": regex} | ({"--format-options": options} if options else {}),
    )
