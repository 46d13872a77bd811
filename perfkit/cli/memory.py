"""`perfkit memory`."""

import click

from perfkit.cli import options


@options.command()
@options.MODEL
@options.PARAMETERS
def memory(model: str, values: options.Values) -> None:
    """Print the memory that MODEL needs on each device under each sharding.

    Takes the parameters of `perfkit run`, of any machine, such as -p framework torch -p device
    gpu -p gpus 8 -p model_size 8b. Computed from the shapes of the weights; needs no framework
    and no device. Activations, and whole gradients until they are divided, are not included.
    """
    from typing import get_args

    from perfkit.core.config import Sharding
    from perfkit.core.format import number
    from perfkit.core.frameworks import FRAMEWORKS
    from perfkit.core.frameworks.memory import device_memory
    from perfkit.core.models import model_of
    from perfkit.core.request.contradictions import contradictions
    from perfkit.core.request.plan import plan
    from perfkit.core.units import GIB
    from perfkit.report.text.terminal import tabulated

    # Nothing is measured here.
    config = plan(model, values, ("machine", "requirements", "data")).built_in
    facts = model_of(config)
    framework = FRAMEWORKS[config.framework].display_name
    parameters = f"{facts.parameters:,} parameters"
    click.echo(f"{facts.name}, {parameters}, {framework}, {config.precision}")
    click.echo(f"GiB on each device of {config.topology}, without activations:")
    rows = []
    for sharding in get_args(Sharding):
        sharded = config.model_copy(update={"sharding": sharding})
        if any(contradictions(sharded)):
            continue
        needed = device_memory(sharded)
        sizes = [number(size / GIB, 3) for size in (*needed, needed.total)]
        rows.append([sharding, *sizes])
    headings = ("sharding", "weights", "gradients", "optimizer", "gathered", "together")
    for line in tabulated(rows, headings):
        click.echo(line)
