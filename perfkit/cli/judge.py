"""`perfkit verify` and `perfkit diagnose`."""

import click

from perfkit.cli import options
from perfkit.core.models import MODELS
from perfkit.core.request import RequestError
from perfkit.core.script_config import SCRIPT
from perfkit.report.text.terminal import echo


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
    if model.endswith(".py"):
        problem = "verify compares the frameworks' built-in models; it can't look into a script"
        raise RequestError([f"{model}: {problem}"])
    from perfkit.analysis.verification.run import verify as run_verification
    from perfkit.cli.frameworks_option import verified_configs
    from perfkit.report.verification import verification_text

    configs = verified_configs(model, frameworks, values)
    verification, path = run_verification(configs, options.print_step)
    echo(verification_text(verification))
    echo(path)
    raise SystemExit(not verification.agreed)


@options.command(options.ScriptCommand)
@click.argument("model", metavar="|".join([*MODELS, "SCRIPT"]))
@options.SCRIPT_ARGUMENTS
@options.PARAMETERS
def diagnose(model: str, arguments: str | None, values: options.Values) -> None:
    """Report what limits MODEL or SCRIPT: input, training, or both.

    Takes the parameters of `perfkit run`; needs one node, and an input other than synthetic.
    Measures training with its input and with synthetic input, with interleaved repeats as
    `perfkit compare --live`, and the input alone (with other thread counts too, if it may be
    the limit). The same command continues after an interruption. The measurement's page shows
    the diagnosis too.

    A SCRIPT has no synthetic input: measures its training, with the wait for data, unless it
    has been measured, and its input alone; needs a loader that is read through timer.batches.
    """
    request = options.request_of(model, arguments, values)
    if request.notebook == SCRIPT:
        _diagnose_script(request.values)
        return
    from perfkit.analysis.diagnosis.run import diagnose as run_diagnosis
    from perfkit.analysis.diagnosis.run import plan_diagnosis
    from perfkit.report.diagnosis import diagnosis_text
    from perfkit.report.site import publish_comparison

    comparison = plan_diagnosis(model, values)
    measurement, diagnosis = run_diagnosis(comparison, options.print_step)
    publish_comparison(comparison.folder)
    echo(diagnosis_text(diagnosis, measurement.result.built_in))
    echo(measurement.page_file)


def _diagnose_script(values: options.Values) -> None:
    """Diagnose a script, write its page and print what limits it."""
    from perfkit.analysis.diagnosis.script import (
        diagnose_script,
        plan_script_diagnosis,
        train_script,
    )
    from perfkit.report.diagnosis import diagnosis_text
    from perfkit.report.site import publish

    planned = plan_script_diagnosis(values)
    measurement = train_script(planned, options.print_step)
    try:
        diagnosis = diagnose_script(measurement, options.print_step)
    finally:
        # The training has been measured, whatever becomes of the input alone.
        publish(measurement)
    echo(diagnosis_text(diagnosis, measurement.result.config))
    echo(measurement.page_file)
