"""`perfkit verify`: whether frameworks do the same work."""

import textwrap

import click

from perfkit.cli.options import MODEL, PARAMETERS, Given, typed_values
from perfkit.cli.telling import complain, refuse
from perfkit.request.errors import RequestError


@click.command(
    epilog="\b\nExit status: 0 the same work, 1 not, 2 refused or the request was wrong."
)
@MODEL
@click.option(
    "--frameworks",
    metavar="A,B,…",
    help="The frameworks to compare, the base first; each may say its execution and layout, as "
    "in paddle,torch:static:NCHW.  [default: all that are installed]",
)
@PARAMETERS
def verify(model: str, frameworks: str | None, given: Given) -> None:
    """Say whether frameworks do the same work when they train MODEL.

    Each trains in a process of its own, on the CPU, on the same synthetic batch, without
    dropout, and begins each of 5 steps with the same weights. Compared are names and shapes of
    the parameters, the multiply-adds that each framework really makes, losses, gradients and
    updates: in float64, which would show the smallest difference in the work, and in float32.
    What comes out is kept below outputs_dir; pages and comparisons of measurements that it
    holds for tell it.
    """
    from perfkit.driver.task import TaskError
    from perfkit.verification.verify import sides
    from perfkit.verification.verify import verify as make
    from perfkit.verification.words import text

    try:
        configs = sides(model, frameworks, typed_values(given))
        verification, path = make(configs, lambda text: click.echo(f"{text} …", err=True))
    except RequestError as error:
        refuse(error)
    except TaskError as error:
        complain(textwrap.fill(str(error), 79))
        raise SystemExit(1) from None
    click.echo(text(verification))
    click.echo(path)
    raise SystemExit(not verification.agreed)
