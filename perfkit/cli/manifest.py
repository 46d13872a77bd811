"""`perfkit manifest`: a measurement on several nodes of Kubernetes."""

import click

from perfkit.cli.options import EPILOG, MODEL, PARAMETERS, Given, typed_values
from perfkit.cli.telling import refuse
from perfkit.request.errors import RequestError


@click.command(epilog=EPILOG)
@MODEL
@PARAMETERS
@click.option("--image", required=True, help="The container image, with perfkit installed.")
@click.option(
    "--claim", required=True, help="The PersistentVolumeClaim that all pods mount (RWX)."
)
@click.option(
    "--mount",
    default="/shared",
    show_default=True,
    help="Where they mount it; outputs_dir is MOUNT/outputs unless given.",
)
def manifest(model: str, given: Given, image: str, claim: str, mount: str) -> None:
    """Print what measures MODEL on several nodes of Kubernetes, for `kubectl apply -f -`.

    One pod a node, each with a node of its own, of an indexed Job; a Service that names them;
    a Secret that lets them in, so the output is not for others. Nothing is asked of a cluster:
    say how many nodes and, unless it is on the CPU, gpus.
    """
    from perfkit.driver.manifest import manifest as text_of

    values = typed_values(given)
    try:
        name, text = text_of(model, values, image=image, claim=claim, mount=mount)
    except RequestError as error:
        refuse(error)
    click.echo(text)
    selector = f"app.kubernetes.io/instance={name}"
    click.echo(f"Follow it: kubectl logs --follow --prefix --selector {selector}", err=True)
    click.echo(f"Remove it: kubectl delete job,service,secret --selector {selector}", err=True)
