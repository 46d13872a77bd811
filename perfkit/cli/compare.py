"""`perfkit compare`: whether B is faster than A."""

from pathlib import Path
from typing import Any, NoReturn

import click

from perfkit.cli.options import JSON_FILE, PARAMETERS, Given, from_here, typed_values
from perfkit.cli.telling import refuse, tell
from perfkit.config import resolved_path, typed_path
from perfkit.request.errors import RequestError


@click.command(
    epilog="\b\nExit status: 0 done, 1 a regression, 2 refused or the request was wrong."
)
@click.argument("names", nargs=-1, required=True, metavar="A B | --live MODEL SIDE SIDE…")
@click.option(
    "--live", is_flag=True, help="Measure the sides, in turn, and compare them pair by pair."
)
@PARAMETERS
@click.option(
    "--across",
    multiple=True,
    metavar="KEY",
    help="Compare though this differs; may be given many times. The result says so.",
)
@click.option(
    "--threshold",
    type=click.FloatRange(0, 100, max_open=True),
    default=2.0,
    show_default=True,
    metavar="PERCENT",
    help="How much slower B may be: beyond that, it is a regression.",
)
@click.option(
    "--level",
    type=click.FloatRange(50, 100, max_open=True),
    default=95.0,
    show_default=True,
    metavar="PERCENT",
    help="The level of interval and verdict.",
)
@click.option(
    "--outputs",
    default="outputs",
    show_default=True,
    metavar="FOLDER",
    callback=from_here,
    help="Where labels are looked for.",
)
@JSON_FILE
def compare(
    names: tuple[str, ...],
    live: bool,
    given: Given,
    across: tuple[str, ...],
    threshold: float,
    level: float,
    outputs: Path,
    file: str | None,
) -> None:
    """Say whether B is faster than A, by how much, and how sure that is.

    A is the base: a ratio of throughputs B / A above 1 means that B is faster. Each of the two
    is the first of these that there is:

    \b
      label:NAME     the measurements under --outputs with this label;
                     label: alone, those without one
      a file         a result.json, whatever it is called
      a folder       of one measurement, or of many
      a table        published numbers: fleetx-resnet50, dlperf-resnet50 …
      NAME           the same as label:NAME

    Of many, those are compared
    that agree in all that must: work, protocol, precision, threads, input, hardware.
    Versions, driver, label and the like may differ, and are told.

    It is a regression, and ends with 1, where B is slower at the level and by more than the
    threshold; or has failed where A has a number.

    With --live, measures and compares in one run: perfkit compare --live MODEL, then two SIDEs
    or more, NAME=VALUE joined by commas, the first being the base. What all sides share is
    given by -p. Their repeats are made in turn, A B A B, so that what the machine drifts is in
    both repeats of a pair; the ratio is judged pair by pair.

    \b
      perfkit compare --live resnet50 framework=paddle framework=torch -p device cpu
      perfkit compare --live bert cpu_tuning=True cpu_tuning=False -p batch_size 4

    Each side is an ordinary measurement, with its page; the comparison has a page of its own.
    The same command goes on after an interruption, and shows again what is measured; -p label
    NAME measures anew. A side that fails makes no more repeats; the others go on while the
    base is one of them. It ends with 1 then, or where a side is slower, as above.
    """
    from perfkit.comparison import ComparisonError
    from perfkit.comparison import compare as compared

    if live:
        if across or outputs != resolved_path("outputs"):
            problem = "--across, --outputs: are not for --live, whose sides say what differs"
            refuse(RequestError([f"{problem}; -p outputs_dir FOLDER"]))
        values = typed_values(given)
        _compare_live(names, values, level / 100, threshold / 100, file)
    if given or len(names) != 2:
        refuse(ComparisonError(["two names are compared, A and B; -p is for --live"]))
    a, b = (
        typed_path(name) if resolved_path(typed_path(name)).exists() else name for name in names
    )
    try:
        found = compared(
            a, b, across=across, level=level / 100, threshold=threshold / 100, outputs=outputs
        )
    except ComparisonError as error:
        refuse(error)
    tell(found, file)
    raise SystemExit(found.regressed)


def _compare_live(
    names: tuple[str, ...],
    shared: dict[str, Any],
    level: float,
    threshold: float,
    file: str | None,
) -> NoReturn:
    """Measure the sides in turn, and end with the status of their comparison."""
    from perfkit.comparison.live.run import live, measure_in_turn
    from perfkit.comparison.live.sides import sides_of
    from perfkit.comparison.live.stored import read_comparison
    from perfkit.report.site import publish_comparison
    from perfkit.statistics import fewest_values

    if file and file != "-" and not Path(file).absolute().parent.is_dir():
        refuse(RequestError([f"--json {file}: no such folder"]))
    try:
        sides = sides_of(names[0], names[1:], shared, level)
        found = live(sides, level, threshold)
        protocol = sides.plan.protocol
        click.echo(
            f"{len(sides.sides)} sides in turn, {protocol.repeats} repeats of each, "
            f"{protocol.warmup_steps} + {protocol.measured_steps} steps: {found.folder.name}",
            err=True,
        )
        if protocol.repeats < fewest_values(level):
            enough = f"-p repeats {fewest_values(level)}"
            click.echo(f"So few can't tell anything at {level * 100:g} %: {enough}", err=True)
        measure_in_turn(found, lambda text: click.echo(text, err=True))
    except RequestError as error:
        refuse(error)
    except KeyboardInterrupt:
        publish_comparison(found.folder)
        click.echo("Interrupted; the same command goes on from here.", err=True)
        raise SystemExit(1) from None
    comparison = read_comparison(found.folder)
    publish_comparison(found.folder)
    tell(comparison, file)
    click.echo(found.folder / "report.html", err=file == "-")
    raise SystemExit(comparison.regressed or not comparison.complete)
