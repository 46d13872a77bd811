"""What commands say at their end."""

from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

if TYPE_CHECKING:
    from perfkit.comparison import Comparison
    from perfkit.comparison.history import History
    from perfkit.comparison.live.stored import LiveComparison
    from perfkit.logs.audit import Audit


def complain(problem: object) -> None:
    """Print what is wrong, in which names and words of a file may be: as text and no more."""
    from perfkit.text.terminal import printable

    click.echo(printable(str(problem)), err=True)


def refuse(error: ValueError) -> NoReturn:
    """End with 2, for a request that was wrong."""
    complain(error)
    raise SystemExit(2)


def tell(
    found: "Comparison | LiveComparison | Audit | History",
    file: str | None,
    text: str | None = None,
) -> None:
    """Print a comparison or an audit, as `text` or by itself, and write it as JSON where that
    was asked for."""
    from perfkit.results.store import write_atomically

    path = Path(file).absolute() if file and file != "-" else None
    try:
        if path:
            write_atomically(path, found.model_dump_json(indent=1) + "\n")
    except OSError as error:
        refuse(ValueError(f"--json {path}: {error.strerror}"))
    if file == "-":
        click.echo(found.model_dump_json(indent=1))
    click.echo(text or found, err=file == "-")
