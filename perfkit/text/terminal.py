"""Text as lines of a terminal."""

import textwrap
from io import StringIO
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

WIDTH = 80


def wrapped(line: str, indent: str = "") -> str:
    """`line` in lines of WIDTH, at `indent`; words longer than that stay whole."""
    return textwrap.fill(
        line,
        WIDTH,
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def table_lines(table: "Table") -> list[str]:
    """`table` in lines of at most WIDTH, without colours."""
    from rich.console import Console

    written = StringIO()
    Console(file=written, width=WIDTH, highlight=False).print(table)
    return [line.rstrip() for line in written.getvalue().splitlines()]


def plain(text: str) -> str:
    """Foreign text on one line, without what would steer the terminal."""
    return printable(" ".join(text.split()))


def printable(text: str) -> str:
    """Text with its lines, without what would steer the terminal."""
    return "".join(
        one if one.isprintable() or one == "\n" else "\N{REPLACEMENT CHARACTER}" for one in text
    )
