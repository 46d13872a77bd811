"""`perfkit …`: thin commands over the modules that do the work, a file for each."""

import errno
from typing import Any

import click

from perfkit.cli.audit import audit
from perfkit.cli.compare import compare
from perfkit.cli.diagnose import diagnose
from perfkit.cli.doctor import doctor
from perfkit.cli.export import export
from perfkit.cli.history import history
from perfkit.cli.import_ import import_
from perfkit.cli.manifest import manifest
from perfkit.cli.options import EPILOG, separated
from perfkit.cli.report import report
from perfkit.cli.run import run
from perfkit.cli.samples import samples
from perfkit.cli.sweep import sweep
from perfkit.cli.telling import complain
from perfkit.cli.verify import verify
from perfkit.config import portable

UNUSABLE = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.EEXIST}
UNUSABLE |= {errno.ENAMETOOLONG, errno.ELOOP}
"""Errors of files and folders that a request named."""


class _Commands(click.Group):
    """Commands that end with a sentence where a disk is full (1) or a file or folder can't be
    used (2): no stack tells more. `-p NAME=VALUE` is the same as `-p NAME VALUE`."""

    def parse_args(self, context: click.Context, arguments: list[str]) -> list[str]:
        return super().parse_args(context, separated(arguments))

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except OSError as error:
            from perfkit.results.store import NO_ROOM

            if error.errno in UNUSABLE and error.filename:
                complain(f"{portable(str(error.filename))}: {error.strerror}; name another one")
                raise SystemExit(2) from None
            if error.errno not in NO_ROOM:
                raise
            click.echo(f"disk_full: {portable(str(error))}", err=True)
            click.echo("What was measured is kept. Make room, and try again.", err=True)
            raise SystemExit(1) from None


@click.group(
    cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]}, epilog=EPILOG
)
@click.version_option(package_name="perfkit")
def main() -> None:
    """Reproducible reports on deep-learning training throughput."""


for command in (run, sweep, manifest, samples, doctor):
    main.add_command(command)
for command in (report, compare, history, diagnose, verify, audit, import_, export):
    main.add_command(command)
