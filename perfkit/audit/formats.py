"""Log formats and their semantics, from formats.toml or the command line."""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, NonNegativeInt, PositiveInt
from pydantic.dataclasses import dataclass as validated

from perfkit.audit import numbers
from perfkit.audit.printed import PRINTED, DeclaredQuantity

_DATA = tomllib.loads((Path(__file__).parent / "formats.toml").read_text(encoding="utf-8"))
COLUMNS: dict[str, str] = _DATA["columns"]
"""Group name of a pattern -> meaning, with the unit."""
MOMENT = _DATA["moment"]
"""Pattern of a date with a time."""
TIMES = ("seconds", "milliseconds", "steps_per_second", "window_seconds")
UNITS_OF_TIME = {
    "seconds": 1.0,
    "milliseconds": 0.001,
    "window_seconds": 1.0,
    "reader": 1.0,
    "clock": 1.0,
    "clock_hours": 3600.0,
}
"""Columns of times, and the unit in seconds of a number without one."""
SPELLINGS = dict.fromkeys(("rate", "samples", "window_samples"), numbers.COUNT)
SPELLINGS |= dict.fromkeys((*UNITS_OF_TIME,), numbers.TIME)
"""Columns whose numbers may have a unit, and the pattern of these numbers."""
WHOLE = {
    **{"rank": -1, "epoch": 0, "step": 0, "since_index": -1, "begin": -1},
    **{"of_steps": 0, "steps_of_epoch": 0},
}
"""Columns of integers and their values if not printed."""


@validated(frozen=True, config=ConfigDict(extra="forbid"))
class Semantics:
    """Meaning of the figures that a format prints.

    `rate_of`: samples of one device or of all. `covers`: a printed time is the mean of the
    steps since the last print (window), of all since step `since` of the epoch (running), of
    the last `window` steps (rolling), or that of the last step. `since`: first step of the
    epoch whose time is in such a mean. `window`: steps that a printed time covers at most; 0:
    no limit or, of a rolling mean, unknown. `counts_from`: number of the first step; None if
    the printed steps decide. `reader`: whether the printed time of a step includes its data
    wait; None if the format leaves it open. `step`: steps are optimizer updates, or batches,
    several of which may be accumulated for one update, or epochs. `mean_of`: quantity that a
    print averages; usual: a sum of times divided by the steps usually between prints, also
    where there were fewer; a mean of rates is not the rate of several steps, and medians are
    medians of times. `repeats`: a step may be printed again without a restart. `samples_vary`:
    the samples of a step differ from step to step. `source`: source of the semantics.
    """

    rate_of: Literal["device", "all"] = "all"
    covers: Literal["window", "running", "rolling", "step"] = "window"
    since: PositiveInt = 1
    window: NonNegativeInt = 0
    counts_from: Literal[0, 1] | None = 1
    reader: Literal["in", "apart"] | None = None
    step: Literal["update", "batch", "epoch"] = "update"
    mean_of: Literal["times", "usual", "rates", "medians"] = "times"
    repeats: bool = False
    samples_vary: bool = False
    source: str = ""


SEMANTICS = [field.name for field in fields(Semantics)]


@dataclass(frozen=True)
class LogFormat:
    """A format of lines.

    `key` is fixed text in each print, `line` matches a print, `further` one that names none and
    belongs to the last print, `leading` one that belongs to the next; each match of these two
    is one column. `printed` are quantities that prints have besides their times. `has_steps`:
    whether prints name steps. `is_fallback`: whether a file has the format only if it has no
    other.
    """

    name: str
    semantics: Semantics
    key: str
    line: re.Pattern[str]
    further: re.Pattern[str] | None = None
    leading: re.Pattern[str] | None = None
    printed: tuple[DeclaredQuantity, ...] = ()
    framework: str = ""
    unit: str = "samples/s"
    has_steps: bool = True
    is_fallback: bool = False
    is_bar: bool = False
    needs_further: bool = False

    @property
    def is_stamped(self) -> bool:
        """Whether the time stamps at the beginning of lines are the prints' clock."""
        return not any(map(self.has, ("at", "clock", "clock_hours")))

    def has(self, column: str) -> bool:
        """Whether prints, or the lines about them, may have a column."""
        patterns = (self.line, self.further, self.leading)
        return any(pattern and column in pattern.groupindex for pattern in patterns)

    def match(self, line: str) -> re.Match[str] | None:
        return self.line.search(line) if self.key in line else None


PLAIN = (
    "name",
    "key",
    "framework",
    "unit",
    "has_steps",
    "is_fallback",
    "is_bar",
    "needs_further",
)
"""Keys of formats.toml copied without conversion."""


def expression(text: str) -> re.Pattern[str]:
    """Compile a pattern in which `<name>` is a group for a column."""
    return re.compile(re.sub(r"(?<!P)<(\w+)>(?=(,?))", _group, text))


