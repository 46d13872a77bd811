"""What a section is made of: paragraphs, lists, tables, figures, as data.

Inline text is Markup, in which foreign text is already escaped: `strong`, `code`, `a`, `small`,
`br` and coloured marks. html.py, terminal.py and section.py (notebooks) show blocks.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from markupsafe import Markup, escape

Inline = str | Markup
"""Text of a line; escaped unless it is Markup."""
Look = Literal["", "note", "title"]
NUMBER = re.compile(r"([■▲◆●○<≤≥] )?[+–-]?[\d.,]+|–|$")
"""Start of a cell's text, after an optional mark, that aligns the cell to the right."""
DASH = "–"
TAG = re.compile("<[^>]*>")


def plain_text(text: Inline) -> str:
    """Return inline text without elements."""
    return Markup(TAG.sub("", str(escape(text)))).unescape()


@dataclass(frozen=True)
class Paragraph:
    """A paragraph; a note is in small print."""

    text: Markup
    look: Look = ""


@dataclass(frozen=True)
class Heading:
    """The heading of a part of a section, with its address on the page."""

    text: Markup
    address: str
    level: int = 3


@dataclass(frozen=True)
class Bullets:
    """A list; `language` is that of foreign text."""

    items: Sequence[Inline]
    language: str = ""


@dataclass(frozen=True)
class Verbatim:
    """Text that keeps its lines: a command to copy, or the output of another program."""

    text: str
    is_command: bool = False


class NumberHeading(str):
    """The heading of a column of numbers, which are aligned to the right also beside words in
    the place of a number, such as "failed"."""


@dataclass(frozen=True)
class Column:
    """A column of a table: its heading and a cell for each row, None without a value."""

    heading: Inline
    cells: Sequence[Markup | None]

    @cached_property
    def is_of_numbers(self) -> bool:
        """Whether the cells are numbers, which are aligned to the right."""
        if isinstance(self.heading, NumberHeading):
            return True
        return all(NUMBER.match(plain_text(cell or "").strip()) for cell in self.cells)

    @cached_property
    def label(self) -> str:
        """The heading without elements."""
        return plain_text(self.heading).strip()


@dataclass(frozen=True)
class Table:
    """A table of at least one column. `as_cards`: where there is too little room for the
    columns, each row is a card."""

    columns: Sequence[Column]
    caption: Inline = ""
    as_cards: bool = False


@dataclass(frozen=True)
class Template:
    """HTML of a template, for what is more than the other blocks, and its text for terminals,
    if it has one."""

    html: str
    text: str = ""


@dataclass(frozen=True)
class Folded:
    """Blocks below a heading that shows them; terminals leave them out."""

    heading: str
    blocks: Sequence["Block"]
    address: str = ""


Block = Paragraph | Heading | Bullets | Verbatim | Table | Template | Folded
