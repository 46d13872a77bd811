"""`perfkit run`, `sweep`, `doctor`, `samples` and `report`."""

import shlex
import sys
from pathlib import Path

import click

from perfkit.cli import options
from perfkit.cli.notebook import execute, source_of
from perfkit.core.command import run_command, with_absolute_paths
from perfkit.core.models import MODELS, model_named
from perfkit.core.paths import portable, typed_path
from perfkit.core.request import RequestError
from perfkit.core.request.plan import plan

LENGTHS = {n: m.default_sequence_length for n, m in MODELS.items() if m.sample == "sequence"}


@click.command(epilog=f"{options.parameter_list()}\n\n{options.exit_statuses()}")
@click.argument("model", metavar="|".join([*MODELS, "NOTEBOOK"]))
@options.PARAMETERS
def run(model: str, values: options.Values) -> None:
    """Measure MODEL by running its notebook, and write its page.

    The same as `papermill notebooks/MODEL.ipynb OUT.ipynb -p NAME VALUE …`, but the request is
    checked first. NOTEBOOK is the path of your copy of such a notebook; its page includes cells
    that you added.
    """
    source = source_of(model)
    planned = plan(source.model, source.values | values)
    # Papermill keeps the injected cell of an executed copy only if it is given no value.
    values = source.injected | values
    # Imported only now, so that invalid requests fail fast.
    from perfkit.analysis.warnings import check
    from perfkit.core.driver.measure import finished_repeats, is_complete, measurement_folder
    from perfkit.core.request.requirements import read_environment
    from perfkit.core.results.store import Measurement, Store, make_folder
    from perfkit.report.text.terminal import wrapped
    from perfkit.report.words import number_words, warning_words

    config = planned.config
    environment = read_environment(config.framework, config.data_folder, config.interpreter)
    folder = measurement_folder(config, planned.protocol, environment)
    store = Store(folder)
    make_folder(store.log_folder)
    if is_complete(folder):
        click.echo(f"Already measured: {folder.name}", err=True)
        click.echo("To measure again, set a label: -p label NAME", err=True)
    else:
        click.echo(f"Measuring {folder.name}", err=True)
        if finished := finished_repeats(folder):
            click.echo(f"Finished repeats: {finished} of {planned.protocol.repeats}", err=True)
    executed = store.log_folder / "papermill.ipynb"
    name, message = execute(source.path, executed, values)
    if name != RequestError.__name__ and store.result_file.exists():
        # Write the page with the user's cells, or after the kernel died before writing it.
        if name or source.own:
            # It imports the libraries for charts, which take a second.
            from perfkit.report.measurement import write_measurement

            own = executed if source.own else None
            write_measurement(Measurement.read(folder), executed=own)
        page = "Page with the finished repeats" if finished_repeats(folder) else "Page"
        message += f"\n{page}: {store.page_file}"
    _end_with(name, message)
    if not is_complete(folder):
        options.fail(f"{source.path}: the notebook left no complete result in {folder}", 1)
    measurement = Measurement.read(folder)
    click.echo(number_words(measurement.result), err=True)
    warned = warning_words(check(measurement))
    click.echo(wrapped(f"{warned[0].upper()}{warned[1:]}"), err=True)
    click.echo(store.page_file)


def _end_with(error: str, message: str) -> None:
    """Exit with the status of the notebook's error; return if there is none."""
    statuses = {RequestError.__name__: 2, KeyboardInterrupt.__name__: options.INTERRUPTED}
    if error:
        options.fail(message, statuses.get(error, 1))


@options.command(failure="a configuration failed or was skipped")
@click.argument("file", type=click.Path(path_type=Path))
@options.PARAMETERS
@click.option("--slurm", is_flag=True, help="Run each configuration as a Slurm job.")
@click.option(
    "--sbatch",
    metavar="OPTIONS",
    help="With --slurm, options of sbatch in one word: '--partition gpu --time 60'.",
)
@click.option(
    "-n",
    "--dry-run",
    is_flag=True,
    help="List configurations, the total time if known, and what can't run here.",
)
def sweep(
    file: Path, values: options.Values, slurm: bool, sbatch: str | None, dry_run: bool
) -> None:
    """Measure every configuration in FILE.

    FILE is in parameters/, or your own (docs/clusters.md). -p sets a parameter of all
    configurations, such as -p data_dir /data/imagenet; of the matrix it selects the
    configurations with this value. Finished measurements are kept: after an interruption or a
    kill, the same command continues. A failed configuration does not end the sweep; its command
    is printed. What can't run on this machine is skipped, with the reason. outputs/index.html
    is kept up to date.
    """
    from rich.console import Console

    from perfkit.sweep import progress
    from perfkit.sweep.jobs import read_jobs
    from perfkit.sweep.run import run_sweep, statuses_before

    if sbatch and not slurm:
        raise click.UsageError("--sbatch is only for --slurm")
    try:
        sbatch_options = shlex.split(sbatch or "") if slurm else None
    except ValueError as error:
        raise click.UsageError(f"--sbatch {sbatch!r}: {error}") from None
    jobs = read_jobs(file, values, on_slurm=slurm)
    if dry_run:
        # Lines of a file or a pipe are not wrapped.
        wide = None if sys.stdout.isatty() else 1000
        table = progress.planned(statuses_before(jobs, on_slurm=slurm), in_turn=not slurm)
        Console(highlight=False, width=wide).print(table)
        return
    # Not rich's own test, which takes FORCE_COLOR in a CI for a terminal.
    console = Console(stderr=True, highlight=False, force_terminal=sys.stderr.isatty())
    with progress.SweepProgress(console, file.stem, in_turn=not slurm) as shown:
        statuses = run_sweep(jobs, shown.show, shown.notify, sbatch_options)
    progress.print_skipped(console, statuses)
    progress.print_failures(console, statuses)
    click.echo(jobs[0].outputs / "index.html")
    is_measured = all(status.state in ("done", "kept") for status in statuses)
    raise SystemExit(0 if is_measured else 1)


