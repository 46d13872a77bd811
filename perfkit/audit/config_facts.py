"""Read a log's configuration by the patterns of facts.toml: from launchers, command lines,
printed parameters and file names."""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import NamedTuple

from perfkit.audit.statements import (
    ByCommand,
    ByFormat,
    ByLine,
    ByName,
    ByRule,
    Contradiction,
    FactValue,
    Note,
    Origin,
    SourcedFact,
)

TEXT_LIMIT = 1_000_000
"""Characters searched for facts at the beginning of a training, and again at its end."""
CONTRADICTIONS = 20
"""Contradictions noted per log, at most."""
DLPERF_FOLDER = re.compile(r"\d{1,5}n\d{1,5}g")
"""Name of a folder in DLPerf's layout: 2n8g."""
_DATA = tomllib.loads((Path(__file__).parent / "facts.toml").read_text(encoding="utf-8"))


class ConfigPattern(NamedTuple):
    """A pattern that finds a fact; its first group is the value. `word` is fixed text in each
    match; a `unique` pattern yields nothing if the text has two values."""

    fact: str
    kind: str
    pattern: re.Pattern[str]
    word: str
    unique: bool

    def values(self, text: str) -> Iterator[tuple[FactValue, int]]:
        """Yield each distinct value in a text with the offset of its first occurrence."""
        if self.word not in text:
            return
        offsets: dict[FactValue, int] = {}
        for match in self.pattern.finditer(text):
            value = _value(self.kind, match[1])
            if value is not None:
                offsets.setdefault(value, match.start(1))
        if len(offsets) == 1 or not self.unique:
            yield from offsets.items()


def _patterns(where: str) -> Iterator[ConfigPattern]:
    """Return the patterns of facts.toml for a text, or for the name or the path of a file."""
    for entry in _DATA[where]:
        unique = entry.get("unique", where != "text")
        for text in entry["patterns"]:
            # A leading \b disables the literal-prefix search of `re`, which makes a search ten
            # times slower.
            fixed = re.match(r"\\b([\w :=]+)(?![?*{])", text)
            word = fixed[1] if fixed else ""
            yield ConfigPattern(entry["fact"], entry["kind"], re.compile(text), word, unique)


TEXT, NAME, PATH = (tuple(_patterns(where)) for where in ("text", "name", "path"))


def _value(kind: str, text: str) -> FactValue | None:
    """Convert a text to a value of a kind in facts.toml; None if it is not such a value."""
    match kind:
        case "number":
            return int(text) if text.isdecimal() else None
        case "count":
            return sum(bool(part.strip()) for part in text.split(","))
        case "gpu":
            # GeForce RTX 2080 Ti becomes 2080TI.
            return re.sub(r"geforce|rtx|gtx|[ _-]", "", text, flags=re.I).upper()
    spellings: dict[str, str] = _DATA["values"][kind]
    for value, spelling in spellings.items():
        if re.search(spelling, text, re.I):
            return value
    return None


def number_in(facts: Mapping[str, SourcedFact], name: str) -> int:
    """Return a positive number among the facts; 0 if unknown."""
    value = facts[name].value if name in facts else 0
    return value if isinstance(value, int) else 0


@dataclass(frozen=True)
class Rule:
    """A fact that is the quotient of the products of other facts."""

    fact: str
    how: str
    """the formula: global_batch_size / (ranks x accumulate)"""
    factors: Sequence[str]
    divisors: Sequence[str]

    @classmethod
    def of(cls, fact: str, how: str) -> "Rule":
        above, _slash, below = how.partition("/")
        return cls(fact, how, re.findall(r"\w\w+", above), re.findall(r"\w\w+", below))

    def value(self, numbers: Mapping[str, int]) -> int:
        """Return the fact, given numbers; 0 if one of them is unknown or the division leaves
        a rest."""
        dividend = prod(numbers[name] for name in self.factors)
        divisor = prod(numbers[name] for name in self.divisors)
        if divisor and dividend % divisor == 0:
            return dividend // divisor
        return 0


RULES = [Rule.of(fact, how) for fact, how in _DATA["rules"]]


