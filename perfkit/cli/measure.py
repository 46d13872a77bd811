"""`perfkit run`, `sweep`, `doctor`, `samples` and `report`."""

import shlex
import sys
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, NoReturn

import click

from perfkit.cli import options
from perfkit.cli.notebook import NotebookError, execute, model_notebook
from perfkit.measuring.command import run_command
from perfkit.measuring.format import amount, size
from perfkit.measuring.interrupts import ended_by_interrupt
from perfkit.measuring.parameters import with_absolute_paths
from perfkit.measuring.request import RequestError
from perfkit.measuring.request.plan import plan
from perfkit.measuring.work import ModelWork
from perfkit.report.terminal import echo, wrapped
from perfkit.training.models import MODELS, model_named

if TYPE_CHECKING:
    from perfkit.inputs.samples import SampleData
    from perfkit.measuring.config import Config
    from perfkit.sweep.run import SlurmOptions


@click.command(
    cls=options.RunCommand,
    epilog="`perfkit run MODEL --help` lists the parameters of MODEL, script or command.\n\n"
    + options.exit_statuses(),
)
@click.argument("model", metavar="|".join([*MODELS, "SCRIPT", "NOTEBOOK", "-- COMMAND"]))
@options.SCRIPT_ARGUMENTS
@options.PARAMETERS
@ended_by_interrupt()
def run(model: str, arguments: str | None, values: options.Values) -> None:
    """Measure MODEL or SCRIPT by running its notebook, and write its page.

    The same as `papermill notebooks/MODEL.ipynb OUT.ipynb -p NAME VALUE …`, but the request is
    checked first. SCRIPT is the path of a training script of yours, which calls
    perfkit.StepTimer; ARGUMENTS are its arguments. COMMAND is any command that trains, such as
    `perfkit run -- torchrun --nproc_per_node 8 train.py`: its own log times it. NOTEBOOK is the
    path of your copy of a model's notebook; its page includes cells that you added.
    """
    request = options.request_of(model, arguments, values)
    values = request.values
    notebook = model_notebook(request.notebook)
    planned = plan(notebook.model, notebook.values | values)
    # Imported only now, so that invalid requests fail fast.
    from perfkit.measuring.driver.measure import measurement_folder, stored_result
    from perfkit.measuring.request.requirements import read_environment
    from perfkit.measuring.results.store import Store

    config = planned.config
    environment = read_environment(
        config.framework, config.work.data_folder, config.interpreter
    )
    folder = measurement_folder(config, planned.protocol, environment)
    store = Store(folder)
    store.log_folder.mkdir(parents=True, exist_ok=True)
    if notice := planned.notice:
        echo(wrapped(f"Notice: {notice}"), err=True)
    _announce(folder, planned.protocol.repeats)
    executed = store.log_folder / "papermill.ipynb"
    # Papermill keeps the injected cell of an executed copy only if it is given no value.
    error = execute(notebook.path, executed, notebook.injected | values)
    page: Path | None = None
    if store.result_file.exists() and not (error and error.name == RequestError.__name__):
        own = executed if notebook.is_own else None
        page = _page(folder, own, write=error is not None or notebook.is_own)
    if error:
        _fail_by(error, folder, planned.protocol.repeats, page)
    result = stored_result(folder)
    if result is None or result.status != "complete":
        options.fail(f"{notebook.path}: the notebook left no complete result in {folder}", 1)
    _print_outcome(folder)


def _announce(folder: Path, repeats: int) -> None:
    """Print whether the measurement in `folder` begins or continues."""
    from perfkit.measuring.driver.measure import stored_result

    result = stored_result(folder)
    if result and result.status == "complete":
        # The notebook says so.
        return
    echo(f"Measuring {folder.name}", err=True)
    if result and result.complete_repeats:
        finished = len(result.complete_repeats)
        echo(f"Finished repeats: {finished} of {repeats}", err=True)


def _fail_by(error: NotebookError, folder: Path, repeats: int, page: Path | None) -> NoReturn:
    """Print the error of the notebook, line by line, and the page, and exit."""
    from perfkit.measuring.driver.measure import stored_result

    statuses = {RequestError.__name__: 2, KeyboardInterrupt.__name__: options.INTERRUPTED}
    message = error.message
    if error.name == KeyboardInterrupt.__name__:
        result = stored_result(folder)
        message = "Interrupted before a repeat was finished; the same command starts again."
        if result and result.complete_repeats:
            kept = f"{len(result.complete_repeats)} of {repeats} repeats are kept"
            message = f"Interrupted; {kept}, and the same command continues."
    lines = []
    for line in message.splitlines():
        # Errors are indented. Paths stay whole.
        lines.append(wrapped(line.strip(), "  ") if line.startswith("  ") else line)
    if page:
        lines.append(f"Page: {page}")
    options.fail("\n".join(lines), statuses.get(error.name, 1))


