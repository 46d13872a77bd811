"""What a log tells of its configuration, by the patterns of facts.toml: launchers, command
lines, parameters that suites print, and the names of files."""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import NamedTuple

from pydantic.dataclasses import dataclass

from perfkit.messages import STRICT, Message

Value = int | str
TEXT_LIMIT = 1_000_000
"""Facts are looked for in so many characters at the beginning of a training, and at its end."""
CONTRADICTIONS = 20
"""How many are noted of one log."""
_DATA = tomllib.loads((Path(__file__).parent / "facts.toml").read_text(encoding="utf-8"))


class ConfigPattern(NamedTuple):
    """How logs tell a fact: the first group has the value. `word` is in each match; `unique`:
    two values say nothing."""

    fact: str
    kind: str
    pattern: re.Pattern[str]
    word: str
    unique: bool

    def values(self, text: str) -> Iterator[tuple[Value, int]]:
        """Each value that a text tells, and where it stands; of the same ones the first."""
        found: dict[Value, int] = {}
        for match in self.pattern.finditer(text) if self.word in text else ():
            if (value := _value(self.kind, match[1])) is not None:
                found.setdefault(value, match.start(1))
        yield from found.items() if len(found) == 1 or not self.unique else ()


def _patterns(where: str) -> Iterator[ConfigPattern]:
    """The patterns of facts.toml for a text, or for the name or the path of a file."""
    for entry in _DATA[where]:
        for text in entry["patterns"]:
            # With \b before it, a word is hidden from Python's search for fixed beginnings, and
            # a search takes ten times as long.
            word = re.match(r"\\b([\w :=]+)(?![?*{])", text)
            unique = entry.get("unique", where != "text")
            kind, pattern = entry["kind"], re.compile(text)
            yield ConfigPattern(entry["fact"], kind, pattern, word[1] if word else "", unique)


TEXT, NAME, PATH = (tuple(_patterns(where)) for where in ("text", "name", "path"))


def _value(kind: str, text: str) -> Value | None:
    """A value of this kind of facts.toml; None if it is none."""
    match kind:
        case "number":
            return int(text) if text.isdecimal() else None
        case "count":
            return sum(bool(part.strip()) for part in text.split(","))
        case "text":
            return text
        case "gpu":
            # GeForce RTX 2080 Ti is 2080TI.
            return re.sub(r"geforce|rtx|gtx|[ _-]", "", text, flags=re.I).upper()
    words = _DATA["values"][kind].items()
    return next((word for word, one in words if re.search(one, text, re.I)), None)


@dataclass(frozen=True, config=STRICT)
class Sourced:
    """What the log tells of its configuration, and who says it: a line, its name, its format,
    or a rule by which it follows."""

    value: Value
    by: Message


def by_line(line: int) -> Message:
    return Message("by_line", {"line": line})


def number_in(facts: Mapping[str, Sourced], name: str) -> int:
    """A fact that is a number above 0; 0 if there is none."""
    value = facts[name].value if name in facts else 0
    return value if isinstance(value, int) else 0


class Facts:
    """Gathers the facts of one training (`found`), and where two of them contradict each other
    (`notes`, with the line). `of_format` are those that follow from the format, unless they are
    empty."""

    def __init__(self, **of_format: Value) -> None:
        by = Message("by_format", {})
        self.found = {name: Sourced(value, by) for name, value in of_format.items() if value}
        self.notes: dict[tuple[str, Value], tuple[int, Message]] = {}

    def read(self, lines: Sequence[tuple[int, str]]) -> None:
        """Takes what lines, with their numbers, say."""
        # Patterns look for line ends at both sides.
        text = "\n".join(["", *(line for _number, line in lines), ""])
        for one in TEXT:
            for begin in sorted({0, max(0, len(text) - TEXT_LIMIT)}):
                for value, offset in one.values(text[begin : begin + TEXT_LIMIT]):
                    # The line takes time to find, and most matches say the same again.
                    if self._is_news(one.fact, value):
                        index = text.count("\n", 0, begin + offset) - 1
                        line = lines[min(index, len(lines) - 1)][0]
                        self._add(one.fact, value, by_line(line), line)

    def complete(self, path: Path) -> None:
        """Takes what the file's name says, its folder's if that is laid out as DLPerf's, and
        the GPU that any part of the path names; then what follows from all facts by rules."""
        folder, name = path.absolute().parent.name, path.name
        if re.fullmatch(r"\d{1,5}n\d{1,5}g", folder):
            name = f"{folder}/{name}"
        # MLPerf's BERT is another model, whatever its file is called.
        patterns = [one for one in NAME if one.fact != "model" or "model" not in self.found]
        for some, text in ((patterns, name), (PATH, str(path).replace("/", " / "))):
            for one in some:
                for value, _offset in one.values(text):
                    if self._is_news(one.fact, value):
                        self._add(one.fact, value, Message("by_name", {}))
        of_images = "unit" in self.found and self.found["unit"].value == "images/s"
        for fact, how in _DATA["rules"]:
            factors, divisors = (re.findall(r"\w\w+", part) for part in how.partition("/")[::2])
            known = {name: number_in(self.found, name) for name in (*factors, *divisors)}
            # Suites that train BERT accumulate unless they are told not to.
            if fact == "batch_size" or of_images:
                known["accumulate"] = known.get("accumulate") or 1
            whole, part = (prod(known[name] for name in names) for names in (factors, divisors))
            if whole and part and whole % part == 0 and not number_in(self.found, fact):
                self.found[fact] = Sourced(whole // part, Message("by_rule", {"how": how}))

    def _is_news(self, name: str, value: Value) -> bool:
        """Whether a fact is not known, or its contradiction not noted."""
        if name not in self.found:
            return True
        noted = (name, value) in self.notes or len(self.notes) >= CONTRADICTIONS
        return self.found[name].value != value and not noted

    def _add(self, name: str, value: Value, by: Message, line: int = 0) -> None:
        """Takes what is news. The first fact stands."""
        known = self.found.setdefault(name, Sourced(value, by))
        if known.value != value:
            params = {"name": name, "value": value, "by": by, "other": known.value}
            message = Message("contradiction", params | {"whom": known.by})
            self.notes[name, value] = line, message