def _group(match: re.Match[str]) -> str:
    """Return the group of a column. If a comma follows in the pattern, a digit may follow the
    comma: the pattern itself says where the number ends."""
    name, comma = match.groups()
    if name == "at":
        return f"(?P<at>{MOMENT})"
    content, end = numbers.REAL, numbers.END
    if name in WHOLE:
        content, end = numbers.WHOLE, numbers.WHOLE_END
    elif name in SPELLINGS:
        content = SPELLINGS[name]
    elif name.startswith(PRINTED):
        content = numbers.COUNT
    if comma:
        end = ""
    return f"(?P<{name}>{content}){end}"


def line_pattern(
    head: str, fields: Mapping[str, str], required: Iterable[str], *, first: bool = False
) -> re.Pattern[str]:
    """Return a pattern of `head` followed by the fields in any order, the last match of each or
    the `first`; fields that are not required may be missing."""
    anything = r"[^\n]{0,4000}" + ("?" if first else "")
    pattern = head
    for name, field in fields.items():
        # `re` skips fast to a literal: what must stand before the first is checked behind it.
        literal = re.sub(r"^(\\b|\(\?<!\[[^]]*\]\))(\w)", r"\2(?<=\1\2)", field)
        ahead = f"(?={anything}{literal})"
        pattern += ahead if name in required else f"(?:{ahead}|)"
    return expression(pattern)


def semantics_of(entry: Mapping[str, Any]) -> Semantics:
    """Return the meaning of the figures of a format in formats.toml."""
    values = {name: entry[name] for name in SEMANTICS if name in entry}
    if values.get("counts_from") == "printed":
        values["counts_from"] = None
    return Semantics(**values)


def _dllogger_fields(keys: Mapping[str, str]) -> dict[str, str]:
    """Return the patterns of fields as DLLogger writes them: "key : value"."""
    return {name: rf"(?<![\w.]){key} : <{name}>(?![\w.])" for name, key in keys.items()}


def _quantities(entry: Mapping[str, Any]) -> Iterator[DeclaredQuantity]:
    """Yield the printed quantities that an entry of formats.toml declares."""
    for index, (name, declared) in enumerate(entry.get("printed", {}).items()):
        yield DeclaredQuantity(
            name=name,
            quantity=declared["quantity"],
            of=declared.get("of", ""),
            column=declared.get("column", f"{PRINTED}{index}"),
            scale=declared.get("scale", 1.0),
            peak_tflops=declared.get("peak_tflops"),
        )


def _patterns_of_quantities(entry: Mapping[str, Any], kind: str) -> dict[str, str]:
    """Return the patterns of printed quantities by column. `kind` is where they are: `pattern`
    in the print, `further` in a further line, `leading` in a line before the print."""
    patterns = {}
    for index, declared in enumerate(entry.get("printed", {}).values()):
        if kind in declared:
            column = f"{PRINTED}{index}"
            patterns[column] = declared[kind].replace("<value>", f"<{column}>")
    return patterns


def _alternatives(patterns: Mapping[str, str]) -> re.Pattern[str] | None:
    """Return a pattern that matches one of several; None without any."""
    return expression("|".join(patterns.values())) if patterns else None


def _format(entry: Mapping[str, Any]) -> LogFormat:
    """Return a format of formats.toml."""
    if "keys" in entry:
        entry = {**_DATA["dllogger"], **entry}
    fields = entry.get("fields", {}) | _dllogger_fields(entry.get("keys", {}))
    fields |= _patterns_of_quantities(entry, "pattern")
    further = entry.get("further", {}) | _patterns_of_quantities(entry, "further")
    leading = entry.get("leading", {}) | _patterns_of_quantities(entry, "leading")
    # The print's own line may have them, too.
    fields |= {name: field for name, field in further.items() if not field.startswith("^")}
    return LogFormat(
        semantics=semantics_of(entry),
        line=line_pattern(entry["line"], fields, entry.get("required", ())),
        further=_alternatives(further),
        leading=_alternatives(leading),
        printed=(*_quantities(entry),),
        **{name: entry[name] for name in PLAIN if name in entry},
    )


GENERAL: dict[str, Any] = _DATA["general"]
"""Patterns of what lines of no known format may name."""
STAMP = expression("^[^\n]{0,60}?<at>")
"""Time stamp at the beginning of a line."""
RECORDS: list[dict[str, Any]] = _DATA["record"]
"""Formats of files of records."""
REPORTED = [
    (key, expression(head), expression(figure)) for key, head, figure in _DATA["reported"]
]
"""Patterns of figures that logs report: `key`, fixed text in the line; `head`, the text before
the figures, whose group `where` is part of their names; and the figure."""
FORMATS = sorted(
    map(_format, _DATA["format"]), key=lambda form: (not form.has_steps, form.is_fallback)
)
"""The first format found in a file is used: fallbacks and formats without steps come last."""
