"""`perfkit verify` and `perfkit diagnose`."""

import click

from perfkit.cli import options


@options.command(failure="different work")
@options.MODEL
@click.option(
    "--frameworks",
    metavar="A,B,…",
    help="Frameworks, the base first, such as paddle,torch:static:NCHW (execution, layout) or "
    "mxnet:.venv-mxnet/bin/python (interpreter); default: all installed frameworks.",
)
@options.PARAMETERS
def verify(model: str, frameworks: str | None, values: options.Values) -> None:
    """Report whether frameworks do the same work when training MODEL.

    Each framework trains on the CPU in its own process, on the same batch and from the same
    weights. Compares parameter names and shapes, multiply-adds, losses, gradients and updates,
    in float64 and float32. Pages and comparisons show the result where it applies.
    """
    from perfkit.analysis.verification.run import verify as run_verification
    from perfkit.cli.frameworks_option import verified_configs
    from perfkit.report.verification import verification_text

    configs = verified_configs(model, frameworks, values)
    verification, path = run_verification(configs, options.print_step)
    click.echo(verification_text(verification))
    click.echo(path)
    raise SystemExit(not verification.agreed)


@options.command()
@options.MODEL
@options.PARAMETERS
def diagnose(model: str, values: options.Values) -> None:
    """Report what limits MODEL: input, training, or both.

    Takes the parameters of `perfkit run`; needs one node, and an input other than synthetic.
    Measures training with its input and with synthetic input, with interleaved repeats as
    `perfkit compare --live`, and the input alone (with other thread counts too, if it may be
    the limit). The same command continues after an interruption. The measurement's page shows
    the diagnosis too.
    """
    from perfkit.analysis.diagnosis.run import diagnose as run_diagnosis
    from perfkit.analysis.diagnosis.run import plan_diagnosis
    from perfkit.report.diagnosis import diagnosis_text
    from perfkit.report.site import publish_comparison

    comparison = plan_diagnosis(model, values)
    measurement, diagnosis = run_diagnosis(comparison, options.print_step)
    publish_comparison(comparison.folder)
    click.echo(diagnosis_text(diagnosis, measurement.result.built_in))
    click.echo(measurement.page_file)
