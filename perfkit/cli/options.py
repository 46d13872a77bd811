"""Options, arguments and output shared by several commands."""

import os
import shlex
import textwrap
from collections.abc import Callable, Iterable
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import click
from pydantic import BaseModel

from perfkit.measuring.format import plain
from perfkit.measuring.paths import outputs_path
from perfkit.measuring.request import RequestError
from perfkit.measuring.request.plan import typed
from perfkit.measuring.work import COMMAND, KINDS, SCRIPT
from perfkit.report.terminal import coloured, echo
from perfkit.training.models import MODELS

if TYPE_CHECKING:
    import pandas as pd

    from perfkit.report.section import Section

STOPPED = "Interrupted; the same command continues."
INTERRUPTED = 130
"""Exit status of an interrupted command."""
TOO_LITTLE_MEMORY = "out_of_memory: the memory limit of perfkit is too low (ulimit -v)"
"""Replaces Python's MemoryError, which has no text."""

Values = dict[str, Any]
"""Parameters by name, typed as in the notebooks."""
HELP = textwrap.TextWrapper(76, "  ", "      ", break_on_hyphens=False)
"""Wraps the paragraph of a parameter."""
DASHES = "--"
"""Separates a script's arguments from those of perfkit."""
TYPED = "perfkit.typed"
"""Key of a command's arguments as typed in the context's `meta`."""
ARGUMENTS_FOLLOW = "The arguments of a script follow --, after those of perfkit"


class Request(NamedTuple):
    """The notebook that a command names: a model, "script" or the path of one, and the values
    that it sets."""

    notebook: str
    values: Values


def request_of(name: str, arguments: str | None, values: Values) -> Request:
    """Return the request of a command for a model, a notebook or a script of this name, or for
    `command=…`; a script's `arguments` are None if none were typed, those of "command" are the
    command that trains. Raises UsageError for arguments that nothing takes."""
    is_script = name.endswith(".py")
    if name.startswith(f"{COMMAND}="):
        name, _is, arguments = name.partition("=")
    if name == COMMAND and arguments is not None:
        return Request(COMMAND, {COMMAND: arguments} | values)
    if arguments is not None:
        if not is_script and name != SCRIPT and not name.endswith(".ipynb"):
            raise click.UsageError(f"{name} takes no arguments after {DASHES}; a script does")
        if "arguments" in values:
            raise click.UsageError(f"both -p arguments and {DASHES}; keep one")
        values = {"arguments": arguments} | values
    if not is_script:
        return Request(name, values)
    if "script" in values:
        raise click.UsageError(f"both {name} and -p script; keep one")
    return Request(SCRIPT, {"script": name} | values)


def separated(arguments: list[str]) -> list[str]:
    """Return the arguments with each `-p NAME=VALUE` split into `-p NAME VALUE`, except those
    of a script, after `--`. Raises UsageError for a last NAME without a value."""
    words: list[str] = []
    own, of_script = split_at_dashes(arguments)
    for argument in own:
        follows_p = words[-1:] == ["-p"]
        words += argument.split("=", 1) if follows_p else [argument]
    if words[-2:-1] == ["-p"]:
        raise click.UsageError(f"-p {words[-1]}: no value; -p NAME=VALUE or -p NAME VALUE")
    return [*words, *arguments[len(own) : len(own) + 1], *of_script]