@options.command(failure="failed check")
@click.argument("model", metavar="|".join(MODELS), default="resnet50")
@options.PARAMETERS
def doctor(model: str, values: options.Values) -> None:
    """Check whether a measurement of MODEL can run.

    Takes the parameters of `perfkit run`. Checks versions, data and disk space; with several
    nodes, also that all nodes connect, are alike and reach each other. The last line says
    whether it is ready, or what is missing.
    """
    try:
        planned = plan(model, values)
    except RequestError as error:
        options.fail(f"{error}\nNot ready: resolve the problems above.", 2)
    from perfkit.core.driver.doctor import examine_plan
    from perfkit.core.format import printable
    from perfkit.report.text.terminal import wrapped

    marks = {
        "well": click.style("ok  ", fg="green"),
        "absent": "-   ",
        "failed": click.style("FAIL", fg="red"),
    }
    failed = []
    for diagnostic in examine_plan(planned):
        line = printable(f"{diagnostic.subject}: {diagnostic.text()}")
        click.echo(f"{marks[diagnostic.outcome]}  {wrapped(line, ' ' * 6).lstrip()}")
        if diagnostic.outcome == "failed":
            failed.append(diagnostic.subject)
    if failed:
        options.fail(f"Not ready: resolve {', '.join(dict.fromkeys(failed))}.", 1)
    click.echo(
        f"Ready. To measure: {shlex.join(run_command(model, with_absolute_paths(values)))}"
    )


@options.command()
@click.argument("folder", required=False)
@click.option(
    "--for", "model", default="resnet50", type=click.Choice([*MODELS]), help="The model."
)
@click.option(
    "--count", type=click.IntRange(1, 100_000), help="Default: 512 images or 2048 sequences."
)
@click.option(
    "--sequence-length",
    type=click.IntRange(16, 1024),
    help="Tokens per sequence; default: "
    + ", ".join(f"{n} for {name}" for name, n in LENGTHS.items()),
)
def samples(
    folder: str | None, model: str, count: int | None, sequence_length: int | None
) -> None:
    """Create sample data in FOLDER: images, sequences or tokens.

    Creates JPEG files, which have the same bytes on every machine; for bert, an HDF5 shard, and
    for gpt, a token file, both of text that is part of Python and changes with its release.
    FOLDER defaults to data/samples, data/sequences (bert) or data/tokens (gpt).
    """
    from perfkit.core.driver.progress import Bar
    from perfkit.core.inputs import InputError
    from perfkit.core.inputs.data_set import data_set, digest
    from perfkit.core.inputs.samples import SAMPLE_DATA

    facts = model_named(model)
    length = sequence_length or LENGTHS.get(model)
    given = {
        "device": "cpu",
        "sequence_length": length,
        "data_dir": folder and typed_path(folder),
    }
    config = plan(model, given, ("machine", "data")).config
    data, path, size = SAMPLE_DATA[facts.data], config.data_folder, config.sample_size
    count = count or data.default_count
    found = f"{count} {facts.sample}s"
    found += f" of {size} tokens" if facts.sample == "sequence" else ""
    if not digest(config):
        megabytes = 0.0
        with Bar("Sample data", count) as bar:
            for sample_bytes in data.make(path, count, size):
                megabytes += sample_bytes / 1e6
                bar.advance(1)
        found += f", {megabytes:.1f} MB"
        found += f", from {data.source}" if data.source else ""
        click.echo(f"{portable(str(path))}: {found}")
        return
    try:
        same = (path / data.file).exists() and len(data_set(config)) == count
    except InputError:
        same = False
    if not same:
        raise RequestError([f"FOLDER: {path} contains another data set; use an empty folder"])
    click.echo(f"{portable(str(path))} already has {found}")


@options.command()
@click.argument("outputs", default="outputs", callback=options.from_here)
def report(outputs: Path) -> None:
    """Rewrite all pages under OUTPUTS from stored results."""
    from perfkit.core.driver.progress import Bar
    from perfkit.report.site import parts, write_site

    if not outputs.is_dir():
        raise RequestError([f"OUTPUTS: {outputs} is not a folder; measure first: make report"])
    with Bar("Pages", parts(outputs)) as bar:
        index, left_out = write_site(outputs, bar.advance)
    for reason in left_out:
        options.print_error(f"left out: {reason}")
    click.echo(index)
