"""`perfkit compare`, `history`, `verify` and `diagnose`."""

import textwrap
from pathlib import Path
from typing import Any

import click

from perfkit.cli import options
from perfkit.config import resolved_path, typed_path
from perfkit.request import RequestError
from perfkit.request.plan import plan


@options.command(failure="a regression")
@click.argument("names", nargs=-1, required=True, metavar="A B | --live MODEL VARIANT VARIANT…")
@click.option(
    "--live", is_flag=True, help="Measure the variants now, their repeats interleaved."
)
@options.PARAMETERS
@click.option("--across", multiple=True, metavar="KEY", help="Compare though this differs.")
@options.percent("--threshold", 2, "How much slower a regression is.")
@options.percent("--level", 95, "The level of interval and verdict.", low=50)
@options.OUTPUTS
@options.JSON_FILE
def compare(
    names: tuple[str, ...],
    live: bool,
    values: options.Values,
    across: tuple[str, ...],
    outputs: Path,
    file: str | None,
    **shares: float,
) -> None:
    """Report whether B is faster than A: ratio, exact interval, verdict.

    A is the base: a ratio of throughputs B / A above 1 means that B is faster. A and B are the
    first of these that exists:

    \b
      label:NAME     the measurements under --outputs with this label;
                     label: alone, those without one
      a file         a result.json, whatever it is called
      a folder       of one measurement, or of many
      a table        published numbers: fleetx-resnet50, dlperf-resnet50 …
      NAME           the same as label:NAME

    Measurements are compared that agree in work, protocol, precision, threads, input and
    hardware; versions, driver and label may differ. A regression, with exit status 1: B is
    slower at the level and by more than the threshold, or failed where A has a number.

    With --live, measures MODEL in all VARIANTs, the first being the base, with their repeats
    interleaved, A B B A: NAME=VALUE, several joined by commas; -p gives what they share. The
    same command continues after an interruption; -p label NAME measures anew.

    \b
      perfkit compare --live resnet50 framework=paddle framework=torch -p device cpu
    """
    from perfkit.comparison import ComparisonError
    from perfkit.comparison import compare as compared

    if live:
        if across or outputs != resolved_path("outputs"):
            problem = "--across, --outputs: are not for --live, whose variants say what differs"
            raise RequestError([f"{problem}; -p outputs_dir FOLDER"])
        _compare_live(names, values, file, **shares)
    if values or len(names) != 2:
        raise ComparisonError(["two names are compared, A and B; -p is for --live"])
    a, b = (p if resolved_path(p := typed_path(name)).exists() else name for name in names)
    found = compared(a, b, across=across, outputs=outputs, **shares)
    options.print_result(found, file)
    raise SystemExit(found.regressed)


def _compare_live(
    names: tuple[str, ...], shared: dict[str, Any], file: str | None, **shares: float
) -> None:
    """Measure the variants, interleaved, and exit with the status of their comparison."""
    from perfkit.comparison.interleaved import measure_interleaved, plan_interleaved
    from perfkit.comparison.stored import read_comparison
    from perfkit.report.site import publish_comparison

    if file and file != "-" and not Path(file).absolute().parent.is_dir():
        raise RequestError([f"--json {file}: no such folder"])
    found = plan_interleaved(names[0], names[1:], shared, **shares)
    protocol = found.plan.protocol
    click.echo(
        f"{len(found.variants)} variants, {protocol.repeats} interleaved repeats of each, "
        f"{protocol.warmup_steps} + {protocol.measured_steps} steps: {found.folder.name}",
        err=True,
    )
    try:
        measure_interleaved(found, lambda text: click.echo(text, err=True))
    except KeyboardInterrupt:
        publish_comparison(found.folder)
        options.fail(options.STOPPED, 1)
    comparison = read_comparison(found.folder)
    publish_comparison(found.folder)
    options.print_result(comparison, file)
    click.echo(found.folder / "report.html", err=file == "-")
    raise SystemExit(comparison.regressed or not comparison.complete)


@options.command(failure="with --check, a series regressed")
@click.argument("outputs", nargs=-1)
@click.option("--check", is_flag=True, help="Exit with 1 if a series' newest level is lower.")
@options.percent("--threshold", 2, "How much lower a regression is.")
@options.percent("--level", 5, "Probability of a false change.", low=0.01, high=50)
@options.JSON_FILE
def history(
    outputs: tuple[str, ...], check: bool, threshold: float, level: float, file: str | None
) -> None:
    """Show how the throughput of each configuration changed over time.

    OUTPUTS is one folder or several. A series is one configuration, measured at least three
    times: on other days, with other versions, under other labels. Changes of its level are
    tested with the repeats on both sides, and changes of the environment there are named.
    """
    import pandas as pd

    from perfkit.comparison.history import history as history_of

    frames = []
    for folder in outputs or ["outputs"]:
        frame = options.load(typed_path(folder) if outputs else folder)
        if len(outputs) > 1:
            frame["folder"] = f"{folder.rstrip('/')}/" + frame["folder"]
        frames.append(frame)
    # A measurement that was copied into several folders counts once.
    measurements = pd.concat(frames, ignore_index=True).drop_duplicates(["id", "created"])
    found = history_of(measurements, level, threshold)
    options.print_result(found, file)
    raise SystemExit(check and found.regressed)


@options.command(failure="not the same work")
@options.MODEL
@click.option(
    "--frameworks",
    metavar="A,B,…",
    help="What to compare, the base first, as in paddle,torch:static:NCHW (execution, layout) "
    "or mxnet:.venv-mxnet/bin/python (interpreter); without it, all that are installed.",
)
@options.PARAMETERS
def verify(model: str, frameworks: str | None, values: options.Values) -> None:
    """Report whether frameworks do the same work when they train MODEL.

    Each trains on the CPU in a process of its own, on the same batch and from the same weights.
    Compares names and shapes of the parameters, multiply-adds, losses, gradients and updates,
    in float64 and float32. Pages and comparisons show the result where it applies.
    """
    from perfkit.verification import sides, text
    from perfkit.verification import verify as verified

    configs = sides(model, frameworks, values)
    verification, path = verified(configs, options.print_step)
    click.echo(text(verification))
    click.echo(path)
    raise SystemExit(not verification.agreed)


@options.command()
@options.MODEL
@options.PARAMETERS
def diagnose(model: str, values: options.Values) -> None:
    """Report what limits MODEL: its input, its arithmetic, or both.

    Takes the parameters of `perfkit run`. Measures both together, compute alone (synthetic
    input), the input alone with more and fewer threads, and the parts of a step by the
    framework's profiler. Existing measurements are reused, and named. The page of the
    measurement shows the diagnosis too.
    """
    from perfkit.diagnosis import diagnose as diagnosed
    from perfkit.diagnosis import diagnosis_lines
    from perfkit.report.measurement import write_measurement

    planned = plan(model, values)
    measurement, diagnosis = diagnosed(planned.config, planned.protocol, options.print_step)
    write_measurement(measurement)
    for line in diagnosis_lines(diagnosis, measurement.result.config).values():
        click.echo(textwrap.fill(line, 79, subsequent_indent="  "))
    click.echo(measurement.page_file)
