"""`perfkit verify` and `perfkit diagnose`."""

import click

from perfkit.cli import options
from perfkit.measuring.request import RequestError
from perfkit.report.terminal import echo
from perfkit.training.models import MODELS


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
    weights. Compares parameter names and shapes, multiply-adds, losses, gradients and updates.
    """
    if model.endswith(".py"):
        problem = "verify compares the frameworks' built-in models; it can't look into a script"
        raise RequestError([f"{model}: {problem}"])
    from perfkit.analysis.verification.run import verify as run_verification
    from perfkit.cli.frameworks_option import verified_configs
    from perfkit.report.verification import verification_section

    configs = verified_configs(model, frameworks, values)
    verification, path = run_verification(configs, options.print_step)
    options.print_section(verification_section(verification))
    echo(path)
    raise SystemExit(not verification.agreed)


@options.command(options.ScriptCommand)
@click.argument("model", metavar="|".join([*MODELS, "SCRIPT"]))
@options.SCRIPT_ARGUMENTS
@options.PARAMETERS
def diagnose(model: str, arguments: str | None, values: options.Values) -> None:
    """Report what limits MODEL or SCRIPT: its input or its training.

    Measures the training as `perfkit run`, unless it has been measured, and then the input
    alone at full speed. Takes the parameters of `perfkit run`; needs one node, and an input
    other than synthetic or, of a SCRIPT, one that is read through timer.batches. Where both
    share a processor, only a comparison is exact:

    \b
      perfkit compare --live resnet50 input=dali input=synthetic
    """
    from perfkit.analysis.diagnosis import diagnose as run_diagnosis
    from perfkit.analysis.diagnosis import plan_diagnosis, train
    from perfkit.report.diagnosis import diagnosis_section
    from perfkit.report.site import publish

    request = options.request_of(model, arguments, values)
    planned = plan_diagnosis(request.notebook, request.values)
    measurement = train(planned, options.print_step)
    try:
        diagnosis = run_diagnosis(measurement, options.print_step)
    finally:
        # The training has been measured, whatever becomes of the input alone.
        publish(measurement)
    options.print_section(diagnosis_section(diagnosis, measurement.result))
    echo(measurement.page_file)
