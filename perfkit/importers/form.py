"""What a format is: how its files are recognised and read."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from perfkit.importers.lines import Chunk
from perfkit.importers.log import RAW, Meaning, Told, Unit
from perfkit.importers.patterns import floats, prints
from perfkit.importers.sayings import LAUNCHERS, PADDLE, Saying

TOLD_CHARACTERS = 100
Figures = Callable[[Chunk], Iterator[Told]]


@dataclass(frozen=True)
class Form:
    """A format of lines. A file is of it that has a line which `print` matches.

    `key`: fixed text in each of them. `framework`: a word of Config, or the peer's own name.
    `has_steps`: whether its prints tell of steps. `mended`: rows of RAW after what an
    expression can't tell. `judged`: the meaning, where only the figures of a log can tell it,
    from its first rows and their text. `figures`: the log's own summaries among what are no
    prints. `sayings`: how it tells facts, and in which texts of a chunk (`said_in`).
    """

    name: str
    meaning: Meaning
    key: bytes
    print: re.Pattern[bytes]
    framework: str = ""
    unit: str = "samples/s"
    has_steps: bool = True
    mended: Callable[[np.ndarray], np.ndarray] = lambda rows: rows
    judged: Callable[[Meaning, np.ndarray, bytes], Meaning] = lambda meaning, rows, text: (
        meaning
    )
    figures: Figures = lambda rest: iter(())
    sayings: tuple[Saying, ...] = LAUNCHERS + PADDLE
    said_in: Callable[[Chunk], Iterator[Chunk]] = lambda rest: iter((rest,))

    def is_in(self, text: bytes) -> bool:
        """Whether there is a print of this format in `text`."""
        return self.key in text and self.print.search(text) is not None

    def rows(self, chunk: Chunk) -> tuple[np.ndarray, Chunk]:
        """The prints in a chunk as rows of RAW, and what else it holds."""
        if not self.has_steps:
            return np.empty(0, RAW), chunk
        rows, rest = prints(chunk, self.print)
        return self.mended(rows), rest


@dataclass(frozen=True)
class Document:
    """A format that is one JSON object; `read` returns None for another one."""

    name: str
    meaning: Meaning
    read: Callable[[dict[str, Any]], "Contents | None"]


@dataclass(frozen=True)
class Contents:
    """What a document holds: rows of RAW, facts by name, and its own figures."""

    rows: np.ndarray = field(default_factory=lambda: np.empty(0, RAW))
    facts: dict[str, int | str] = field(default_factory=dict)
    told: list[Told] = field(default_factory=list)


def figures(*patterns: tuple[Unit, re.Pattern[bytes]]) -> Figures:
    """Finds what each pattern's groups say: `value`, and `name`, after `where` if there is one;
    the unit is given beside the pattern."""

    def find(rest: Chunk) -> Iterator[Told]:
        for unit, pattern in patterns:
            for match in pattern.finditer(rest.text):
                said = {key: text.decode() for key, text in match.groupdict(b"").items()}
                name = f"{said.get('where', '')} {said.get('name', '')}".strip()
                yield told(name, said["value"], unit, rest.line_at(match.start("value")))

    return find


def told(name: str, text: str, unit: Unit, line: int) -> Told:
    """A figure whose parts are a log's."""
    (value,) = floats([text.encode()])
    return Told(name[:TOLD_CHARACTERS], float(value), text[:TOLD_CHARACTERS], line, unit)
