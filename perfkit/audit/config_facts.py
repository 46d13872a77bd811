"""The configuration that a log tells, by the keys, patterns and rules of facts.toml."""

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import inf, isfinite, prod
from pathlib import Path
from typing import NamedTuple

from perfkit.audit import numbers
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
MOST = 10**15
"""Largest number of a fact; sums and products of larger ones are no counts of anything."""
_DATA = tomllib.loads((Path(__file__).parent / "facts.toml").read_text(encoding="utf-8"))
KEY = re.compile(_DATA["key"])
FACT_OF_KEY: dict[str, str] = {
    key: fact for fact, keys in _DATA["keys"].items() for key in keys
}
OTHER_PHASE = re.compile(_DATA["other_phase"])
PARAMETERS_OF_RANK = re.compile(_DATA["parameters_of_rank"])
SUM_OF_RANKS = "sum of the parameters of the model parallel ranks"
RULES = [Rule.of(entry) for entry in _DATA["rules"]]


class FactPattern(NamedTuple):
    """A pattern that finds a fact; its first group is the value. `word` is fixed text in each
    match. `only`: "unique" yields nothing if the text has two values; "alone" holds only if
    nothing else tells the fact; "highest" yields the highest value."""

    fact: str
    kind: str
    pattern: re.Pattern[str]
    word: str
    only: str

    def values(self, text: str) -> list[tuple[FactValue, int]]:
        """Return the values in a text with their offsets."""
        if self.word not in text:
            return []
        found = []
        for match in self.pattern.finditer(text):
            value = _value(self.kind, match[1])
            if value is not None:
                found.append((value, match.start(1)))
        if self.only == "highest" and found:
            return [max(found, key=lambda pair: pair[0])]
        is_one = len({value for value, _offset in found}) == 1
        return found if is_one or self.only != "unique" else []


def _patterns(where: str, only: str = "") -> Iterator[FactPattern]:
    """Return the patterns of facts.toml for a text, or for the name or the path of a file."""
    for entry in _DATA[where]:
        for text in entry["patterns"]:
            fixed = re.match(r"\\b([\w :=-]+)(?![?*+{])", text)
            word = fixed[1] if fixed else ""
            pattern = _compiled(text, word)
            how = entry.get("only", only)
            yield FactPattern(entry["fact"], entry["kind"], pattern, word, how)


def _compiled(text: str, word: str) -> re.Pattern[str]:
    """Compile a pattern of facts.toml. A leading \\b, here before `word`, disables the
    literal-prefix search of `re`, which makes a search ten times slower."""
    if word:
        behind_word = text.removeprefix(rf"\b{word}")
        text = rf"{word}(?<=\b{word}){behind_word}"
    for name, spelling in _DATA["spellings"].items():
        text = text.replace(f"<{name}>", spelling)
    return re.compile(text)


TEXT = (*_patterns("text"),)
NAME, PATH = (tuple(_patterns(where, "unique")) for where in ("name", "path"))


def _gpu(text: str) -> str:
    """Return the short name of a GPU: 2080TI for GeForce RTX 2080 Ti."""
    return re.sub(r"geforce|rtx|gtx|[ _-]", "", text, flags=re.I).upper()


def count_of(text: str) -> int | None:
    """Return the whole number that a text spells; None if it spells none."""
    text = re.sub(r" ?([mb])illion", lambda match: match[1].upper(), text)
    try:
        value = numbers.number(text)
    except ValueError:
        return None
    # 8.03B becomes 8029999999.999999.
    is_whole = isfinite(value) and abs(value - round(value)) <= 1e-12 * abs(value)
    return round(value) if is_whole else None


def _items(text: str) -> int:
    """Return the number of items between commas."""
    return sum(bool(part.strip()) for part in text.split(","))


