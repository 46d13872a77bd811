"""`perfkit report`: the site, from stored results alone."""

import sys
from pathlib import Path

import click

from perfkit.cli.options import from_here
from perfkit.cli.telling import complain, refuse
from perfkit.request.errors import RequestError


@click.command(
    epilog="\b\nExit status: 0 done, what was left out is named; 2 the request was wrong."
)
@click.argument("outputs", default="outputs", callback=from_here)
def report(outputs: Path) -> None:
    """Write the site of all measurements under OUTPUTS again, from stored results alone.

    That is index.html, a page for each measurement, interleaved comparison and audit, the
    summary, the published tables, results.csv and results.json; pages in English and Chinese.
    Needs neither a framework nor DALI.
    """
    from perfkit.report.site import parts, write_site

    if not outputs.is_dir():
        refuse(RequestError([f"OUTPUTS: no folder {outputs}; measure first: make report"]))
    with click.progressbar(length=parts(outputs), label="Pages", file=sys.stderr) as bar:
        index, left_out = write_site(outputs, bar.update)
    for reason in left_out:
        complain(f"left out: {reason}")
    click.echo(index)
