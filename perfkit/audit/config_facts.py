"""Read a log's configuration by the patterns of facts.toml: from launchers, command lines,
printed parameters and file names."""

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import NamedTuple

from perfkit.audit.fact_rules import Rule
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
COUNT = r"((?:\d{1,3}(?:[,_]\d{3}){1,5}|\d{1,15})(?:\.0{1,9})?)(?!\d|[.,]\d)"
"""Pattern of a whole number as a group, which `<count>` stands for in facts.toml."""
AMOUNT = r"(\d{1,9}(?:,\d{3}){0,5}(?:\.\d{1,9})?(?:[eE]\+?\d{1,2})? ?(?:[KMBT]\b|[mb]illion)?)"
"""Pattern of a rounded number with its unit as a group, which `<amount>` stands for."""
UNITS = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12, "million": 1e6, "billion": 1e9}
MOST = 10**15
"""Largest number of a fact; sums and products of larger ones are no counts of anything."""
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
            fixed = re.match(r"\\b([\w :=-]+)(?![?*+{])", text)
            word = fixed[1] if fixed else ""
            pattern = _compiled(text, word)
            yield ConfigPattern(entry["fact"], entry["kind"], pattern, word, unique)


def _compiled(text: str, word: str) -> re.Pattern[str]:
    """Compile a pattern of facts.toml. A leading \\b, here before `word`, disables the
    literal-prefix search of `re`, which makes a search ten times slower."""
    if word:
        behind_word = text.removeprefix(rf"\b{word}")
        text = rf"{word}(?<=\b{word}){behind_word}"
    return re.compile(text.replace("<count>", COUNT).replace("<amount>", AMOUNT))


SUM_OF_RANKS = "sum of the parameters of the model parallel ranks"
PARAMETERS_OF_RANK = re.compile(_DATA["parameters_of_rank"])
TEXT, NAME, PATH = (tuple(_patterns(where)) for where in ("text", "name", "path"))


def _gpu(text: str) -> str:
    """Return the short name of a GPU: 2080TI for GeForce RTX 2080 Ti."""
    return re.sub(r"geforce|rtx|gtx|[ _-]", "", text, flags=re.I).upper()


def _count(text: str) -> int | None:
    """Return a whole number: 8030261248 for "8,030,261,248", 24 for "24.0"."""
    digits, _point, _zeros = re.sub("[,_]", "", text).partition(".")
    return int(digits) if digits.isdecimal() else None


def _amount(text: str) -> int | None:
    """Return a number that is printed with its unit: 1240000000 for "1.24B"."""
    parts = re.fullmatch(r"([\d.,]{1,40}(?:[eE]\+?\d{1,2})?) ?([KMBT]?[a-z]{0,9})", text)
    if not parts:
        return None
    return round(float(parts[1].replace(",", "")) * UNITS.get(parts[2], 1))


def _product(text: str) -> int:
    """Return the product of the numbers in a text: 512 for "8*64"."""
    return prod(int(number) for number in re.findall(r"\d{1,15}", text))


def _items(text: str) -> int:
    """Return the number of items between commas."""
    return sum(bool(part.strip()) for part in text.split(","))


KINDS: dict[str, Callable[[str], FactValue | None]] = {
    "number": _count,
    "amount": _amount,
    "billions": lambda text: _amount(f"{text}B"),
    "product": _product,
    "count": _items,
    "gpu": _gpu,
    "benchmark": str.lower,
}
"""Kinds of values in facts.toml that have no table of spellings, and their conversions."""


def _value(kind: str, text: str) -> FactValue | None:
    """Convert a text to a value of a kind in facts.toml; None if it is not such a value."""
    if kind in KINDS:
        value = KINDS[kind](text)
        return None if isinstance(value, int) and value > MOST else value
    spellings: dict[str, str] = _DATA["values"][kind]
    for value, spelling in spellings.items():
        if re.search(spelling, text, re.I):
            return value
    return None


def number_in(facts: Mapping[str, SourcedFact], name: str) -> int:
    """Return a positive number among the facts; 0 if unknown."""
    value = facts[name].value if name in facts else 0
    return value if isinstance(value, int) else 0


RULES = [Rule.of(entry) for entry in _DATA["rules"]]


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
        self._add_parameters_of_ranks(text[:TEXT_LIMIT])

    def _add_parameters_of_ranks(self, text: str) -> None:
        """Add the sum of the parameters that a model's ranks tell: of all tensor and pipeline
        ranks, unless experts are spread over further ranks."""
        parameters: dict[tuple[str, str], int] = {}
        for tensor, pipeline, count in PARAMETERS_OF_RANK.findall(text):
            parameters.setdefault((tensor, pipeline), int(count))
        names = ("tensor_parallel_size", "pipeline_parallel_size")
        ranks = prod(number_in(self.by_name, name) for name in names)
        has_expert_ranks = number_in(self.by_name, "expert_parallel_size") > 1
        if parameters and len(parameters) == ranks and not has_expert_ranks:
            self._add("parameters", sum(parameters.values()), ByRule(how=SUM_OF_RANKS))

    def add_printed(self, name: str, value: int, line: int) -> None:
        """Add a fact that prints state."""
        self._add(name, value, ByLine(line=line), line)

    def reject(self, names: Iterable[str], note: Note) -> None:
        """Remove facts that do not hold for the whole training; the note says why."""
        for name in names:
            self.by_name.pop(name, None)
        self.contradictions["global_batch_size", ""] = note

    def complete(self, path: Path) -> None:
        """Apply the rules; then add what is still unknown and stands in the file's name (with
        its folder's, in DLPerf's layout), and the GPU named anywhere in the path."""
        # What the log says wins over the name of its file, but the name over an assumption.
        self.derive(assumed={})
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
        self.derive(assumed={"accumulate": 1})

    def derive(self, assumed: Mapping[str, int]) -> None:
        """Add the facts that follow from others by the rules; `assumed` are values of facts
        that most suites leave out."""
        for rule in RULES:
            self._apply(rule, assumed)

    def _read_name(self, name: str, patterns: Iterable[ConfigPattern]) -> None:
        for pattern in patterns:
            for value, _offset in pattern.values(name):
                self._add(pattern.fact, value, ByName())

    def _apply(self, rule: Rule, assumed: Mapping[str, int]) -> None:
        """Add the fact of a rule if it is unknown and the rule's facts are known."""
        if number_in(self.by_name, rule.fact):
            return
        # BERT suites accumulate by default, so an unknown count is not 1.
        if rule.fact != "batch_size" and not self._counts_images:
            assumed = {}
        known = {}
        for name in self.by_name:
            number = number_in(self.by_name, name)
            if number:
                known[name] = number
        value = rule.value(known, assumed)
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
    formulas = {rule.how for rule in RULES}
    for name, fact in facts.items():
        is_derived = isinstance(fact.by, ByRule) and fact.by.how in formulas
        if not is_derived:
            line = fact.by.line if isinstance(fact.by, ByLine) else None
            completed._add(name, fact.value, fact.by, line)
    completed.derive(assumed={"accumulate": 1})
    return completed
