"""`perfkit …`: thin commands over the modules that do the work, a file for each."""

from typing import Any

import click

from perfkit.cli.audit import audit
from perfkit.cli.compare import compare
from perfkit.cli.diagnose import diagnose
from perfkit.cli.doctor import doctor
from perfkit.cli.export import export
from perfkit.cli.import_ import import_
from perfkit.cli.manifest import manifest
from perfkit.cli.options import EPILOG
from perfkit.cli.report import report
from perfkit.cli.run import run
from perfkit.cli.samples import samples
from perfkit.cli.sweep import sweep
from perfkit.cli.verify import verify
from perfkit.config import portable


class _Commands(click.Group):
    """Commands that end with 1 and a word where a disk is full: no stack tells more."""

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except OSError as error:
            from perfkit.results.files import NO_ROOM

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
for command in (report, compare, diagnose, verify, audit, import_, export):
    main.add_command(command)
