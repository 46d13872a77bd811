"""What a log tells of its configuration, gathered from its lines and its name."""

import re
from pathlib import Path

from perfkit.importers.lines import Chunk
from perfkit.importers.log import Fact, Note
from perfkit.importers.sayings import NAME, Saying, Value

CONTRADICTIONS = 20
"""How many are noted of one log."""


class Facts:
    """Gathers the facts of one file, and notes where two of them contradict each other."""

    def __init__(self) -> None:
        self.facts: dict[str, Fact] = {}
        self.notes: list[Note] = []
        self._noted: set[tuple[str, Value]] = set()

    def read(self, rest: Chunk, sayings: tuple[Saying, ...]) -> None:
        """Takes what lines say."""
        for saying in sayings:
            if saying.key in rest.text:
                for match in saying.pattern.finditer(rest.text):
                    value = saying.value(match[1])
                    if value is not None and self._is_new(saying.fact, value):
                        self.add(saying.fact, value, rest.line_at(match.start(1)))

    def read_name(self, path: Path) -> None:
        """Takes what the file's name says, and its folder's if that is laid out as DLPerf's."""
        folder, name = path.absolute().parent.name, path.name.encode("utf-8", "replace")
        if re.fullmatch(r"\d{1,5}n\d{1,5}g", folder):
            name = folder.encode() + b"/" + name
        for saying in NAME:
            if match := saying.pattern.search(name):
                value = saying.value(match[1])
                if value is not None:
                    self.add(saying.fact, value, 0)

    def add(self, name: str, value: int | str, line: int) -> None:
        """Takes a fact that a line says, or the file's name (line 0). The first one stands."""
        fact = Fact(value, f"line {line}" if line else "its name")
        known = self.facts.setdefault(name, fact)
        if known.value != value and self._is_new(name, value):
            self._noted.add((name, value))
            words = f"{name} is {value} by {fact.said_by}, but {known.value} by {known.said_by}"
            self.notes.append(Note(line, words))

    def _is_new(self, name: str, value: int | str) -> bool:
        known = self.facts.get(name)
        if known is None:
            return True
        told = (name, value) in self._noted or len(self.notes) >= CONTRADICTIONS
        return known.value != value and not told

    def derive(self) -> None:
        """Adds what follows from others: of nodes, devices and ranks each from the other two;
        the batch of a device from that of all."""
        nodes, devices, ranks = (self._number(name) for name in ("nodes", "devices", "ranks"))
        if nodes and devices:
            self._derive("ranks", nodes * devices, "nodes x devices")
        elif ranks and nodes and ranks % nodes == 0:
            self._derive("devices", ranks // nodes, "ranks / nodes")
        elif ranks and devices and ranks % devices == 0:
            self._derive("nodes", ranks // devices, "ranks / devices")
        ranks, of_all = self._number("ranks"), self._number("global_batch_size")
        parts = (ranks or 0) * (self._number("accumulate") or 1)
        if of_all and parts and of_all % parts == 0:
            self._derive("batch_size", of_all // parts, "global_batch_size / ranks")

    def _derive(self, name: str, value: int, how: str) -> None:
        known = self.facts.setdefault(name, Fact(value, how))
        if known.value != value:
            words = f"{how} is {value}, but {known.said_by} says {name} {known.value}"
            self.notes.append(Note(0, words))

    def _number(self, name: str) -> int | None:
        fact = self.facts.get(name)
        return fact.value if fact and isinstance(fact.value, int) else None
