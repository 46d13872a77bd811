"""`perfkit history`: how the throughput of each configuration changed over time."""

from pathlib import Path

import click

from perfkit.cli.options import JSON_FILE, from_here
from perfkit.cli.telling import refuse, tell
from perfkit.request.errors import RequestError


@click.command(
    epilog="\b\nExit status: 0 done, 1 with --check if a series regressed, 2 the request was "
    "wrong."
)
@click.argument("outputs", default="outputs", callback=from_here)
@click.option(
    "--check", is_flag=True, help="End with status 1 if the newest level of a series is lower."
)
@click.option(
    "--threshold",
    type=click.FloatRange(0, 100, max_open=True),
    default=2.0,
    show_default=True,
    metavar="PERCENT",
    help="How much lower a level may be: beyond that, it is a regression.",
)
@click.option(
    "--level",
    type=click.FloatRange(0, 50, min_open=True),
    default=5.0,
    show_default=True,
    metavar="PERCENT",
    help="Probability of a false change in a series without any.",
)
@JSON_FILE
def history(
    outputs: Path, check: bool, threshold: float, level: float, file: str | None
) -> None:
    """Show how throughput changed over time, for each configuration under OUTPUTS.

    A series is one configuration, measured at least three times: on other days, with other
    versions of framework, driver or suite, under other labels. Points at which the level
    changes are found and tested with the repeats of the measurements on both sides; what
    changed in the environment there is named. The page is history/report.html.

    In a CI job, a measurement under a label of its own and a check that nothing became slower:

    \b
      perfkit run resnet50 -p label nightly7
      perfkit history --check
    """
    from perfkit.comparison.history import history as found_in
    from perfkit.comparison.words import history_text
    from perfkit.results.frames import load
    from perfkit.results.store import ResultError

    try:
        measurements = load(outputs)
    except ResultError as error:
        refuse(RequestError([f"OUTPUTS: {error}; measure first: perfkit run resnet50"]))
    found = found_in(measurements, level / 100, threshold / 100)
    tell(found, file, history_text(found))
    raise SystemExit(check and found.regressed)
