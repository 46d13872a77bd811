"""`perfkit compare` and `perfkit history`."""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from perfkit.cli import options
from perfkit.measuring.format import amount
from perfkit.measuring.paths import outputs_path
from perfkit.measuring.request import RequestError
from perfkit.report.terminal import echo

if TYPE_CHECKING:
    from perfkit.measuring.results.store import Measurement

OPERANDS = "A B | --live MODEL|SCRIPT|command=COMMAND VARIANT VARIANT…"
TOLERANCE = "Of B below the references in the file A; an entry's own one counts first."


@options.command(failure="regression")
@click.argument("names", nargs=-1, required=True, metavar=OPERANDS)
@click.option(
    "--live", is_flag=True, help="Measure the variants now, with interleaved repeats."
)
@options.PARAMETERS
@click.option(
    "--across",
    multiple=True,
    metavar="KEY",
    help="Allow a difference in KEY, and list it in the result; repeatable.",
)
@options.percent("--threshold", 2, "Slowdown above which B has regressed.")
@options.percent("--level", 95, "Confidence level of interval and verdict.", low=50)
@options.percent("--tolerance", 5, TOLERANCE)
@click.option(
    "--save-references", "saved", metavar="FILE", help="Write the measurements A as references."
)
@options.OUTPUTS
@options.JSON_FILE
def compare(
    names: tuple[str, ...],
    live: bool,
    values: options.Values,
    across: tuple[str, ...],
    outputs: Path,
    file: str | None,
    tolerance: float,
    saved: str | None,
    **shares: float,
) -> None:
    """Report whether B is faster than A: ratio, exact interval, verdict.

    A, the base, and B are resolved in this order:

    \b
      label:NAME     measurements under --outputs with this label;
                     label: alone selects measurements without a label
      a file         a result.json, under any name
      a folder       of one or several measurements
      an id          the folder of a measurement under --outputs
      a table        published numbers: fleetx-resnet50, dlperf-resnet50 …
      NAME           the same as label:NAME

    B has regressed if it is slower at the confidence level and by more than the threshold, or
    failed where A has a number.

    With references as A, shows the published numbers of B's model on B's class of GPU, and in
    what they differ. A file A.yaml has your own references: the exit status is 1 if the whole
    interval of a measurement of B lies more than the tolerance below one. --save-references
    writes such a file.

    \b
      perfkit compare references outputs/ID
      perfkit compare outputs --save-references references.yaml
      perfkit compare references.yaml outputs --tolerance '5 %'

    With --live, measures MODEL, SCRIPT or COMMAND in all VARIANTs with interleaved repeats, A B
    B A; the first is the base. A VARIANT is NAME=VALUE, or several joined by commas; the
    arguments of a script, or the flags of a command, come last. -p sets parameters of all
    variants. The same command continues after an interruption; -p label NAME measures anew.

    \b
      perfkit compare --live bert framework=paddle framework=torch -p device cpu
    """
    from perfkit.analysis.comparison import ComparisonError
    from perfkit.analysis.comparison import compare as compared
    from perfkit.analysis.own_references import SUFFIXES
    from perfkit.analysis.published.references import REFERENCES
    from perfkit.report.comparison import selected_comparison

    if live:
        if across or outputs != outputs_path():
            problem = "--across, --outputs: not valid with --live; use -p outputs_dir FOLDER"
            raise RequestError([problem])
        _compare_live(names, values, file, **shares)
    if saved:
        _save_references(Path(saved), names, outputs)
    if values or len(names) != 2:
        only_live = "; -p is for --live" if values else ""
        only_live += "; --live compares several variants" if len(names) > 2 else ""
        raise ComparisonError([f"give two names, A and B{only_live}"])
    a, b = names
    source = click.get_current_context().get_parameter_source("tolerance")
    if source is click.core.ParameterSource.COMMANDLINE and not a.endswith(SUFFIXES):
        raise RequestError(["--tolerance: only with a file of references as A"])
    if a == REFERENCES or a.endswith(SUFFIXES):
        if across:
            raise RequestError(["--across: not valid with references"])
        _beside_references(a, b, outputs, file, tolerance, shares["level"])
    found = compared(a, b, across=across, outputs=outputs, **shares)
    options.print_result(found, file, selected_comparison(found))
    raise SystemExit(found.regressed)


