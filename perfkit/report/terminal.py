"""Blocks of a section as text for a terminal, in lines of at most 80 columns, and prints."""

import re
import textwrap
from collections.abc import Collection, Iterable, Sequence
from io import StringIO
from typing import Literal

import click
from markupsafe import Markup, escape

from perfkit.measuring.format import printable
from perfkit.report.blocks import (
    DASH,
    Block,
    Bullets,
    Column,
    Folded,
    Heading,
    Inline,
    Paragraph,
    Table,
    Template,
    Verbatim,
    plain_text,
)

WIDTH = 80
COMMAND = re.compile(
    r"(^|(?<=[:;] ))perfkit [a-z]+ .*|-p \w+ \S+|(--\w+ \w+ ?)+$"
    r"|(conda env|docker run|pip install|\S+ -m pip) [^;]*"
)
"""A command or its options, up to the end of a text. A command of perfkit begins the text or
follows a colon or a semicolon."""
COLOURS = {"■": "red", "▲": "yellow", "◆": "blue", "●": "green", "○": "bright_black"}
"""Mark of a severity -> its colour on a terminal."""
COLOUR_CODES = re.compile(r"(\x1b\[(?:0|31|32|33|34|90)m)")
"""What `click.style` writes for these colours, and at their end."""
CODE = re.compile(r"<code>.*?</code>")
BREAK = re.compile("<br ?/?>")
LONGEST_WORD = 20
"""Columns that a column of text needs beside columns of numbers."""
SPACE, JOINING_SPACE = " ", "\N{NO-BREAK SPACE}"


def echo(text: object, *, err: bool = False) -> None:
    """Print text, which may be foreign, on standard output, or with `err` on standard error. Of
    its control characters, only line breaks and colours stay."""
    parts = COLOUR_CODES.split(str(text))
    # The parts with odd numbers are colours.
    parts[::2] = map(printable, parts[::2])
    click.echo("".join(parts), err=err)


def wrapped(line: str, indent: str = "") -> str:
    """Wrap `line` at WIDTH with `indent`; long words and commands stay whole, so that they can
    be pasted."""
    joined = COMMAND.sub(_joined, line)
    lines = textwrap.fill(
        joined,
        WIDTH,
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return lines.replace(JOINING_SPACE, SPACE)


def coloured(text: str) -> str:
    """Return text with its marks in colour; `echo` leaves colours out of files and pipes."""
    for mark, colour in COLOURS.items():
        text = text.replace(mark, click.style(mark, fg=colour))
    return text


def _joined(command: re.Match[str]) -> str:
    """Return a command as one word."""
    return command[0].replace(SPACE, JOINING_SPACE)


def tabulated(
    rows: Iterable[Sequence[str]],
    headings: Sequence[str],
    left: Collection[str] = (),
    wrap: Collection[str] = (),
    width: int = WIDTH,
) -> list[str]:
    """Return lines of a table of at most `width` characters, without colours. Columns with a
    heading in `wrap` wrap; those with one in `left` are aligned to the left, others to the
    right."""
    from rich.console import Console
    from rich.table import Table as Grid
    from rich.text import Text

    table = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in headings:
        side: Literal["left", "right"] = "left" if heading in left else "right"
        is_fixed = heading not in wrap
        table.add_column(heading, justify=side, no_wrap=is_fixed, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    written = StringIO()
    # Else FORCE_COLOR would add colours, and a kernel would display the table itself.
    Console(file=written, width=width, force_terminal=False, force_jupyter=False).print(table)
    return [line.rstrip() for line in written.getvalue().splitlines()]


# Sections.


def terminal_text(blocks: Iterable[Block]) -> str:
    """Return blocks as text; tables and headings have blank lines around them."""
    text = ""
    was_apart = False
    for block in blocks:
        lines = [*_lines_of(block)]
        if not lines:
            continue
        is_apart = not isinstance(block, Paragraph) or block.look == "note"
        if text:
            text += "\n\n" if is_apart or was_apart else "\n"
        text += "\n".join(lines)
        was_apart = is_apart
    return text


def _lines_of(block: Block) -> Iterable[str]:
    match block:
        case Paragraph(text) | Heading(text):
            return map(wrapped, _lines(text))
        case Bullets(items):
            return ["\n".join(wrapped(line, "  ") for line in _lines(item)) for item in items]
        case Verbatim(text):
            return text.splitlines()
        case Table():
            return _table(block)
        case Template(_html, text):
            return map(wrapped, text.splitlines())
        case Folded():
            return []


def _lines(text: Inline) -> list[str]:
    """Return the lines of inline text without elements; commands are one word each."""
    one_line = re.sub(r"\s+", " ", str(escape(text)))
    whole = CODE.sub(_joined, one_line)
    lines = [plain_text(Markup(line)).strip() for line in BREAK.split(whole)]
    return [*filter(None, lines)]


def _cell(cell: Markup | None) -> str:
    return DASH if cell is None else "\n".join(_lines(cell)).replace(JOINING_SPACE, SPACE)


def _table(table: Table) -> Iterable[str]:
    """Return the lines of a table; of one that is too wide and may be shown as cards, a
    paragraph for each row."""
    columns = [[_cell(cell) for cell in column.cells] for column in table.columns]
    rows = [*zip(*columns, strict=True)]
    caption = [*map(wrapped, _lines(table.caption))]
    if table.as_cards and not _fits(table.columns, columns):
        return caption + [_card(row, table.columns) for row in rows]
    return caption + _grid(rows, table.columns)


def _fits(columns: Sequence[Column], cells: Sequence[Sequence[str]]) -> bool:
    """Return whether there is room for all columns: for numbers in one line, for text in
    words."""
    needed = 2 * (len(columns) - 1)
    for column, texts in zip(columns, cells, strict=True):
        lines = [line for text in texts for line in [*text.split("\n"), column.label]]
        longest = max(map(len, lines))
        longest_word = max(len(word) for line in lines for word in [*line.split(), ""])
        usual = max(longest_word, min(longest, LONGEST_WORD))
        needed += longest if column.is_of_numbers else usual
    return needed <= WIDTH


def _card(row: Sequence[str], columns: Sequence[Column]) -> str:
    """Return a row as its name, the cells up to the first one with a heading, and below it the
    others with their headings."""
    texts = [text.replace("\n", " ") for text in row]
    count = 1 + sum(not column.label for column in columns)
    lines = [wrapped(" ".join(filter(None, texts[:count])))]
    for text, column in zip(texts[count:], columns[count:], strict=True):
        if text:
            lines.append(wrapped(f"{column.label}: {text}", "  "))
    return "\n".join(lines)


def _grid(rows: Iterable[Sequence[str]], columns: Sequence[Column]) -> list[str]:
    """Return the lines of a table with a column for each column."""
    headings = [column.label for column in columns]
    left = [column.label for column in columns if not column.is_of_numbers]
    return tabulated(rows, headings, left, wrap=left)
