"""`perfkit …`: thin commands over the modules that do the work."""

import re
import shlex
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from perfkit.config import LABEL, ROOT, parameters, portable, resolved_path
from perfkit.models import MODELS
from perfkit.request.plan import RequestError, plan, typed

if TYPE_CHECKING:
    from perfkit.audit.stored import Audit
    from perfkit.comparison import Comparison
    from perfkit.comparison.live import LiveComparison

EPILOG = """\b
Exit status: 0 done, 1 a run failed, 2 the request was wrong."""


def _parameter_help() -> str:
    """The parameters, one a line, for `perfkit run --help`."""
    lines = []
    for name, (default, meaning) in parameters().items():
        text = f"{name}={default!r}: {meaning}"
        wrapper = textwrap.TextWrapper(76, "  ", "      ", break_on_hyphens=False)
        lines += wrapper.wrap(text)
    return "\b\nParameters, as in the notebook:\n" + "\n".join(lines) + "\n\n" + EPILOG


class _Commands(click.Group):
    """Commands that end with 1 and a word where a disk is full: no stack tells more."""

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except OSError as error:
            from perfkit.results.files import NO_ROOM

            if error.errno not in NO_ROOM:
                raise
            click.echo(f"disk_full: {portable(str(error))}", err=True)
            click.echo("What was measured is kept. Make room, and try again.", err=True)
            raise SystemExit(1) from None


@click.group(
    cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]}, epilog=EPILOG
)
@click.version_option(package_name="perfkit")
def main() -> None:
    """Reproducible reports on deep-learning training throughput."""


PARAMETERS = click.option(
    "-p",
    "given",
    nargs=2,
    multiple=True,
    metavar="NAME VALUE",
    help="Set a parameter; may be given many times.",
)


@main.command(epilog=_parameter_help())
@click.argument("model", metavar="|".join(MODELS))
@PARAMETERS
def run(model: str, given: tuple[tuple[str, str], ...]) -> None:
    """Measure MODEL: run its notebook through papermill and write its page.

    The same as `papermill notebooks/MODEL.ipynb OUT.ipynb -p NAME VALUE …`, with the request
    checked first and the executed notebook kept beside the results.
    """
    values = {name: typed(name, value) for name, value in given}
    try:
        planned = plan(model, values)
    except RequestError as error:
        _refuse(error)
    # Imported only now: reading the environment takes longer than refusing a request.
    from perfkit.analysis.sanity import warnings_about
    from perfkit.driver.measure import is_complete, measurement_folder
    from perfkit.machine.hosts import own_index
    from perfkit.nodes.environment import read_environment
    from perfkit.report.page import write_page
    from perfkit.results.files import Measurement

    config = planned.config
    notebook = ROOT / "notebooks" / f"{model}.ipynb"
    if own_index(config.host_list):
        # The first host measures; this one's workers train, and it is given the result.
        click.echo(f"Serving {config.host_list[0]}", err=True)
        with tempfile.TemporaryDirectory() as scratch:
            _end_with(*_execute(notebook, Path(scratch) / "papermill.ipynb", values))
        click.echo(
            f"The result is below {config.outputs_dir}; its raw steps are on the first host"
        )
        return
    environment = read_environment(config.framework, config.data_folder)
    folder = measurement_folder(config, planned.protocol, environment)
    (folder / "logs").mkdir(parents=True, exist_ok=True)
    page = folder / "report.html"
    if is_complete(folder):
        click.echo(f"Measured already: {folder.name}", err=True)
        click.echo("Shown again. To measure again, give a label: -p label NAME", err=True)
    else:
        click.echo(f"Measuring {folder.name}", err=True)
    name, message = _execute(notebook, folder / "logs" / "papermill.ipynb", values)
    # The notebook's kernel may have died before it could write the page.
    if name not in ("", RequestError.__name__) and (folder / "result.json").exists():
        write_page(Measurement.read(folder))
        message += f"\nThe page, with all that was measured: {page}"
    _end_with(name, message)
    click.echo(_number(folder), err=True)
    if told := [warning.name for warning in warnings_about(Measurement.read(folder))]:
        names = f"Warnings: {', '.join(told)}; the page says more"
        click.echo(textwrap.fill(names, 79), err=True)
    click.echo(page)