def split_at_dashes(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Return the arguments before the first `--`, and those after it."""
    count = len(arguments)
    if DASHES in arguments:
        count = arguments.index(DASHES)
    return arguments[:count], arguments[count + 1 :]


class ScriptCommand(click.Command):
    """A command that takes a script's arguments after `--`, or a whole command line if no work
    stands before it."""

    def parse_args(self, context: click.Context, arguments: list[str]) -> list[str]:
        context.meta[TYPED] = [*arguments]
        return super().parse_args(context, arguments)


class RunCommand(ScriptCommand):
    """A command whose help lists the parameters of the model or script named."""

    def format_epilog(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        command = copy(self)
        for word in context.meta.get(TYPED, ()):
            work = SCRIPT if word.endswith(".py") else word
            if work in (*MODELS, *KINDS):
                command.epilog = f"{parameter_list(work)}\n\n{exit_statuses()}"
                break
        click.Command.format_epilog(command, context, formatter)


def after_dashes(
    context: click.Context, _argument: click.Parameter, words: tuple[str, ...]
) -> str | None:
    """click callback: return a script's arguments, which follow `--`, on one line, quoted as in
    a shell; None without `--`. Without a work before it, they are a command's. Raises
    UsageError for further words before it."""
    typed: list[str] = context.meta[TYPED]
    _before, of_script = split_at_dashes(typed)
    if [context.params["model"], *words] == of_script:
        context.params["model"] = COMMAND
        return shlex.join(of_script)
    if [*words] != of_script:
        problem = f"Got unexpected extra argument ({words[0]})" if words else "-- before SCRIPT"
        first = context.params["model"]
        advice = f"{ARGUMENTS_FOLLOW}: {DASHES} {shlex.join(words)}"
        if words and "=" in words[0]:
            advice = f"Parameters need -p: -p {words[0]}"
        elif words and first not in MODELS and not first.endswith(".py"):
            advice = f"A command follows --: {DASHES} {shlex.join([first, *words])}"
        raise click.UsageError(f"{problem}\n{advice}")
    return shlex.join(words) if DASHES in typed else None


def outputs_folder(_context: click.Context, _option: click.Parameter, value: str) -> Path:
    """click callback: return the absolute path of a folder of results."""
    return outputs_path(value)


def exit_statuses(failure: str = "failure") -> str:
    return f"Exit status: 0 success; 1 {failure}; 2 invalid request; 130 interrupted."


def command(kind: type[click.Command] = click.Command, **statuses: str) -> Callable[..., Any]:
    """Return a click command whose help ends with exit statuses; `failure` is that of 1."""
    return click.command(cls=kind, epilog=exit_statuses(**statuses))


class Percentage(click.FloatRange):
    """A number that a percent sign may follow: 5, '5 %'."""

    def convert(
        self, value: Any, param: click.Parameter | None, context: click.Context | None
    ) -> Any:
        number: Any = str(value).removesuffix("%")
        return super().convert(number, param, context)


def percent(
    flag: str, default: float, meaning: str, low: float = 0, high: float = 100
) -> Callable[..., Any]:
    """Return a percentage option from `low` to below `high`; its value is a fraction of 1."""
    limits = Percentage(low, high, max_open=True)

    def fraction(_context: click.Context, _option: click.Parameter, value: float) -> float:
        return value / 100

    return click.option(
        flag,
        type=limits,
        default=default,
        metavar="PERCENT",
        callback=fraction,
        help=meaning,
    )


def typed_values(
    _context: click.Context, _option: click.Parameter, pairs: list[tuple[str, str]]
) -> Values:
    """click callback: return parameters by name with the types of their values."""
    return {name: typed(name, text) for name, text in pairs}


SCRIPT_ARGUMENTS = click.argument(
    "arguments", nargs=-1, metavar="[-- ARGUMENTS]", callback=after_dashes
)
MODEL = click.argument("model", metavar="|".join(MODELS))
PARAMETERS = click.option(
    "-p",
    "values",
    nargs=2,
    multiple=True,
    metavar="NAME VALUE",
    callback=typed_values,
    help="Set a parameter, also as NAME=VALUE; repeatable.",
)
OUTPUTS = click.option(
    "--outputs",
    default="outputs",
    metavar="FOLDER",
    callback=outputs_folder,
    help="Folder of measurements and pages.",
)
JSON_FILE = click.option(
    "--json", "file", metavar="FILE", help="Also write the result as JSON; - for stdout."
)


def fail(problem: object, status: int) -> NoReturn:
    """Print a problem and exit with `status`."""
    echo(problem, err=True)
    raise SystemExit(status)


def print_left_out(reasons: Iterable[str]) -> None:
    """Print why results were left out, a line for each."""
    for reason in reasons:
        echo(plain(f"left out: {reason}"), err=True)


def load_checked(outputs: Path) -> "pd.DataFrame":
    """Return the measurements under `outputs` that agree with their raw files, and print why
    others were left out. Raises RequestError if there is no such folder."""
    from perfkit.measuring.results.outputs import load
    from perfkit.measuring.results.store import ResultError

    try:
        frame = load(outputs, check=True)
    except ResultError as error:
        problem = f"OUTPUTS: {error}; measure first: perfkit run resnet50"
        raise RequestError([problem]) from None
    print_left_out(frame.attrs["unreadable"])
    return frame


def print_step(text: str) -> None:
    """Print the current step of a command."""
    echo(f"{text} …", err=True)


def print_section(section: "Section", *, err: bool = False) -> None:
    """Print a section with its marks in colour."""
    echo(coloured(section.text), err=err)


def print_result(result: BaseModel, file: str | None, section: "Section") -> None:
    """Print the section of a result; write its JSON to `file`, `-` for stdout."""
    content = result.model_dump_json(indent=1)
    print_section(section, err=file == "-")
    if file == "-":
        click.echo(content)
    elif file:
        # The user chose this path: links in it are followed, pipes and devices written to.
        path = Path(os.path.realpath(file))
        try:
            _write_json(path, f"{content}\n")
        except OSError as error:
            fail(f"--json {path}: {error.strerror}", 2)


def _write_json(path: Path, content: str) -> None:
    from perfkit.measuring.results.store import write_atomically

    if path.exists() and not path.is_file():
        path.write_text(content, encoding="utf-8")
    else:
        write_atomically(path, content)


def parameter_list(work: str) -> str:
    """Return a paragraph per parameter that a model, or a script, takes."""
    from perfkit.measuring.request.described import described

    lines = ["\b", f"Parameters of notebooks/{work}.ipynb:"]
    for each in described(work):
        lines += HELP.wrap(f"{each.name}={each.default!r}: {each.text}")
    return "\n".join(lines)
