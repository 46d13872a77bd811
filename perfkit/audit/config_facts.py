"""Read a log's configuration by the patterns of facts.toml: from launchers, command lines,
printed parameters and file names."""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import NamedTuple

from pydantic.dataclasses import dataclass

from perfkit.core.messages import STORED, Message

Value = bool | int | float | str | None
TEXT_LIMIT = 1_000_000
"""Characters searched for facts at the beginning of a training, and again at its end."""
CONTRADICTIONS = 20
"""Contradictions noted per log, at most."""
_DATA = tomllib.loads((Path(__file__).parent / "facts.toml").read_text(encoding="utf-8"))


class ConfigPattern(NamedTuple):
    """A pattern that finds a fact; its first group is the value. `word` is fixed text in each
    match; a `unique` pattern yields nothing if the text has two values."""

    fact: str
    kind: str
    pattern: re.Pattern[str]
    word: str
    unique: bool

    def values(self, text: str) -> Iterator[tuple[Value, int]]:
        """Yield each distinct value in a text with the offset of its first occurrence."""
        found: dict[Value, int] = {}
        for match in self.pattern.finditer(text) if self.word in text else ():
            if (value := _value(self.kind, match[1])) is not None:
                found.setdefault(value, match.start(1))
        yield from found.items() if len(found) == 1 or not self.unique else ()


def _patterns(where: str) -> Iterator[ConfigPattern]:
    """Return the patterns of facts.toml for a text, or for the name or the path of a file."""
    for entry in _DATA[where]:
        for text in entry["patterns"]:
            # A leading \b disables the literal-prefix search of `re`, which makes a search ten
            # times slower.
            fixed = re.match(r"\\b([\w :=]+)(?![?*{])", text)
            unique = entry.get("unique", where != "text")
            word = fixed[1] if fixed else ""
            yield ConfigPattern(entry["fact"], entry["kind"], re.compile(text), word, unique)


TEXT, NAME, PATH = (tuple(_patterns(where)) for where in ("text", "name", "path"))


def _value(kind: str, text: str) -> Value | None:
    """Convert a text to a value of a kind in facts.toml; None if it is not such a value."""
    match kind:
        case "number":
            return int(text) if text.isdecimal() else None
        case "count":
            return sum(bool(part.strip()) for part in text.split(","))
        case "gpu":
            # GeForce RTX 2080 Ti becomes 2080TI.
            return re.sub(r"geforce|rtx|gtx|[ _-]", "", text, flags=re.I).upper()
    values = _DATA["values"][kind].items()
    return next((value for value, regex in values if re.search(regex, text, re.I)), None)


@dataclass(frozen=True, config=STORED)
class Sourced:
    """A fact about the configuration and its source: a line, a name, the format, or a rule."""

    value: Value
    """the fact"""
    by: Message
    """its source"""


def by_line(line: int) -> Message:
    return Message("by_line", {"line": line})


def number_in(facts: Mapping[str, Sourced], name: str) -> int:
    """Return a positive number among the facts; 0 if unknown."""
    value = facts[name].value if name in facts else 0
    return value if isinstance(value, int) else 0


class Facts:
    """Collects the facts of one training (`found`) and their contradictions (`notes`, with the
    line). `of_format` are facts that follow from the format; empty values are ignored."""

    def __init__(self, **of_format: Value) -> None:
        by = Message("by_format")
        self.found = {name: Sourced(value, by) for name, value in of_format.items() if value}
        self.notes: dict[tuple[str, Value], tuple[int, Message]] = {}

    def read(self, lines: Sequence[tuple[int, str]]) -> None:
        """Add the facts found in numbered lines."""
        # Patterns may match the line ends on both sides.
        text = "\n".join(["", *(line for _number, line in lines), ""])
        for pattern in TEXT:
            for begin in sorted({0, max(0, len(text) - TEXT_LIMIT)}):
                for value, offset in pattern.values(text[begin : begin + TEXT_LIMIT]):
                    index = text.count("\n", 0, begin + offset) - 1
                    line = lines[min(index, len(lines) - 1)][0]
                    self._add(pattern.fact, value, by_line(line), line)

    def complete(self, path: Path) -> None:
        """Add the facts in the file's name (with its folder's, in DLPerf's layout) and the GPU
        named anywhere in the path, then apply the rules."""
        folder, name = path.absolute().parent.name, path.name
        if re.fullmatch(r"\d{1,5}n\d{1,5}g", folder):
            name = f"{folder}/{name}"
        # A model named in the log wins: MLPerf's BERT is BERT-large, whatever the file's name.
        patterns = [p for p in NAME if p.fact != "model" or "model" not in self.found]
        for searched, text in ((patterns, name), (PATH, str(path).replace("/", " / "))):
            for pattern in searched:
                for value, _offset in pattern.values(text):
                    self._add(pattern.fact, value, Message("by_name"))
        of_images = "unit" in self.found and self.found["unit"].value == "images/s"
        for fact, how in _DATA["rules"]:
            factors, divisors = (re.findall(r"\w\w+", part) for part in how.partition("/")[::2])
            known = {name: number_in(self.found, name) for name in (*factors, *divisors)}
            # BERT suites accumulate by default, so an unknown count is not 1.
            if fact == "batch_size" or of_images:
                known["accumulate"] = known.get("accumulate") or 1
            whole, divisor = (prod(known[n] for n in names) for names in (factors, divisors))
            if whole and divisor and whole % divisor == 0 and not number_in(self.found, fact):
                self.found[fact] = Sourced(whole // divisor, Message("by_rule", {"how": how}))

    def _add(self, name: str, value: Value, by: Message, line: int = 0) -> None:
        """Add a new fact, or note its contradiction once; the first value stays."""
        known = self.found.setdefault(name, Sourced(value, by))
        if known.value != value and len(self.notes) < CONTRADICTIONS:
            params = {"name": name, "value": value, "by": by, "other": known.value}
            message = Message("contradiction", params | {"whom": known.by})
            self.notes.setdefault((name, value), (line, message))