KINDS: dict[str, Callable[[str], FactValue | None]] = {
    "number": count_of,
    "billions": lambda text: count_of(f"{text}B"),
    "product": lambda text: prod(int(part) for part in re.findall(r"\d{1,15}", text)),
    "count": _items,
    "ranks": lambda text: int(text) + 1,
    "gpu": _gpu,
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


class Told(NamedTuple):
    """A fact that a line tells; `is_weak`: whether it holds only if no other line does."""

    line: int
    value: FactValue
    is_weak: bool


def _told(lines: Sequence[tuple[int, str]]) -> dict[str, list[Told]]:
    """Return what numbered lines tell, by fact, in their order."""
    # Patterns may match the line ends on both sides.
    text = "\n".join(["", *(line for _number, line in lines), ""])
    told: dict[str, list[Told]] = {}
    for begin in sorted({0, max(0, len(text) - TEXT_LIMIT)}):
        part = text[begin : begin + TEXT_LIMIT]
        for fact, value, offset, is_weak in (*_by_keys(part), *_by_patterns(part)):
            index = text.count("\n", 0, begin + offset) - 1
            number, _line = lines[min(index, len(lines) - 1)]
            told.setdefault(fact, []).append(Told(number, value, is_weak))
    return {fact: sorted(of_fact, key=lambda each: each.line) for fact, of_fact in told.items()}


def _by_keys(text: str) -> Iterator[tuple[str, FactValue, int, bool]]:
    """Yield the facts in `key: value`, `key=value`, `--key value` and the like."""
    for match in KEY.finditer(text):
        key = match["key"].rpartition(".")[2].replace("-", "_")
        if key in FACT_OF_KEY and not OTHER_PHASE.search(match["key"]):
            value = prod(count_of(part) or 0 for part in match["value"].split("*"))
            if 0 < value <= MOST:
                yield FACT_OF_KEY[key], value, match.start("value"), False


def _by_patterns(text: str) -> Iterator[tuple[str, FactValue, int, bool]]:
    for pattern in TEXT:
        for value, offset in pattern.values(text):
            yield pattern.fact, value, offset, pattern.only == "alone"


def _holding(told: Sequence[Told], first_print: float) -> Told:
    """Return what holds for the steps printed from a line on: what is told last before it or,
    if nothing is, first; with the line since which it is told."""
    before = [each for each in told if each.line <= first_print] or told[:1]
    since = before[-1]
    for each in reversed(before):
        if each.value != since.value:
            break
        since = each
    return since


class Facts:
    """Collects the facts of one training by their names (`by_name`), and their contradictions
    (`contradictions`, by name and value). `of_format` are facts that follow from the format;
    empty values are ignored."""

    def __init__(self, **of_format: FactValue) -> None:
        self.by_name: dict[str, SourcedFact] = {}
        self.contradictions: dict[tuple[str, FactValue], Note] = {}
        for name, value in of_format.items():
            if value:
                self.add(name, value, ByFormat())

    def read(self, lines: Sequence[tuple[int, str]], first_print: float = inf) -> None:
        """Add the facts in numbered lines that hold for the steps printed from a line on."""
        for fact, told in _told(lines).items():
            strong = [each for each in told if not each.is_weak] or told
            holding = _holding(strong, first_print)
            for each in (holding, *strong):
                self.add(fact, each.value, ByLine(line=each.line))
        self._add_parameters_of_ranks("\n".join(line for _number, line in lines)[:TEXT_LIMIT])

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
            self.add("parameters", sum(parameters.values()), ByRule(how=SUM_OF_RANKS))

    def add(self, name: str, value: FactValue, by: Origin) -> None:
        """Add a fact, or note once that it contradicts the one that holds already."""
        holding = self.by_name.setdefault(name, SourcedFact(value=value, by=by))
        if holding.value == value or len(self.contradictions) >= CONTRADICTIONS:
            return
        contradiction = Contradiction(
            name=name, value=holding.value, by=holding.by, other=value, whom=by
        )
        line = by.line if isinstance(by, ByLine) else None
        self.contradictions.setdefault((name, value), Note(contradiction, line))

    def complete(self, path: Path) -> None:
        """Apply the rules; then add what is still unknown and stands in the file's name (with
        its folder's, in DLPerf's layout), and the GPU named anywhere in the path."""
        # What the log says wins over the name of its file, but the name over an assumption.
        self.derive(assumed={})
        folder, name = path.absolute().parent.name, path.name
        if DLPERF_FOLDER.fullmatch(folder):
            name = f"{folder}/{name}"
        patterns: Iterable[FactPattern] = NAME
        if "model" in self.by_name:
            # A model named in the log wins: MLPerf's BERT is BERT-large, whatever the file's
            # name.
            patterns = [pattern for pattern in NAME if pattern.fact != "model"]
        self._read_name(name, patterns)
        self._read_name(str(path).replace("/", " / "), PATH)
        self.derive(assumed={"accumulate": 1})

    def _read_name(self, name: str, patterns: Iterable[FactPattern]) -> None:
        for pattern in patterns:
            for value, _offset in pattern.values(name):
                self.add(pattern.fact, value, ByName())

    def derive(self, assumed: Mapping[str, int]) -> None:
        """Add the facts that follow from others by the rules; `assumed` are values of facts
        that most suites leave out."""
        for rule in RULES:
            self._apply(rule, assumed)

    def _apply(self, rule: Rule, assumed: Mapping[str, int]) -> None:
        """Add the fact of a rule if it is unknown and the rule's facts are known."""
        if number_in(self.by_name, rule.fact):
            return
        # BERT suites accumulate by default, so an unknown count is not 1.
        if rule.fact != "batch_size" and not self._counts_images:
            assumed = {}
        numbers_known = {name: number_in(self.by_name, name) for name in self.by_name}
        known = {name: value for name, value in numbers_known.items() if value}
        value = rule.value(known, assumed)
        if value:
            self.by_name[rule.fact] = SourcedFact(value=value, by=ByRule(how=rule.how))

    @property
    def _counts_images(self) -> bool:
        return "unit" in self.by_name and self.by_name["unit"].value == "images/s"


def with_stated_facts(
    facts: Mapping[str, SourcedFact], stated: Mapping[str, FactValue]
) -> Facts:
    """Return the facts of a log completed by those that the command line states. A stated fact
    wins; a contradicting fact of the log is noted. Derived facts are derived anew."""
    completed = Facts()
    for name, value in stated.items():
        completed.add(name, value, ByCommand())
    formulas = {rule.how for rule in RULES}
    for name, fact in facts.items():
        is_derived = isinstance(fact.by, ByRule) and fact.by.how in formulas
        if not is_derived:
            completed.add(name, fact.value, fact.by)
    completed.derive(assumed={"accumulate": 1})
    return completed
