"""`perfkit run`: one measurement, through papermill."""

import tempfile
import textwrap
from pathlib import Path
from typing import Any

import click

from perfkit.cli.options import EPILOG, MODEL, PARAMETER_LIST, PARAMETERS, Given, typed_values
from perfkit.cli.telling import complain, number_words, refuse
from perfkit.config import ROOT, Config, portable
from perfkit.request.plan import plan
from perfkit.request.refusal import RequestError


@click.command(epilog=PARAMETER_LIST + EPILOG)
@MODEL
@PARAMETERS
def run(model: str, given: Given) -> None:
    """Measure MODEL: run its notebook through papermill and write its page.

    The same as `papermill notebooks/MODEL.ipynb OUT.ipynb -p NAME VALUE …`, with the request
    checked first and the executed notebook kept beside the results.
    """
    values = typed_values(given)
    try:
        planned = plan(model, values)
    except RequestError as error:
        refuse(error)
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
        _serve(config, notebook, values)
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
    click.echo(number_words(folder), err=True)
    if told := [warning.name for warning in warnings_about(Measurement.read(folder))]:
        names = f"Warnings: {', '.join(told)}; the page says more"
        click.echo(textwrap.fill(names, 79), err=True)
    click.echo(page)


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

    from perfkit.results.files import write_atomically

    try:
        papermill.execute_notebook(notebook, executed, values, progress_bar=False)
    except PapermillExecutionError as error:
        return error.ename, error.evalue
    except DeadKernelError as error:
        return type(error).__name__, "The notebook's kernel died."
    except KeyboardInterrupt:
        said = "Interrupted; finished repeats are kept, and the same command goes on."
        return KeyboardInterrupt.__name__, said
    finally:
        if executed.exists():
            write_atomically(executed, portable(executed.read_text()))
    return "", ""
