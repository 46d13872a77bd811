"""`perfkit run`: one measurement, through papermill."""

import ast
import re
import signal
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any, NamedTuple

import click
import psutil

from perfkit.cli.options import EPILOG, PARAMETER_LIST, PARAMETERS, Given, typed_values
from perfkit.cli.telling import complain, refuse
from perfkit.config import ROOT, Config, portable
from perfkit.models import MODELS
from perfkit.request.errors import RequestError
from perfkit.request.plan import plan

PLAN_CALL = re.compile(r"^[^#\n]*\bplan\(\s*[\"'](\w*)[\"']", re.MULTILINE)
"""The call of `perfkit.plan` in a cell, with the model's name."""


class Source(NamedTuple):
    """A notebook that measures `model`, and the values in its parameters cell; `own` if it is
    not the suite's."""

    path: Path
    model: str
    values: dict[str, Any]
    own: bool


@click.command(epilog=PARAMETER_LIST + EPILOG)
@click.argument("model", metavar="|".join([*MODELS, "NOTEBOOK"]))
@PARAMETERS
def run(model: str, given: Given) -> None:
    """Measure MODEL: run its notebook through papermill and write its page.

    The same as `papermill notebooks/MODEL.ipynb OUT.ipynb -p NAME VALUE …`, with the request
    checked first and the executed notebook kept beside the results.

    NOTEBOOK is the path of a copy of a model's notebook (my/resnet50.ipynb): cells that were
    added to it are on the page too.
    """
    values = typed_values(given)
    try:
        source = _source(model)
        planned = plan(source.model, source.values | values)
    except RequestError as error:
        refuse(error)
    # Imported only now: reading the environment takes longer than refusing a request.
    from perfkit.driver.measure import is_complete, measurement_folder
    from perfkit.report.measurement import write_measurement
    from perfkit.report.outcome import number_words, warning_words
    from perfkit.request.environment import read_environment
    from perfkit.request.hosts import own_index
    from perfkit.results.store import Measurement, Store

    config = planned.config
    node = own_index(config.host_list)
    if node and config.launcher == "manual":
        _share_secret(config, node)
        _serve(config, source.path, values)
        return
    environment = read_environment(config.framework, config.data_folder)
    folder = measurement_folder(config, planned.protocol, environment)
    store = Store(folder)
    store.log_folder.mkdir(parents=True, exist_ok=True)
    page, executed = store.page_file, store.log_folder / "papermill.ipynb"
    if is_complete(folder):
        click.echo(f"Measured already: {folder.name}", err=True)
        click.echo("Shown again. To measure again, give a label: -p label NAME", err=True)
    else:
        click.echo(f"Measuring {folder.name}", err=True)
        if config.launcher == "manual":
            _share_secret(config, 0)
    name, message = _execute(source.path, executed, values)
    # The page with the user's own cells; or the kernel may have died before it could write it.
    if name != RequestError.__name__ and store.result_file.exists():
        if name or source.own:
            write_measurement(
                Measurement.read(folder), executed=executed if source.own else None
            )
        message += f"\nThe page, with all that was measured: {page}"
    _end_with(name, message)
    if not is_complete(folder):
        _end_with(
            "ResultError", f"{source.path}: its cells left no complete result in {folder}"
        )
    measurement = Measurement.read(folder)
    click.echo(number_words(measurement.result), err=True)
    warned = warning_words(measurement)
    click.echo(textwrap.fill(f"{warned[0].upper()}{warned[1:]}", 79), err=True)
    click.echo(page)


def _source(model: str) -> Source:
    """The notebook that is meant by a model's name or by a notebook's path; raises
    RequestError."""
    path = ROOT / "notebooks" / f"{model}.ipynb"
    if model in MODELS:
        return Source(path, model, _read(path)[1], own=False)
    path = Path(model).expanduser().absolute()
    # A misspelt model's name is refused as such.
    if path.suffix != ".ipynb":
        return Source(path, model, {}, own=True)
    models, values = _read(path)
    if len(models) != 1:
        found = f"cells plan several: {', '.join(models)}" if models else "no cell has it"
        known = ", ".join(MODELS)
        raise RequestError(
            [f'{model}: needs one perfkit.plan("MODEL", globals()), MODEL of {known}; {found}']
        )
    own = path.resolve() != ROOT / "notebooks" / f"{models[0]}.ipynb"
    return Source(path, models[0], values, own)


