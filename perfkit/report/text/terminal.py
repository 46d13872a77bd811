"""Prints to terminals; text and tables wrapped for them."""

import re
import textwrap
from collections.abc import Iterable, Sequence
from io import StringIO

import click

from perfkit.analysis.verdicts import Verdict
from perfkit.measuring.format import printable

WIDTH = 80
COMMAND = re.compile(
    r"(^|(?<=[:;] ))perfkit [a-z]+ .*|-p \w+ \S+|(--\w+ \w+ ?)+$"
    r"|(conda env|docker run|pip install|\S+ -m pip) [^;]*"
)
"""A command or its options, up to the end of a text. A command of perfkit begins the text or
follows a colon or a semicolon."""
COLOURS: dict[Verdict, str] = {
    "faster": "green",
    "slower": "red",
    "no difference": "green",
    "undecided": "bright_black",
}
"""Verdict -> its colour on a terminal: green only for what is decided, grey for can't tell."""
COLOUR_CODES = re.compile(r"(\x1b\[(?:0|31|32|90)m)")
"""What `click.style` writes for green, red and grey, and at their end."""
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


def coloured(text: str, verdict: Verdict) -> str:
    """Return text in the colour of a verdict; `echo` leaves it out of files and pipes."""
    return click.style(text, fg=COLOURS[verdict])


def fitted(text: str, indent: str = "") -> list[str]:
    """Return the lines of foreign `text` wrapped at WIDTH with `indent`; words that are longer
    are broken."""
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_on_hyphens=False,
    )


def _joined(command: re.Match[str]) -> str:
    """Return a command as one word."""
    return command[0].replace(SPACE, JOINING_SPACE)


def tabulated(
    rows: Iterable[Sequence[str]],
    headings: Sequence[str],
    left: Sequence[str] = (),
    folded: int = 1,
    width: int = WIDTH,
) -> list[str]:
    """Return lines of a table of at most `width` characters, without colours. The first
    `folded` columns wrap; the others are aligned to the right, except headings in `left`."""
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
    # Else FORCE_COLOR would add colours, and a kernel would display the table itself.
    Console(file=written, width=width, force_terminal=False, force_jupyter=False).print(table)
    return [line.rstrip() for line in written.getvalue().splitlines()]