def _page(folder: Path, own: Path | None, *, write: bool) -> Path:
    """Return the page of the measurement in `folder`. With `write`, write it with the cells of
    the user's `own` notebook, or because the kernel died before writing it."""
    from perfkit.measuring.results.store import Measurement, Store

    if write:
        # It imports the libraries for charts, which take a second.
        from perfkit.report.measurement import write_measurement

        write_measurement(Measurement.read(folder), executed=own)
    return Store(folder).page_file


def _print_outcome(folder: Path) -> None:
    """Print number, warnings and page of a complete measurement."""
    from perfkit.analysis.warnings import check
    from perfkit.measuring.results.store import Measurement
    from perfkit.report.words import number_words, warning_words

    measurement = Measurement.read(folder)
    echo(number_words(measurement.result), err=True)
    warnings = warning_words(check(measurement))
    echo(wrapped(f"{warnings[0].upper()}{warnings[1:]}"), err=True)
    echo(measurement.page_file)


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
    "--each-node",
    is_flag=False,
    flag_value="all",
    metavar="[NAMES]",
    help="With --slurm, measure each configuration once on every node of the partition, or on "
    "those in NAMES, such as node[1-4].",
)
@click.option(
    "--jobs",
    type=click.IntRange(1),
    help="With --slurm, most jobs at the same time; default: all.",
)
@click.option(
    "-n",
    "--dry-run",
    is_flag=True,
    help="List configurations, the total time if known, and what can't run here.",
)
def sweep(
    file: Path,
    values: options.Values,
    slurm: bool,
    sbatch: str | None,
    each_node: str | None,
    jobs: int | None,
    dry_run: bool,
) -> None:
    """Measure every configuration in FILE.

    FILE is in parameters/, or your own (docs/clusters.md). -p sets a parameter of all
    configurations; of the matrix it selects the configurations with this value. -p nodes N, a
    number that the matrix lacks, takes the configurations with the most nodes on N. After an
    interruption or a kill, the same command continues.
    """
    from perfkit.sweep import progress
    from perfkit.sweep.jobs import read_jobs
    from perfkit.sweep.nodes import Nodes, slurm_nodes
    from perfkit.sweep.run import run_sweep, statuses_before
    from perfkit.sweep.slurm import sbatch_words
    from perfkit.sweep.status import in_state

    slurm_options = _slurm_options(slurm, sbatch, each_node, jobs)
    nodes = Nodes([], [])
    if slurm_options and each_node is not None:
        nodes = slurm_nodes(each_node, slurm_options.sbatch)
    sweep_jobs = read_jobs(file, values, elsewhere=slurm, each_node=nodes.names)
    options.print_left_out(nodes.unusable)
    if dry_run:
        # Lines of a file or a pipe are not wrapped.
        width = get_terminal_size().columns if sys.stdout.isatty() else 1000
        statuses = statuses_before(sweep_jobs, elsewhere=slurm)
        echo(progress.planned(statuses, in_turn=not slurm, width=width))
        if slurm_options:
            for status in in_state(statuses, "waiting"):
                echo(shlex.join(sbatch_words(status.job, slurm_options.sbatch)))
        return
    with progress.SweepProgress(file.stem, in_turn=not slurm) as shown:
        statuses = run_sweep(sweep_jobs, shown.show, shown.notify, slurm_options)
    progress.print_skipped(statuses)
    progress.print_failures(statuses)
    echo(sweep_jobs[0].outputs / "index.html")
    if any(status.state not in ("done", "kept") for status in statuses):
        raise SystemExit(1)


