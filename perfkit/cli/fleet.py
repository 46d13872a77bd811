"""`perfkit fleet`."""

from pathlib import Path

import click

from perfkit.cli import options
from perfkit.measuring.request import RequestError
from perfkit.report.terminal import echo

MOST_NODES = 8
"""Nodes in the table of a terminal, at most; the page has all."""


@options.command(failure="a node is slow")
@click.argument("outputs", default="outputs", callback=options.outputs_folder)
@options.percent("--threshold", 2, "Slowness that matters.")
@options.percent("--level", 95, "Probability that no good node is called slow.", low=50)
@options.JSON_FILE
def fleet(outputs: Path, threshold: float, level: float, file: str | None) -> None:
    """Report which nodes of a fleet are slow.

    OUTPUTS has the measurements of perfkit sweep --each-node; of each node and configuration,
    the newest counts. Writes ok-nodes.txt and slow-nodes.txt, for sbatch --exclude, and the
    page fleet/report.html to OUTPUTS. perfkit report judges by the same threshold and level.
    """
    from perfkit.analysis.fleet.fleet import judge_fleet, write_node_files, write_rules
    from perfkit.analysis.fleet.rule import Rules
    from perfkit.measuring.results.outputs import agreeing, measurements
    from perfkit.measuring.results.store import ResultError
    from perfkit.report.fleet import fleet_section
    from perfkit.report.links import Site
    from perfkit.report.site import publish_page
    from perfkit.report.summarized import Summary

    left_out: list[str] = []
    try:
        stored = [*agreeing(measurements(outputs, left_out), left_out)]
    except ResultError as error:
        raise RequestError(_measure_first(str(error))) from None
    options.print_left_out(left_out)
    if not any(measurement.result.config.node for measurement in stored):
        raise RequestError(_measure_first("no measurement names a node"))
    rules = Rules(level=level, threshold=threshold)
    judged = judge_fleet(stored, rules)
    write_node_files(judged, outputs)
    # The page judges the same measurements by the same rules, in its own languages.
    write_rules(rules, outputs)
    publish_page("fleet", Summary.read(outputs, check=True))
    options.print_result(judged, file, fleet_section(judged, Site(outputs), MOST_NODES))
    echo(outputs / "fleet" / "report.html", err=file == "-")
    raise SystemExit(bool(judged.named("slow")))


SWEEP = "perfkit sweep parameters/fleet.yaml"


def _measure_first(problem: str) -> list[str]:
    """Return a problem of OUTPUTS with the two commands that measure a fleet."""
    return [
        f"OUTPUTS: {problem}; measure first, with Slurm: {SWEEP} --slurm --each-node",
        f"without Slurm, on one node after the other: {SWEEP} -p node NAME",
    ]
