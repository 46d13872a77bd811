"""`perfkit import`: logs of another suite as a measurement."""

from pathlib import Path

import click

from perfkit.cli.options import FORMAT_OPTIONS, FORMAT_REGEX, PARAMETERS, Given
from perfkit.cli.telling import refuse
from perfkit.request.errors import RequestError


@click.command("import", epilog="\b\nExit status: 0 done, 2 the request was wrong.")
@click.argument(
    "logs",
    nargs=-1,
    required=True,
    metavar="LOG…",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
)
@PARAMETERS
@FORMAT_REGEX
@FORMAT_OPTIONS
@click.option(
    "--outputs",
    default="outputs",
    show_default=True,
    metavar="FOLDER",
    type=click.Path(path_type=Path),
    help="Where the measurement is stored.",
)
def import_(
    logs: tuple[Path, ...], given: Given, regex: str | None, options: str, outputs: Path
) -> None:
    """Turn LOGs of another suite into a measurement, which joins the same tables.

    Several logs of one configuration become its repeats. What the logs do not tell and a table
    needs is given by -p: the parameters of `perfkit run`, and what else is known of where they
    were made, as in -p environment.gpus "Tesla V100-SXM2-32GB". What is lacking is told, all of
    it at once. The number is that of steps 21 to 120 where the logs' prints allow it, else of
    the nearest steps that they do; -p warmup_steps and -p measured_steps choose others.

    Page, tables and comparisons say that it was imported. Relative logs start here, FOLDER at
    the checkout.
    """
    from perfkit.logs.formats import FormatError, user_format
    from perfkit.logs.importing import BY_HAND, import_logs
    from perfkit.report.outcome import number_words
    from perfkit.report.site import publish
    from perfkit.results.store import ResultError

    try:
        form = user_format(regex, options) if regex else None
        measurement = import_logs(logs, dict(given), outputs, form)
    except (RequestError, ResultError, FormatError) as error:
        refuse(error)
    publish(measurement)
    assert measurement.result.imported
    for name, by in measurement.result.imported.facts.items():
        value = getattr(measurement.result.config, name, None)
        if by.startswith(f"{BY_HAND}; ") and not by.endswith(f" says {value}"):
            click.echo(f"{name}: {value}, {by}", err=True)
    protocol = measurement.result.protocol
    steps = f"steps {protocol.warmup_steps + 1} to {protocol.steps}"
    click.echo(f"{number_words(measurement.result)}; {steps}", err=True)
    click.echo(measurement.page_file)