class Facts:
    """Collects the facts of one training by their names (`by_name`), and their contradictions
    (`contradictions`, by name and value). `of_format` are facts that follow from the format;
    empty values are ignored."""

    def __init__(self, **of_format: FactValue) -> None:
        self.by_name: dict[str, SourcedFact] = {}
        self.contradictions: dict[tuple[str, FactValue], Note] = {}
        for name, value in of_format.items():
            if value:
                self._add(name, value, ByFormat())

    def read(self, lines: Sequence[tuple[int, str]]) -> None:
        """Add the facts found in numbered lines."""
        # Patterns may match the line ends on both sides.
        text = "\n".join(["", *(line for _number, line in lines), ""])
        begins = sorted({0, max(0, len(text) - TEXT_LIMIT)})
        for pattern in TEXT:
            for begin in begins:
                for value, offset in pattern.values(text[begin : begin + TEXT_LIMIT]):
                    index = text.count("\n", 0, begin + offset) - 1
                    number, _line = lines[min(index, len(lines) - 1)]
                    self._add(pattern.fact, value, ByLine(line=number), number)

    def add_printed(self, name: str, value: int, line: int) -> None:
        """Add a fact that prints state."""
        self._add(name, value, ByLine(line=line), line)

    def reject(self, names: Iterable[str], note: Note) -> None:
        """Remove facts that do not hold for the whole training; the note says why."""
        for name in names:
            self.by_name.pop(name, None)
        self.contradictions["global_batch_size", ""] = note

    def complete(self, path: Path) -> None:
        """Add the facts in the file's name (with its folder's, in DLPerf's layout) and the GPU
        named anywhere in the path, then apply the rules."""
        folder, name = path.absolute().parent.name, path.name
        if DLPERF_FOLDER.fullmatch(folder):
            name = f"{folder}/{name}"
        patterns: Iterable[ConfigPattern] = NAME
        if "model" in self.by_name:
            # A model named in the log wins: MLPerf's BERT is BERT-large, whatever the file's
            # name.
            patterns = [pattern for pattern in NAME if pattern.fact != "model"]
        self._read_name(name, patterns)
        self._read_name(str(path).replace("/", " / "), PATH)
        for rule in RULES:
            self._apply(rule)

    def _read_name(self, name: str, patterns: Iterable[ConfigPattern]) -> None:
        for pattern in patterns:
            for value, _offset in pattern.values(name):
                self._add(pattern.fact, value, ByName())

    def _apply(self, rule: Rule) -> None:
        """Add the fact of a rule if it is unknown and the rule's facts are known."""
        if number_in(self.by_name, rule.fact):
            return
        numbers = {}
        for name in (*rule.factors, *rule.divisors):
            numbers[name] = number_in(self.by_name, name)
        # BERT suites accumulate by default, so an unknown count is not 1.
        if rule.fact == "batch_size" or self._counts_images:
            numbers["accumulate"] = numbers.get("accumulate") or 1
        value = rule.value(numbers)
        if value:
            self.by_name[rule.fact] = SourcedFact(value=value, by=ByRule(how=rule.how))

    @property
    def _counts_images(self) -> bool:
        return "unit" in self.by_name and self.by_name["unit"].value == "images/s"

    def _add(self, name: str, value: FactValue, by: Origin, line: int | None = None) -> None:
        """Add a new fact, or note its contradiction once; the first value stays."""
        first = self.by_name.setdefault(name, SourcedFact(value=value, by=by))
        if first.value == value or len(self.contradictions) >= CONTRADICTIONS:
            return
        contradiction = Contradiction(
            name=name, value=value, by=by, other=first.value, whom=first.by
        )
        self.contradictions.setdefault((name, value), Note(contradiction, line))


def with_stated_facts(
    facts: Mapping[str, SourcedFact], stated: Mapping[str, FactValue]
) -> Facts:
    """Return the facts of a log completed by those that the command line states. A stated fact
    wins; a contradicting fact of the log is noted. Derived facts are derived anew."""
    completed = Facts()
    for name, value in stated.items():
        completed._add(name, value, ByCommand())
    for name, fact in facts.items():
        if not isinstance(fact.by, ByRule):
            line = fact.by.line if isinstance(fact.by, ByLine) else None
            completed._add(name, fact.value, fact.by, line)
    for rule in RULES:
        completed._apply(rule)
    return completed
