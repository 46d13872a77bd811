"""`perfkit …`: thin commands over the modules that do the work.

measure.py   run, sweep, doctor, samples, manifest, report
notebook.py  a model's notebook, read and run through papermill
compare.py   compare, history, verify, diagnose
logs.py      audit, import, export
options.py   options and output that several commands share
"""

import errno
from typing import Any

import click

from perfkit.cli.compare import compare, diagnose, history, verify
from perfkit.cli.logs import audit, export, import_
from perfkit.cli.measure import doctor, manifest, report, run, samples, sweep
from perfkit.cli.options import TOO_LITTLE_MEMORY, exit_statuses, fail, separated
from perfkit.config import portable
from perfkit.request import RequestError

UNUSABLE = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.EEXIST}
UNUSABLE |= {errno.ENAMETOOLONG, errno.ELOOP}
"""Errors of files and folders that a request named."""


class Commands(click.Group):
    """Commands in the order of use. What is wrong with a request or a machine is reported in a
    sentence and by the exit status, without a stack. `-p NAME=VALUE` means `-p NAME VALUE`; the
    words as they were typed are the context's `obj`."""

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        # click cuts a summary off where its line ends.
        rows = [(n, c.get_short_help_str(limit=200)) for n, c in self.commands.items()]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def parse_args(self, context: click.Context, arguments: list[str]) -> list[str]:
        context.obj = arguments
        return super().parse_args(context, separated(arguments))

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except RequestError as error:
            fail(error, 2)
        except RuntimeError as error:
            from perfkit.driver.repeat import TaskError

            if not isinstance(error, TaskError):
                raise
            fail(error, 1)
        except MemoryError:
            fail(TOO_LITTLE_MEMORY, 1)
        except OSError as error:
            from perfkit.results.store import NO_ROOM

            if error.errno in UNUSABLE and error.filename:
                fail(f"{portable(str(error.filename))}: {error.strerror}; name another one", 2)
            if error.errno in NO_ROOM:
                room = "What was measured is kept. Make room, and try again."
                fail(f"disk_full: {portable(str(error))}\n{room}", 1)
            if not error.filename:
                raise
            # The disk fails, or a folder was removed meanwhile.
            fail(f"{portable(str(error))}\nWhat was stored is kept.", 1)


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
    epilog=exit_statuses(),
)
@click.version_option(package_name="perfkit")
def main() -> None:
    """Reproducible reports on deep-learning training throughput."""


for command in (run, sweep, report, compare, history, verify, diagnose, audit, import_, export):
    main.add_command(command)
for command in (doctor, samples, manifest):
    main.add_command(command)
