"""Options and arguments that several commands have."""

import textwrap
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from perfkit.config import parameters, resolved_path, typed_path
from perfkit.models import MODELS
from perfkit.request.plan import typed

EPILOG = """\b
Exit status: 0 done, 1 a run failed, 2 the request was wrong."""

Given = tuple[tuple[str, str], ...]
"""What `-p NAME VALUE` gives, in its order."""

MODEL = click.argument("model", metavar="|".join(MODELS))
PARAMETERS = click.option(
    "-p",
    "given",
    nargs=2,
    multiple=True,
    metavar="NAME VALUE",
    help="Set a parameter, as NAME VALUE or NAME=VALUE; may be given many times.",
)
JSON_FILE = click.option(
    "--json", "file", metavar="FILE", help="Write all of it as JSON too; - for the output."
)

FORMAT_REGEX = click.option(
    "--format-regex",
    "regex",
    metavar="REGEX",
    help="The logs are in another format, whose prints this matches. Its named groups "
    "say what they hold, with the unit: step, seconds, milliseconds, steps_per_second, "
    "window_seconds, rate, reader, loss, epoch, rank, at, clock. <step> is short for a group "
    "of digits, <seconds> for a group of a number.",
)
FORMAT_OPTIONS = click.option(
    "--format-options",
    "options",
    default="",
    metavar="NAME=VALUE…",
    help="What these mean, as in 'rate_of=all covers=window counts_from=1 reader=in "
    "unit=images/s'; a rate needs rate_of.",
)


def typed_values(given: Given) -> dict[str, Any]:
    """Parameters by name, each with the type that it has in the notebooks; a relative path
    starts in the working directory."""
    return {name: typed(name, value) for name, value in given}


def separated(arguments: list[str]) -> list[str]:
    """The arguments with `-p NAME=VALUE` as `-p NAME VALUE`."""
    found: list[str] = []
    for argument in arguments:
        follows = found[-1:] == ["-p"]
        found += argument.split("=", 1) if follows and "=" in argument else [argument]
    return found


def from_here(context: click.Context, option: click.Parameter, value: str) -> Path:
    """A click callback: a folder that was typed starts in the working directory, a default at
    the checkout."""
    typed = context.get_parameter_source(option.name or "") == ParameterSource.COMMANDLINE
    return resolved_path(typed_path(value) if typed else value)


def _parameter_list() -> str:
    """The parameters, one a line, for `perfkit run --help`."""
    lines = []
    for name, (default, meaning) in parameters().items():
        text = f"{name}={default!r}: {meaning}"
        wrapper = textwrap.TextWrapper(76, "  ", "      ", break_on_hyphens=False)
        lines += wrapper.wrap(text)
    return "\b\nParameters, as in the notebook:\n" + "\n".join(lines) + "\n\n"


PARAMETER_LIST = _parameter_list()
