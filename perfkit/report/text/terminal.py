"""Text and tables wrapped for a terminal."""

import re
import textwrap
from collections.abc import Iterable, Sequence
from functools import cache
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Template

WIDTH = 80
VERBS = (
    *("run", "sweep", "report", "compare", "history", "verify", "diagnose"),
    *("audit", "doctor", "samples"),
)
"""The commands; the CLI imports this module, not the reverse."""
COMMAND = re.compile(
    rf"perfkit ({'|'.join(VERBS)}) .*|-p \w+ \S+|(--\w+ \w+ ?)+$"
    r"|(conda env|docker run|\S+ -m pip) [^;]*"
)
"""A command or its options, up to the end of a text."""


def wrapped(line: str, indent: str = "") -> str:
    """Wrap `line` at WIDTH with `indent`; long words and commands stay whole, so that they can
    be pasted."""
    space, kept = " ", "\N{NO-BREAK SPACE}"
    return textwrap.fill(
        COMMAND.sub(lambda found: found[0].replace(space, kept), line),
        WIDTH,
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
    ).replace(kept, space)


def tabulated(
    rows: Iterable[Sequence[str]],
    headings: Sequence[str],
    left: Sequence[str] = (),
    folded: int = 1,
) -> list[str]:
    """Return lines of a table of at most WIDTH characters, without colours. The first `folded`
    columns wrap; the others are aligned to the right, except headings in `left`."""
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
    Console(file=written, width=WIDTH, force_terminal=False, force_jupyter=False).print(table)
    return [line.rstrip() for line in written.getvalue().splitlines()]


def laid_out(file: Path, macro: str, shown: Any, **names: Any) -> str:
    """Render `macro` of a template with `shown`. The template has the filters `wrapped`,
    `number` and `percent`, and the globals `names`."""
    module = _template(file).make_module(names)
    return str(getattr(module, macro)(shown)).strip("\n")


@cache
def _template(file: Path) -> "Template":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    from perfkit.core.format import number, percent

    environment = Environment(
        loader=FileSystemLoader(file.parent),
        extensions=["jinja2.ext.do"],
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"wrapped": wrapped, "number": number, "percent": percent}
    return environment.get_template(file.name)
