"""`perfkit diagnose`: what limits a model."""

import textwrap

import click

from perfkit.cli.options import EPILOG, MODEL, PARAMETER_LIST, PARAMETERS, Given, typed_values
from perfkit.cli.telling import complain, refuse
from perfkit.request.errors import RequestError
from perfkit.request.plan import plan


@click.command(epilog=PARAMETER_LIST + EPILOG)
@MODEL
@PARAMETERS
def diagnose(model: str, given: Given) -> None:
    """Say what limits MODEL: its input, its arithmetic, or both.

    Takes what `perfkit run` takes. Measures with the input and with synthetic input (as `run`
    does, so that what is measured already is not measured again), then the input alone with
    more and fewer threads, and the parts of a step by the framework's own profiler, in a run of
    its own. The page of the measurement then has it too.
    """
    from perfkit.diagnosis.parts import diagnose as make
    from perfkit.diagnosis.words import diagnosis_lines
    from perfkit.driver.task import TaskError
    from perfkit.report.measurement import write_measurement

    try:
        planned = plan(model, typed_values(given))
        measurement, diagnosis = make(
            planned.config, planned.protocol, lambda text: click.echo(f"{text} …", err=True)
        )
    except RequestError as error:
        refuse(error)
    except TaskError as error:
        complain(error)
        raise SystemExit(1) from None
    write_measurement(measurement)
    for line in diagnosis_lines(diagnosis, measurement.result.config):
        click.echo(textwrap.fill(line, 79, subsequent_indent="  "))
    click.echo(measurement.page_file)