def _number(folder: Path) -> str:
    """The measured number in words."""
    from perfkit.results.files import read_result
    from perfkit.words.wording import number, percent

    found = read_result(folder / "result.json").throughput
    assert found
    words = f"{number(found.value)} {found.unit}, {found.statistic} of n={found.n}"
    if found.interval and found.interval_level:
        low, high = map(number, found.interval)
        words += f"; {percent(found.interval_level, 4)} interval {low} to {high}"
    return words


def _end_with(error: str, message: str) -> None:
    """End with the status that fits the notebook's error; go on if there is none."""
    if error:
        click.echo(message, err=True)
        raise SystemExit(2 if error == RequestError.__name__ else 1)


def _execute(notebook: Path, executed: Path, values: dict[str, Any]) -> tuple[str, str]:
    """Run the notebook through papermill; name and message of its error, empty if none."""
    import papermill
    from nbclient.exceptions import DeadKernelError
    from papermill.exceptions import PapermillExecutionError

    from perfkit.results.files import write_atomically

    try:
        papermill.execute_notebook(notebook, executed, values, progress_bar=False)
    except PapermillExecutionError as error:
        return error.ename, error.evalue
    except DeadKernelError as error:
        return type(error).__name__, "The notebook's kernel died."
    finally:
        if executed.exists():
            write_atomically(executed, portable(executed.read_text()))
    return "", ""


@main.command(epilog=_parameter_help())
@click.argument("model", metavar="|".join(MODELS), default="resnet50")
@PARAMETERS
def doctor(model: str, given: tuple[tuple[str, str], ...]) -> None:
    """See what would keep a measurement of MODEL from running, before it starts.

    Takes what `perfkit run` takes: versions, data and room on this machine; with nodes, that
    all of them come, are alike, and reach each other. Ends with 1 if something is amiss.
    """
    try:
        planned = plan(model, {name: typed(name, value) for name, value in given})
        from perfkit.driver.doctor import examine_plan

        well = True
        for check in examine_plan(planned):
            word = (
                click.style("ok  ", fg="green") if check.well else click.style("FAIL", fg="red")
            )
            indent = " " * 6
            text = textwrap.fill(f"{check.subject}: {check.seen}", 74, subsequent_indent=indent)
            click.echo(f"{word}  {text}")
            well = well and check.well
    except RequestError as error:
        _refuse(error)
    raise SystemExit(0 if well else 1)


@main.command(epilog=_parameter_help())
@click.argument("model", metavar="|".join(MODELS))
@PARAMETERS
def diagnose(model: str, given: tuple[tuple[str, str], ...]) -> None:
    """Say what limits MODEL: its input, its arithmetic, or both.

    Takes what `perfkit run` takes. Measures with the input and with synthetic input (as `run`
    does, so that what is measured already is not measured again), then the input alone with
    more and fewer threads, and the parts of a step by the framework's own profiler, in a run of
    its own. The page of the measurement then has it too.
    """
    from perfkit.diagnosis.parts import diagnose as make
    from perfkit.diagnosis.words import diagnosis_lines
    from perfkit.driver.task import TaskError
    from perfkit.report.page import write_page

    try:
        planned = plan(model, {name: typed(name, value) for name, value in given})
        measurement, diagnosis = make(
            planned.config, planned.protocol, lambda text: click.echo(f"{text} …", err=True)
        )
    except RequestError as error:
        _refuse(error)
    except TaskError as error:
        click.echo(error, err=True)
        raise SystemExit(1) from None
    write_page(measurement)
    for line in diagnosis_lines(diagnosis, measurement.result.config):
        click.echo(textwrap.fill(line, 79, subsequent_indent="  "))
    click.echo(measurement.folder / "report.html")


