"""`perfkit doctor`: what would keep a measurement from running."""

import textwrap

import click

from perfkit.cli.options import EPILOG, PARAMETER_LIST, PARAMETERS, Given, typed_values
from perfkit.cli.telling import refuse
from perfkit.models import MODELS
from perfkit.request.errors import RequestError
from perfkit.request.plan import plan


@click.command(epilog=PARAMETER_LIST + EPILOG)
@click.argument("model", metavar="|".join(MODELS), default="resnet50")
@PARAMETERS
def doctor(model: str, given: Given) -> None:
    """See what would keep a measurement of MODEL from running, before it starts.

    Takes what `perfkit run` takes: versions, data and room on this machine; with nodes, that
    all of them come, are alike, and reach each other. Ends with 1 if something is amiss.
    """
    try:
        planned = plan(model, typed_values(given))
        from perfkit.driver.doctor import examine_plan

        well = True
        for check in examine_plan(planned):
            word = {
                True: click.style("ok  ", fg="green"),
                False: click.style("FAIL", fg="red"),
                None: "-   ",
            }[check.well]
            indent = " " * 6
            text = textwrap.fill(f"{check.subject}: {check.seen}", 74, subsequent_indent=indent)
            click.echo(f"{word}  {text}")
            well = well and check.well is not False
    except RequestError as error:
        refuse(error)
    raise SystemExit(0 if well else 1)
