"""What commands say at their end."""

from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

if TYPE_CHECKING:
    from perfkit.audit.stored import Audit
    from perfkit.comparison import Comparison
    from perfkit.comparison.live.stored import LiveComparison


def complain(problem: object) -> None:
    """Print what is wrong, in which names and words of a file may be: as text and no more."""
    from perfkit.words.lines import printable

    click.echo(printable(str(problem)), err=True)


def refuse(error: ValueError) -> NoReturn:
    """End with 2, for a request that was wrong."""
    complain(error)
    raise SystemExit(2)


def number_words(folder: Path) -> str:
    """The measured number in words."""
    from perfkit.results.files import read_result
    from perfkit.words.wording import number, percent

    found = read_result(folder / "result.json").throughput
    assert found
    words = f"{number(found.value)} {found.unit}, {found.statistic} of n={found.n}"
    if found.interval and found.interval_level:
        low, high = map(number, found.interval)
        words += f"; {percent(found.interval_level, 4)} interval {low} to {high}"
    return words


def tell(found: "Comparison | LiveComparison | Audit", file: str | None) -> None:
    """Print a comparison or an audit, and write it as JSON where that was asked for."""
    from perfkit.results.files import write_atomically

    path = Path(file).absolute() if file and file != "-" else None
    try:
        if path:
            write_atomically(path, found.model_dump_json(indent=1) + "\n")
    except OSError as error:
        refuse(ValueError(f"--json {path}: {error.strerror}"))
    if file == "-":
        click.echo(found.model_dump_json(indent=1))
    click.echo(found, err=file == "-")