def _slurm_options(
    slurm: bool, sbatch: str | None, each_node: str | None, jobs: int | None
) -> "SlurmOptions | None":
    """Return how Slurm jobs are submitted; None without --slurm. Raises click.UsageError."""
    from perfkit.sweep.run import SlurmOptions

    if slurm:
        try:
            return SlurmOptions(shlex.split(sbatch or ""), jobs)
        except ValueError as error:
            raise click.UsageError(f"--sbatch {sbatch!r}: {error}") from None
    if each_node is not None:
        raise click.UsageError(
            "--each-node is only for --slurm; without Slurm, type on one node after the other: "
            "perfkit sweep FILE -p node NAME -p outputs_dir SHARED_FOLDER"
        )
    if sbatch or jobs:
        raise click.UsageError("--sbatch and --jobs are only for --slurm")
    return None


@options.command(options.ScriptCommand)
@click.argument("model", metavar="|".join([*MODELS, "SCRIPT"]), default="resnet50")
@options.SCRIPT_ARGUMENTS
@options.PARAMETERS
def doctor(model: str, arguments: str | None, values: options.Values) -> None:
    """Check whether a measurement of MODEL or SCRIPT can run.

    Takes the parameters of `perfkit run`. Checks devices, versions and data of this machine;
    with several nodes, also that they have names and routes.
    """
    request = options.request_of(model, arguments, values)
    try:
        planned = plan(request.notebook, request.values)
    except RequestError as error:
        options.fail(f"{error}\nNot ready: resolve the problems above.", 2)
    from perfkit.measuring.driver.doctor import examine_plan

    for diagnostic in examine_plan(planned):
        mark = click.style("ok  ", fg="green") if diagnostic.is_well else "-   "
        line = f"{diagnostic.subject}: {diagnostic.text}"
        echo(f"{mark}  {wrapped(line, ' ' * 6).lstrip()}")
    command = run_command(request.notebook, with_absolute_paths(request.values))
    echo(f"Ready. To measure: {shlex.join(command)}")


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
    type=click.IntRange(16),
    help="Tokens per sequence; default: the model's.",
)
def samples(
    folder: str | None, model: str, count: int | None, sequence_length: int | None
) -> None:
    """Create sample data in FOLDER: images, sequences or tokens.

    Creates JPEG files, for bert an HDF5 shard, and for gpt and llama a token file. FOLDER
    defaults to data/samples, data/sequences (bert), data/tokens (gpt) or data/llama-tokens
    (llama).
    """
    from perfkit.inputs.samples import SAMPLE_DATA

    facts = model_named(model)
    parameters = {
        "device": "cpu",
        "sequence_length": sequence_length or facts.default_sequence_length,
        "data_dir": folder,
    }
    config = plan(model, parameters, ("machine", "data")).config
    work = config.work.built_in
    data = SAMPLE_DATA[facts.data]
    count = count or data.default_count
    place = work.data_folder
    content = amount(count, facts.sample)
    if facts.sample == "sequence":
        content += f" of {work.sample_size} tokens"
    if work.data_sha256:
        _require_same(config, data.file, count)
        echo(f"{place} already has {content}")
        return
    content += f", {size(_make_samples(work, data, count))}"
    if data.source:
        content += f", from {data.source}"
    echo(f"{place}: {content}")


def _make_samples(work: "ModelWork", data: "SampleData", count: int) -> int:
    """Create sample data in the configuration's folder; return its bytes."""
    from perfkit.measuring.driver.progress import Bar

    total = 0
    with Bar("Sample data", count) as bar:
        for sample_bytes in data.make(work.data_folder, count, work.sample_size):
            total += sample_bytes
            bar.advance(1)
    return total


def _require_same(config: "Config", file: str, count: int) -> None:
    """Raise RequestError unless the configuration's folder has this many sample data."""
    from perfkit.inputs import InputError
    from perfkit.inputs.data_set import data_set

    work = config.work.built_in
    folder = work.data_folder
    try:
        is_same = (folder / file).exists() and len(data_set(work.options(config))) == count
    except InputError:
        is_same = False
    if not is_same:
        problem = f"FOLDER: {folder} contains another data set; use an empty folder"
        raise RequestError([problem])


@options.command()
@click.argument("outputs", default="outputs", callback=options.outputs_folder)
def report(outputs: Path) -> None:
    """Rewrite all pages under OUTPUTS from stored results."""
    from perfkit.measuring.driver.progress import Bar
    from perfkit.report.site import parts, write_site

    if not outputs.is_dir():
        problem = f"OUTPUTS: {outputs} is not a folder; measure first: make report"
        raise RequestError([problem])
    with Bar("Pages", parts(outputs)) as bar:
        index, left_out = write_site(outputs, bar.advance)
    options.print_left_out(left_out)
    echo(index)
