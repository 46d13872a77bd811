"""The command `perfkit`.

measure.py   run, sweep, doctor, samples, report
notebook.py  reads a model's notebook and runs it through papermill
compare.py   compare, history
fleet.py     fleet
judge.py     verify, diagnose
frameworks_option.py  the configurations that verify compares
audit.py     audit
options.py   shared options and output
__main__.py  the command by `python -m perfkit.cli`
"""

import errno
import sys
from io import TextIOWrapper
from typing import Any

import click
from pydantic_core import SchemaError

from perfkit.cli.audit import audit
from perfkit.cli.compare import compare, history
from perfkit.cli.fleet import fleet
from perfkit.cli.judge import diagnose, verify
from perfkit.cli.measure import doctor, report, run, samples, sweep
from perfkit.cli.options import (
    ARGUMENTS_FOLLOW,
    DASHES,
    INTERRUPTED,
    STOPPED,
    TOO_LITTLE_MEMORY,
    exit_statuses,
    fail,
    separated,
)
from perfkit.measuring.request import RequestError
from perfkit.report.terminal import wrapped

UNUSABLE = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.EEXIST}
UNUSABLE |= {errno.ENAMETOOLONG, errno.ELOOP}
"""Errors caused by a path in the request."""
FULL = {errno.ENOSPC, errno.EDQUOT}
"""Errors of a full disk, or of the user's exhausted quota on it."""


class Commands(click.Group):
    """Commands in the order of use. Errors of a request or a machine are reported by a sentence
    and the exit status, without a stack trace. `-p NAME=VALUE` means `-p NAME VALUE`; the
    context's `obj` has the arguments as typed."""

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        # click would truncate summaries to one line.
        rows = [(n, c.get_short_help_str(limit=200)) for n, c in self.commands.items()]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def parse_args(self, context: click.Context, arguments: list[str]) -> list[str]:
        context.obj = arguments
        # As stderr has it: a terminal of another encoding shows \\u2013 instead of a dash.
        if isinstance(sys.stdout, TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")
        return super().parse_args(context, separated(arguments))

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except RequestError as error:
            problems = [wrapped(problem, "  ") for problem in error.problems]
            fail("\n".join([error.heading, *problems]), 2)
        except click.NoSuchOption as error:
            raise _with_advice(error, context.obj) from None
        except RuntimeError as error:
            from perfkit.measuring.driver.repeat import TaskError

            if not isinstance(error, TaskError):
                raise
            fail(error, 1)
        # Pydantic makes a SchemaError of an interrupt during an import.
        except (KeyboardInterrupt, SchemaError):
            fail(STOPPED, INTERRUPTED)
        except MemoryError:
            fail(TOO_LITTLE_MEMORY, 1)
        except OSError as error:
            _fail_by(error)
            raise


def _with_advice(error: click.NoSuchOption, arguments: list[str]) -> click.UsageError:
    """Return the error, with advice if it is about an option of a script without `--`, or an
    argument typed as an option."""
    names_script = any(word.endswith(".py") for word in arguments)
    if names_script and DASHES not in arguments:
        # Without click's guess at which of perfkit's own options is meant.
        advice = f"{error.message}\n{ARGUMENTS_FOLLOW}: -- {error.option_name}"
        return click.UsageError(advice, error.ctx)
    if error.ctx:
        for parameter in error.ctx.command.params:
            if error.option_name == f"--{parameter.name}":
                usage = f"{error.ctx.command_path} {str(parameter.name).upper()}"
                return click.UsageError(f"{error.message} Type: {usage}", error.ctx)
    return error


def _fail_by(error: OSError) -> None:
    """Exit with a sentence if the error comes from a path or a full or failing disk."""
    if error.errno in UNUSABLE and error.filename:
        fail(f"{error.filename}: {error.strerror}; use another path", 2)
    if error.errno in FULL:
        advice = "Stored results are kept. Free disk space and try again."
        fail(f"The disk is full: {error}\n{advice}", 1)
    if error.filename:
        # A failing disk, or a folder removed during the run.
        problem = f"{error.filename}: {error.strerror}"
        fail(f"{problem}\nStored results are kept.", 1)


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
    epilog=exit_statuses(),
)
@click.version_option(package_name="perfkit")
def main() -> None:
    """Reproducible reports on deep-learning training throughput."""


COMMANDS = [run, sweep, report, compare, history, fleet, verify, diagnose, audit]
for command in [*COMMANDS, doctor, samples]:
    main.add_command(command)