def _beside_references(
    a: str, b: str, outputs: Path, file: str | None, tolerance: float, level: float
) -> NoReturn:
    """Print measurements beside published numbers, or the user's own; exit with the status."""
    from perfkit.analysis.own_references import judge, read_references
    from perfkit.analysis.published.references import REFERENCES, beside_published
    from perfkit.report.references import beside_own_section, beside_published_section

    measurements = _with_numbers(b, outputs)
    if a == REFERENCES:
        published = beside_published(measurements, level)
        options.print_result(published, file, beside_published_section(published))
        raise SystemExit(0)
    own = judge(measurements, read_references(Path(a)), tolerance, level)
    options.print_result(own, file, beside_own_section(own))
    raise SystemExit(own.is_low)


def _save_references(file: Path, names: tuple[str, ...], outputs: Path) -> NoReturn:
    from perfkit.analysis.own_references import save_references

    if len(names) > 1:
        raise RequestError(["--save-references: give one name, that of the measurements"])
    try:
        save_references(file, _with_numbers(names[0], outputs))
    except OSError as error:
        raise RequestError([f"--save-references {file}: {error.strerror}"]) from None
    echo(file)
    raise SystemExit(0)


def _with_numbers(name: str, outputs: Path) -> "list[Measurement]":
    """Return the measurements that a name selects, and print those without a number."""
    from perfkit.analysis.comparison.selections import ComparisonError, select_results

    selected = select_results(name, outputs)
    left_out = [*selected.left_out]
    measurements = []
    for measurement in selected.measurements:
        if measurement.result.throughput:
            measurements.append(measurement)
        else:
            left_out.append(f"{measurement.result.id}: it has no number")
    options.print_left_out(left_out)
    if not measurements:
        raise ComparisonError([f"{name}: no measurement with a number"])
    return measurements


def _compare_live(
    names: tuple[str, ...], shared: dict[str, Any], file: str | None, **shares: float
) -> None:
    """Measure the variants with interleaved repeats; exit with the comparison's status."""
    from perfkit.analysis.comparison.interleaved_plan import plan_interleaved
    from perfkit.analysis.comparison.interleaved_run import measure_interleaved
    from perfkit.analysis.comparison.stored import read_comparison
    from perfkit.measuring.results.store import ResultError
    from perfkit.report.comparison import page
    from perfkit.report.site import publish_comparison

    if file and file != "-" and not Path(file).absolute().parent.is_dir():
        raise RequestError([f"--json {file}: no such folder"])
    request = options.request_of(names[0], None, shared)
    found = plan_interleaved(request.notebook, names[1:], request.values, **shares)
    protocol = found.plan.protocol
    echo(
        f"{amount(len(found.variants), 'variant')}, "
        f"{amount(protocol.repeats, 'interleaved repeat')} of each, "
        f"{protocol.warmup_words} + {protocol.measured_words} steps: {found.folder.name}",
        err=True,
    )
    try:
        measure_interleaved(found)
    except KeyboardInterrupt:
        # Nothing is stored before all variants have been checked.
        with suppress(ResultError):
            publish_comparison(found.folder)
        options.fail(options.STOPPED, options.INTERRUPTED)
    comparison = read_comparison(found.folder)
    publish_comparison(found.folder)
    options.print_result(comparison, file, page(found.folder))
    echo(found.folder / "report.html", err=file == "-")
    raise SystemExit(comparison.regressed or not comparison.complete)


@options.command(failure="regression found with --check")
@click.argument("outputs", default="outputs", callback=options.outputs_folder)
@click.option("--check", is_flag=True, help="Exit with 1 if a series has regressed.")
@click.option(
    "--require-baseline",
    is_flag=True,
    help="Exit with 1 if there is no series to check, too.",
)
@options.percent("--threshold", 2, "Drop above which a series has regressed.")
@options.JSON_FILE
def history(
    outputs: Path,
    check: bool,
    require_baseline: bool,
    threshold: float,
    file: str | None,
) -> None:
    """Show how the throughput of each configuration changed over time.

    A series is one configuration, measured at least three times. It has regressed while its
    newest level is below the best accepted one. A measurement whose label begins with accepted
    accepts its level. Measurements beside other load are shown, but not judged.
    """
    from perfkit.analysis.comparison.history import history as history_of
    from perfkit.measuring.results.schema import Result
    from perfkit.measuring.results.store import Measurement
    from perfkit.report.history import history_section
    from perfkit.report.links import Site

    def read(folder: str) -> Result:
        return Measurement.read(outputs / folder).result

    measurements = options.load_checked(outputs)
    found = history_of(measurements, threshold, read=read)
    options.print_result(found, file, history_section(found, Site(outputs)))
    lacks_baseline = not found.series
    if lacks_baseline and (check or require_baseline):
        words = "Nothing was checked: no configuration has three undisturbed measurements."
        echo(words, err=file == "-")
    raise SystemExit((check and found.regressed) or (require_baseline and lacks_baseline))