@main.command(
    epilog="\b\nExit status: 0 the same work, 1 not, 2 refused or the request was wrong."
)
@click.argument("model", metavar="|".join(MODELS))
@click.option(
    "--frameworks",
    metavar="A,B,…",
    help="The frameworks to compare, the base first; each may say its execution and layout, as "
    "in paddle,torch:static:NCHW.  [default: all that are installed]",
)
@PARAMETERS
def verify(model: str, frameworks: str | None, given: tuple[tuple[str, str], ...]) -> None:
    """Say whether frameworks do the same work when they train MODEL.

    Each trains in a process of its own, on the CPU, on the same synthetic batch, without
    dropout, and begins each of 5 steps with the same weights. Compared are names and shapes of
    the parameters, the multiply-adds that each framework really makes, losses, gradients and
    updates: in float64, which would show the smallest difference in the work, and in float32.
    What comes out is kept below outputs_dir; pages and comparisons of measurements that it
    holds for tell it.
    """
    from perfkit.driver.task import TaskError
    from perfkit.verification.verify import sides
    from perfkit.verification.verify import verify as make
    from perfkit.verification.words import text

    try:
        configs = sides(model, frameworks, {name: typed(name, value) for name, value in given})
        verification, path = make(configs, lambda text: click.echo(f"{text} …", err=True))
    except RequestError as error:
        _refuse(error)
    except TaskError as error:
        click.echo(textwrap.fill(str(error), 79), err=True)
        raise SystemExit(1) from None
    click.echo(text(verification))
    click.echo(path)
    raise SystemExit(not verification.agreed)


@main.command(epilog=EPILOG)
@click.argument("file", type=click.Path(path_type=Path))
@PARAMETERS
@click.option(
    "--profile",
    default="local",
    show_default=True,
    metavar="NAME",
    help="Who runs the jobs: a folder of workflow/profiles (local, slurm, kubernetes), or one "
    "of your own.",
)
@click.option("-n", "--dry-run", is_flag=True, help="Say what would run, and how long.")
def sweep(file: Path, given: tuple[tuple[str, str], ...], profile: str, dry_run: bool) -> None:
    """Measure every configuration that FILE names, each by a notebook of its own.

    FILE is one of parameters/ or your own. A parameter given by -p is the same for all its
    configurations: -p data_dir /data/imagenet, -p label NAME. What is measured already is left
    as it is: after an interruption, even a kill or a power cut, the same command goes on, and
    loses no more than the repeat that was running. A configuration that fails does not end the
    sweep; its command, to try it alone, is printed at the end.

    Progress is below outputs/sweeps/; outputs/index.html is kept up to date as it goes.
    """
    from rich.console import Console

    from perfkit.sweep import board
    from perfkit.sweep.engine import Engine
    from perfkit.sweep.file import SweepError
    from perfkit.sweep.jobs import outputs_of, read_jobs
    from perfkit.sweep.profile import Profile

    console = Console(stderr=True, highlight=False)
    try:
        where = Profile.named(profile)
        values = {name: typed(name, value) for name, value in given}
        jobs = read_jobs(file, values, where.executor)
        engine = Engine(file.stem, jobs, outputs_of(jobs), where)
        in_turn = not where.elsewhere
        if dry_run:
            Console(highlight=False).print(board.planned(engine.standings(), in_turn=in_turn))
            return
        with board.Board(console, file.stem, in_turn=in_turn) as shown:
            standings = engine.run(shown.show, shown.say)
            shown.show(standings, over=True)
    except SweepError as error:
        _refuse(error)
    except KeyboardInterrupt:
        click.echo("Interrupted; the same command goes on from here.", err=True)
        raise SystemExit(1) from None
    failed = any(one.state == "failed" for one in standings)
    if failed:
        board.tell_failures(console, standings)
    click.echo(engine.outputs / "index.html")
    raise SystemExit(1 if failed else 0)