def _read(path: Path) -> tuple[list[str], dict[str, Any]]:
    """The models that cells of the notebook plan, and the values of its parameters cell."""
    import nbformat

    try:
        notebook = nbformat.read(path, as_version=4)
    except OSError as error:
        raise RequestError([f"{path}: {error.strerror}"]) from None
    except (nbformat.reader.NotJSONError, nbformat.ValidationError, UnicodeDecodeError):
        raise RequestError([f"{path}: not a notebook"]) from None
    models: list[str] = []
    values: dict[str, Any] = {}
    for cell in notebook.cells:
        if cell.cell_type == "code":
            models += PLAN_CALL.findall(cell.source)
            if "parameters" in cell.metadata.get("tags", []):
                values |= _assigned(cell.source, path)
    return list(dict.fromkeys(models)), values


def _assigned(source: str, path: Path) -> dict[str, Any]:
    """The names that a cell of parameters sets, and their values, which are literals."""
    values = {}
    try:
        for line in ast.parse(source).body:
            if isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name):
                values[line.targets[0].id] = ast.literal_eval(line.value)
    except (SyntaxError, ValueError) as error:
        raise RequestError(
            [f"{path}: the cell of parameters may only set names to plain values: {error}"]
        ) from None
    return values


def _share_secret(config: Config, node: int) -> None:
    """For the kernel, which has no terminal to ask at, and whose outputs are stored."""
    from perfkit.driver.connection import shared_secret

    try:
        shared_secret(config.host_list, node)
    except RequestError as error:
        refuse(error)


def _serve(config: Config, notebook: Path, values: dict[str, Any]) -> None:
    """The first host measures; this one's workers train, and it is given the result."""
    click.echo(f"Serving {config.host_list[0]}", err=True)
    with tempfile.TemporaryDirectory() as scratch:
        _end_with(*_execute(notebook, Path(scratch) / "papermill.ipynb", values))
    click.echo(f"The result is below {config.outputs_dir}; its raw steps are on the first host")


def _end_with(error: str, message: str) -> None:
    """End with the status that fits the notebook's error; go on if there is none."""
    if error:
        complain(message)
        raise SystemExit(2 if error == RequestError.__name__ else 1)


def _execute(notebook: Path, executed: Path, values: dict[str, Any]) -> tuple[str, str]:
    """Run the notebook through papermill; name and message of its error, empty if none."""
    import papermill
    from nbclient.exceptions import DeadKernelError
    from papermill.exceptions import PapermillExecutionError

    from perfkit.results.store import write_atomically

    interrupted = (
        KeyboardInterrupt.__name__,
        "Interrupted; finished repeats are kept, and the same command goes on.",
    )
    usual = signal.getsignal(signal.SIGINT)

    def interrupt(*_: object) -> None:
        # A second one ends papermill, and the kernel with it.
        signal.signal(signal.SIGINT, usual)
        for kernel in psutil.Process().children():
            kernel.send_signal(signal.SIGINT)

    def handle_interrupts(**_: object) -> None:
        # Once the kernel takes them: else papermill hangs up on it in the middle of an answer.
        if usual is signal.default_int_handler:
            signal.signal(signal.SIGINT, interrupt)

    try:
        papermill.execute_notebook(
            notebook,
            executed,
            values,
            progress_bar=False,
            # Where the kernel writes its progress, which the notebook then keeps once.
            stdout_file=sys.stderr if sys.stderr.isatty() else None,
            coalesce_streams=True,
            on_cell_execute=handle_interrupts,
            # Else the kernel gets another SIGINT at its end: one that has just answered an
            # interrupt prints a stack for it.
            shutdown_kernel="immediate",
        )
    except PapermillExecutionError as error:
        if error.ename == KeyboardInterrupt.__name__:
            return interrupted
        return error.ename, error.evalue
    except DeadKernelError as error:
        return type(error).__name__, "The notebook's kernel died."
    except KeyboardInterrupt:
        return interrupted
    finally:
        signal.signal(signal.SIGINT, usual)
        if executed.exists():
            write_atomically(executed, portable(executed.read_text()))
    return "", ""
