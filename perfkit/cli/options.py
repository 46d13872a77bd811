"""Options, arguments and output that several commands share."""

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
from click.core import ParameterSource
from pydantic import BaseModel

from perfkit.config import parameters, resolved_path, typed_path
from perfkit.models import MODELS
from perfkit.request import RequestError
from perfkit.request.plan import typed

if TYPE_CHECKING:
    import pandas as pd

STOPPED = "Interrupted; the same command goes on from here."
TOO_LITTLE_MEMORY = "out_of_memory: perfkit itself may use too little (ulimit -v)"
"""Instead of Python's own error, which has no text."""

Values = dict[str, Any]
"""Parameters by name, each with the type that it has in the notebooks."""


def separated(arguments: list[str]) -> list[str]:
    """The arguments with `-p NAME=VALUE` as `-p NAME VALUE`."""
    found: list[str] = []
    for argument in arguments:
        found += argument.split("=", 1) if found[-1:] == ["-p"] else [argument]
    return found


def from_here(context: click.Context, option: click.Parameter, value: str) -> Path:
    """A click callback: a folder that was typed starts in the working directory, a default at
    the checkout."""
    typed = context.get_parameter_source(option.name or "") == ParameterSource.COMMANDLINE
    return resolved_path(typed_path(value) if typed else value)


def exit_statuses(failure: str = "a run failed") -> str:
    return f"\b\nExit status: 0 done, 1 {failure}, 2 the request was wrong."


def command(name: str | None = None, **statuses: str) -> Callable[..., Any]:
    """A command whose help ends with its exit statuses; `failure` is the meaning of 1."""
    return click.command(name, epilog=exit_statuses(**statuses))


def percent(
    flag: str, default: float, meaning: str, low: float = 0, high: float = 100
) -> Callable[..., Any]:
    """An option of a percentage, from `low` to below `high`, as a share of 1."""
    return click.option(
        flag,
        type=click.FloatRange(low, high, max_open=True),
        default=default,
        metavar="PERCENT",
        callback=lambda _context, _option, given: given / 100,
        help=meaning,
    )


def parameters_option(type_of: Callable[[str, str], Any]) -> Callable[..., Any]:
    """`-p NAME VALUE`, many times, as a dict of values as `type_of` makes them."""
    return click.option(
        "-p",
        "values",
        nargs=2,
        multiple=True,
        metavar="NAME VALUE",
        callback=lambda _context, _option, given: {n: type_of(n, v) for n, v in given},
        help="Set a parameter, as NAME VALUE or NAME=VALUE; may be given many times.",
    )


MODEL = click.argument("model", metavar="|".join(MODELS))
PARAMETERS = parameters_option(typed)
OUTPUTS = click.option(
    "--outputs",
    default="outputs",
    metavar="FOLDER",
    callback=from_here,
    help="The folder of measurements and pages.",
)
JSON_FILE = click.option(
    "--json", "file", metavar="FILE", help="Write all of it as JSON too; - for the output."
)


def print_error(problem: object) -> None:
    """Print a problem, in which names and text of files may be: as text and no more."""
    from perfkit.text.terminal import printable

    click.echo(printable(str(problem)), err=True)


def fail(problem: object, status: int) -> NoReturn:
    """Print a problem and exit with `status`."""
    print_error(problem)
    raise SystemExit(status)


def load(outputs: str | Path) -> "pd.DataFrame":
    """The measurements under `outputs`, of which those left out are printed. Raises
    RequestError if there is no such folder."""
    from perfkit.results.frames import load
    from perfkit.results.store import ResultError

    try:
        frame = load(outputs)
    except ResultError as error:
        problem = f"OUTPUTS: {error}; measure first: perfkit run resnet50"
        raise RequestError([problem]) from None
    for reason in frame.attrs["unreadable"]:
        print_error(f"left out: {reason}")
    return frame


def print_step(text: str) -> None:
    """Print what is being done now."""
    click.echo(f"{text} …", err=True)


def print_result(found: BaseModel, file: str | None, text: str | None = None) -> None:
    """Print a result, as `text` or by itself, and write it as JSON where `--json` asks for
    that."""
    from perfkit.results.store import write_atomically

    content = found.model_dump_json(indent=1)
    if file == "-":
        click.echo(content)
    elif file:
        try:
            write_atomically(Path(file).absolute(), f"{content}\n")
        except OSError as error:
            fail(f"--json {Path(file).absolute()}: {error.strerror}", 2)
    click.echo(text or found, err=file == "-")


def parameter_list() -> str:
    """The parameters, one a line, for `perfkit run --help`."""
    wrapper = textwrap.TextWrapper(76, "  ", "      ", break_on_hyphens=False)
    lines = ["\b", "Parameters, as in the notebook:"]
    for name, (default, meaning) in parameters().items():
        lines += wrapper.wrap(f"{name}={default!r}: {meaning}")
    return "\n".join(lines)