@main.command(epilog=EPILOG)
@click.argument("model", metavar="|".join(MODELS))
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
def manifest(
    model: str, given: tuple[tuple[str, str], ...], image: str, claim: str, mount: str
) -> None:
    """Print what measures MODEL on several nodes of Kubernetes, for `kubectl apply -f -`.

    One pod a node, each with a node of its own, of an indexed Job; a Service that names them;
    a Secret that lets them in, so the output is not for others. Nothing is asked of a cluster:
    say how many nodes and, unless it is on the CPU, gpus.
    """
    import yaml

    from perfkit.nodes.manifest import objects

    values = {name: typed(name, value) for name, value in given}
    try:
        documents = objects(model, values, image=image, claim=claim, mount=mount)
    except RequestError as error:
        _refuse(error)
    click.echo(yaml.safe_dump_all(documents, sort_keys=False), nl=False)
    selector = f"app.kubernetes.io/instance={documents[-1]['metadata']['name']}"
    click.echo(f"Follow it: kubectl logs --follow --prefix --selector {selector}", err=True)
    click.echo(f"Remove it: kubectl delete job,service,secret --selector {selector}", err=True)


@main.command()
@click.argument("outputs", default="outputs", type=click.Path(path_type=Path))
def report(outputs: Path) -> None:
    """Write the site of all measurements under OUTPUTS again, from stored results alone.

    That is index.html, a page for each measurement, the summary with the published tables and
    what was measured beside them, the suite's own figures if `make bench` made them,
    results.csv and results.json; pages in English and Chinese.
    Needs neither a framework nor DALI. A relative path starts at the checkout, as in the
    parameters.
    """
    from perfkit.report.site import parts, write_site

    outputs = resolved_path(str(outputs))
    if not outputs.is_dir():
        _refuse(RequestError([f"OUTPUTS: no folder {outputs}; measure first: make report"]))
    with click.progressbar(length=parts(outputs), label="Pages", file=sys.stderr) as bar:
        index, left_out = write_site(outputs, bar.update)
    for reason in left_out:
        click.echo(f"left out: {reason}", err=True)
    click.echo(index)


