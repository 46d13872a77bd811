"""Text as lines of a terminal."""

import textwrap
from collections.abc import Iterable, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

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


def tabulated(
    rows: Iterable[Sequence[str]],
    headings: Sequence[str],
    left: Sequence[str] = (),
    folded: int = 1,
) -> list[str]:
    """The rows as a table in lines of at most WIDTH, without colours: the first columns folded,
    the others to the right but for those with a heading in `left`."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in headings[:folded]:
        table.add_column(heading, overflow="fold")
    for heading in headings[folded:]:
        table.add_column(heading, justify="left" if heading in left else "right", no_wrap=True)
    for row in rows:
        table.add_row(*map(Text, row))
    written = StringIO()
    Console(file=written, width=WIDTH, highlight=False).print(table)
    return [line.rstrip() for line in written.getvalue().splitlines()]


def laid_out(file: Path, macro: str, shown: Any, **names: Any) -> str:
    """What `macro` of a template makes of `shown`. Templates have the filters `wrapped`,
    `number` and `percent`, and these `names`."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    from perfkit.text.format import number, percent

    environment = Environment(
        loader=FileSystemLoader(file.parent),
        extensions=["jinja2.ext.do"],
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"wrapped": wrapped, "number": number, "percent": percent}
    module = environment.get_template(file.name, globals=names).module
    return str(getattr(module, macro)(shown)).strip("\n")


def plain(text: str) -> str:
    """Foreign text on one line, without what would steer the terminal."""
    return printable(" ".join(text.split()))


def printable(text: str) -> str:
    """Text with its lines, without what would steer the terminal."""
    return "".join(
        one if one.isprintable() or one == "\n" else "\N{REPLACEMENT CHARACTER}" for one in text
    )