@main.command(
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
    help="Where labels are looked for.",
)
@click.option(
    "--json", "file", metavar="FILE", help="Write all of it as JSON too; - for the output."
)
def compare(
    names: tuple[str, ...],
    live: bool,
    given: tuple[tuple[str, str], ...],
    across: tuple[str, ...],
    threshold: float,
    level: float,
    outputs: str,
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

    Relative paths start at the checkout, as in the parameters. Of many, those are compared
    that agree in all that must: work, protocol, precision, threads, input, hardware.
    Versions, driver, label and the like may differ, and are told.

    It is a regression, and ends with 1, where B is slower at the level and by more than the
    threshold; or has failed where A has a number.

    With --live, measures and compares in one run: perfkit compare --live MODEL, then two sides
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
        if across or outputs != "outputs":
            problem = "--across, --outputs: are not for --live, whose sides say what differs"
            _refuse(RequestError([f"{problem}; -p outputs_dir FOLDER"]))
        values = {name: typed(name, value) for name, value in given}
        _compare_live(names, values, level / 100, threshold / 100, file)
    if given or len(names) != 2:
        _refuse(ComparisonError(["two names are compared, A and B; -p is for --live"]))
    a, b = names
    try:
        found = compared(
            a, b, across=across, level=level / 100, threshold=threshold / 100, outputs=outputs
        )
    except ComparisonError as error:
        _refuse(error)
    _tell(found, file)
    raise SystemExit(found.regressed)


def _compare_live(
    names: tuple[str, ...],
    shared: dict[str, Any],
    level: float,
    threshold: float,
    file: str | None,
) -> NoReturn:
    """Measure the sides in turn, and end with the status of their comparison."""
    from perfkit.comparison.live import read_comparison
    from perfkit.comparison.live_run import live, measure_in_turn
    from perfkit.comparison.sides import sides_of
    from perfkit.report.site import publish_comparison
    from perfkit.statistics import fewest_values

    if file and file != "-" and not Path(file).absolute().parent.is_dir():
        _refuse(RequestError([f"--json {file}: no such folder"]))
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
        _refuse(error)
    except KeyboardInterrupt:
        publish_comparison(found.folder)
        click.echo("Interrupted; the same command goes on from here.", err=True)
        raise SystemExit(1) from None
    comparison = read_comparison(found.folder)
    publish_comparison(found.folder)
    _tell(comparison, file)
    click.echo(found.folder / "report.html", err=file == "-")
    raise SystemExit(comparison.regressed or not comparison.complete)


def _tell(found: "Comparison | LiveComparison | Audit", file: str | None) -> None:
    """Print a comparison or an audit, and write it as JSON where that was asked for."""
    from perfkit.results.files import write_atomically

    path = Path(file).absolute() if file and file != "-" else None
    try:
        if path:
            write_atomically(path, found.model_dump_json(indent=1) + "\n")
    except OSError as error:
        _refuse(ValueError(f"--json {path}: {error.strerror}"))
    if file == "-":
        click.echo(found.model_dump_json(indent=1))
    click.echo(found, err=file == "-")


@main.command(
    "audit",
    epilog="\b\nExit status: 0 done, 1 a claim can't be reproduced or no file can be read,\n"
    "2 the request was wrong.",
)
@click.argument(
    "paths", nargs=-1, required=True, metavar="FILE…", type=click.Path(path_type=Path)
)
@click.option(
    "--published",
    "tables",
    multiple=True,
    metavar="TABLE",
    help="Compare with the numbers of a published table, such as paddle-resnet50-report, each "
    "with the log at its place; may be given many times.",
)
@click.option(
    "--claim",
    metavar="NUMBER",
    help="Compare one log with this throughput, typed with the digits it is published with.",
)
@click.option(
    "--tolerance",
    type=click.FloatRange(0, 100),
    default=0.0,
    show_default="0: to the claim's digits",
    metavar="PERCENT",
    help="How far from a claim the closest figure may be.",
)
@click.option(
    "--label",
    metavar="NAME",
    help="Keep it as a page, audits/NAME/report.html, which the index links to.",
)
@click.option(
    "--outputs",
    default="outputs",
    show_default=True,
    metavar="FOLDER",
    help="Where the page is kept.",
)
@click.option(
    "--json", "file", metavar="FILE", help="Write all of it as JSON too; - for the output."
)
def audit_command(
    paths: tuple[Path, ...],
    tables: tuple[str, ...],
    claim: str | None,
    tolerance: float,
    label: str | None,
    outputs: str,
    file: str | None,
) -> None:
    """Recompute throughputs from training logs of other suites.

    Each FILE is a log, or a folder with logs in it, in the formats of PaddleClas, PaddleNLP,
    FleetX, DLPerf (Paddle 1.8, OneFlow), NVIDIA's DLLogger, MLPerf, tf_cnn_benchmarks,
    torchbench or optimum-benchmark; a log's content tells which. Each gives its throughput by
    every statistic that suites use, over the protocol's steps 21 to 120 and over all there are:
    samples / time is what a throughput is, the others are what may have been published.

    \b
      perfkit audit train.log
      perfkit audit train.log --claim 10984.436
      perfkit audit logs/ --published paddle-resnet50-report --label paddle

    A claim is reproduced if some figure is the same to its digits; which one stands beside it,
    the simplest first, and how easily so many figures agree by chance. The findings are what
    is odd about a log, with file and line: input waited for, restarts, missing prints, losses
    that training can't have. A folder in DLPerf's layout (1n8g/r50_b128_fp32_1.log) gives
    DLPerf's own summary too. A file that can't be read is named; the others go on.
    """
    from perfkit.audit.recompute import AuditError, audit, files_of
    from perfkit.words.lines import plain

    typed = [*map(str, paths), *(word for table in tables for word in ("--published", table))]
    typed += ["--claim", claim] if claim else []
    typed += ["--tolerance", f"{tolerance:g}"] if tolerance else []
    typed += ["--label", label] if label else []
    try:
        if label is not None and not re.fullmatch(LABEL, label or " "):
            raise AuditError([f"--label {label}: 40 letters, digits, _ and - at most"])
        sizes = {path: path.stat().st_size for path in files_of(paths)}
        with click.progressbar(
            length=sum(sizes.values()), label="Logs", file=sys.stderr
        ) as bar:
            found = audit(
                [*sizes],
                tables=tables,
                claim=claim,
                tolerance=tolerance / 100,
                label=label or "",
                command=plain(portable(shlex.join(["perfkit", "audit", *typed]))),
                progress=lambda path: bar.update(sizes[path]),
            )
    except AuditError as error:
        _refuse(error)
    # Not before: what pages are made with takes more memory than reading a large log.
    from perfkit.audit.stored import FOLDER, write_audit
    from perfkit.report.site import publish_audit

    _tell(found, file)
    if label:
        folder = resolved_path(outputs) / FOLDER / label
        try:
            write_audit(folder, found)
        except (
            PermissionError,
            FileNotFoundError,
            FileExistsError,
            NotADirectoryError,
        ) as error:
            _refuse(RequestError([f"--outputs: {error.filename}: {error.strerror}"]))
        publish_audit(folder)
        click.echo(folder / "report.html", err=file == "-")
    raise SystemExit(found.failed or not found.logs)


@main.command("import")
@click.argument(
    "logs",
    nargs=-1,
    required=True,
    metavar="LOG…",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
)
@PARAMETERS
@click.option(
    "--outputs",
    default="outputs",
    show_default=True,
    metavar="FOLDER",
    type=click.Path(path_type=Path),
    help="Where the measurement is stored.",
)
def import_(logs: tuple[Path, ...], given: tuple[tuple[str, str], ...], outputs: Path) -> None:
    """Turn LOGs of another suite into a measurement, which joins the same tables.

    Several logs of one configuration become its repeats. What the logs do not tell and a table
    needs is given by -p: the parameters of `perfkit run`, and what else is known of where they
    were made, as in -p environment.gpus "Tesla V100-SXM2-32GB". What is lacking is told, all of
    it at once. The number is that of steps 21 to 120 where the logs' prints allow it, else of
    the nearest steps that they do; -p warmup_steps and -p measured_steps choose others.

    Page, tables and comparisons say that it was imported. Relative logs start here, FOLDER at
    the checkout.
    """
    from perfkit.imports import import_logs
    from perfkit.imports.told import BY_HAND
    from perfkit.report.site import publish
    from perfkit.results.files import ResultError

    try:
        measurement = import_logs(logs, dict(given), outputs)
    except (RequestError, ResultError) as error:
        _refuse(error)
    publish(measurement)
    assert measurement.result.imported
    for name, by in measurement.result.imported.facts.items():
        value = getattr(measurement.result.config, name, None)
        if by.startswith(f"{BY_HAND}; ") and not by.endswith(f" says {value}"):
            click.echo(f"{name}: {value}, {by}", err=True)
    protocol = measurement.result.protocol
    steps = f"steps {protocol.warmup_steps + 1} to {protocol.steps}"
    click.echo(f"{_number(measurement.folder)}; {steps}", err=True)
    click.echo(measurement.folder / "report.html")


@main.command()
@click.argument("measurements", default="outputs", metavar="[MEASUREMENT|FOLDER]")
@click.option(
    "--as",
    "form",
    required=True,
    type=click.Choice(["dllogger", "mlperf", "optimum"]),
    help="The format.",
)
@click.option("--to", metavar="FOLDER", help="Where the files go; - for the output.")
def export(measurements: str, form: str, to: str | None) -> None:
    """Write measurements as other tools write theirs, so that those can read them.

    A file for each complete repeat, of the raw steps: DLLogger's lines, MLPerf's :::MLLOG
    lines, or optimum-benchmark's JSON. They lie beside each measurement, in `exported`, or in
    --to. A relative path starts at the checkout, as in the parameters.
    """
    from perfkit.exporters import ExportError, export, printed
    from perfkit.results.files import Measurement, ResultError, folders

    path = resolved_path(measurements)
    found = [path] if (path / "result.json").is_file() else list(folders(path))
    if not found:
        _refuse(RequestError([f"{measurements}: neither a measurement nor a folder of some"]))
    failed = False
    for folder in found:
        try:
            measurement = Measurement.read(folder)
            if to == "-":
                click.echo(printed(measurement, form), nl=False)
                continue
            for file in export(measurement, form, resolved_path(to) if to else None):
                click.echo(file)
        except (ExportError, ResultError) as error:
            click.echo(f"left out: {error}", err=True)
            failed = True
        except (PermissionError, FileExistsError, NotADirectoryError) as error:
            _refuse(RequestError([f"--to: {error.filename}: {error.strerror}"]))
    raise SystemExit(1 if failed else 0)


@main.command()
@click.argument("folder", required=False)
@click.option(
    "--for",
    "model",
    default="resnet50",
    show_default=True,
    type=click.Choice(list(MODELS)),
    help="The model to train on them.",
)
@click.option(
    "--count",
    type=click.IntRange(1, 100_000),
    help="How many.  [default: 512 images or 2048 sequences]",
)
@click.option(
    "--sequence-length",
    type=click.IntRange(16, 512),
    help="Tokens per sequence, for bert.  [default: 128]",
)
def samples(
    folder: str | None, model: str, count: int | None, sequence_length: int | None
) -> None:
    """Make sample data in FOLDER: JPEG files and their list, or for bert an HDF5 shard.

    They are the same bytes every time; the shard's text is that of the Python release.
    FOLDER is data/samples, or data/sequences for bert, unless given. A relative path starts
    at the checkout, as in the parameters.
    """
    path = resolved_path(folder or MODELS[model].data_dir)
    if MODELS[model].sample == "sequence":
        _sample_sequences(path, count or 2048, sequence_length or 128)
    elif sequence_length:
        _refuse(RequestError([f"--sequence-length: {model} trains on images"]))
    else:
        _sample_images(path, count or 512)


def _sample_images(folder: Path, count: int) -> None:
    from perfkit.inputs.samples import make_samples

    made = folder / "train_list.txt"
    if made.exists():
        same = len(made.read_text().splitlines()) == count
        _say_it_is_there(folder, f"{count} samples", same)
        return
    with click.progressbar(
        make_samples(folder, count), count, "Sample images", file=sys.stderr
    ) as bar:
        size = sum(bar)
    average = f"{size / count / 1000:.0f} kB on average"
    click.echo(f"{portable(str(folder))}: {count} images, {average}")


def _sample_sequences(folder: Path, count: int, length: int) -> None:
    from perfkit.inputs.files import InputError
    from perfkit.inputs.sample_sequences import NAME, SOURCE, make_shard
    from perfkit.inputs.shards import read_shards, shard_files

    what = f"{count} sequences of {length} tokens"
    made = folder / NAME
    if folder.is_dir() and (there := shard_files(folder)):
        try:
            same = there == [made] and read_shards(folder, length).rows == [count]
        except InputError:
            same = False
        _say_it_is_there(folder, what, same)
        return
    with click.progressbar(
        make_shard(folder, count, length), count, "Sample sequences", file=sys.stderr
    ) as bar:
        for _one in bar:
            pass
    size = f"{made.stat().st_size / 1e6:.1f} MB"
    click.echo(f"{portable(str(folder))}: {what}, {size}, from {SOURCE}")


def _say_it_is_there(folder: Path, what: str, same: bool) -> None:
    """Say that the folder has these samples already; refuse to overwrite others."""
    if not same:
        _refuse(
            RequestError([f"FOLDER: {folder} holds another data set; name an empty folder"])
        )
    click.echo(f"{portable(str(folder))} has its {what} already")


def _refuse(error: ValueError) -> NoReturn:
    click.echo(error, err=True)
    raise SystemExit(2)
