"""A model's notebook: what it measures, and its run through papermill."""

import ast
import re
import signal
import sys
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from perfkit.cli.options import TOO_LITTLE_MEMORY
from perfkit.config import ROOT, portable
from perfkit.models import MODELS
from perfkit.request import RequestError

PLAN_CALL = re.compile(r"^[^#\n]*\bplan\(\s*[\"'](\w*)[\"']", re.MULTILINE)
"""The call of `perfkit.plan` in a cell, with the model's name."""
INTERRUPTED = "Interrupted; finished repeats are kept, and the same command goes on."


class Source(NamedTuple):
    """A notebook that measures `model`, and the values in its parameters cell; `own` if it is
    not the suite's."""

    path: Path
    model: str
    values: dict[str, Any]
    own: bool


def source_of(model: str) -> Source:
    """The notebook of a model, or the notebook at this path. Raises RequestError."""
    import nbformat

    suites = ROOT / "notebooks" / f"{model}.ipynb"
    path = suites if model in MODELS else Path(model).expanduser().absolute()
    if path.suffix != ".ipynb":
        # `plan` refuses it, as the misspelt name of a model.
        return Source(path, model, {}, own=True)
    try:
        notebook = nbformat.read(path, as_version=4)
    except OSError as error:
        raise RequestError([f"{path}: {error.strerror}"]) from None
    except (nbformat.reader.NotJSONError, nbformat.ValidationError, UnicodeDecodeError):
        raise RequestError([f"{path}: not a notebook"]) from None
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    models = [*dict.fromkeys(name for c in cells for name in PLAN_CALL.findall(c.source))]
    if len(models) != 1:
        found = f"cells plan several: {', '.join(models)}" if models else "no cell has it"
        needed = f'needs one perfkit.plan("MODEL", globals()), MODEL of {", ".join(MODELS)}'
        raise RequestError([f"{model}: {needed}; {found}"])
    values: dict[str, Any] = {}
    tagged = [c.source for c in cells if "parameters" in c.metadata.get("tags", [])]
    try:
        for line in ast.parse("\n".join(tagged)).body:
            if isinstance(line, ast.Assign):
                values[ast.unparse(line.targets[0])] = ast.literal_eval(line.value)
    except (SyntaxError, ValueError) as error:
        problem = "the cell of parameters may only set names to plain values"
        raise RequestError([f"{path}: {problem}: {error}"]) from None
    own = path.resolve() != ROOT / "notebooks" / f"{models[0]}.ipynb"
    return Source(path, models[0], values, own)


def execute(notebook: Path, executed: Path, values: dict[str, Any]) -> tuple[str, str]:
    """Run the notebook through papermill; name and message of its error, empty if none."""
    import papermill
    from nbclient.exceptions import DeadKernelError
    from papermill.exceptions import PapermillExecutionError

    from perfkit.results.store import read_file, write_atomically

    # Papermill would follow a link.
    executed.unlink(missing_ok=True)
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
    except (
        PapermillExecutionError,
        DeadKernelError,
        KeyboardInterrupt,
        # The folder was removed meanwhile; papermill says which.
        FileNotFoundError,
    ) as error:
        name = getattr(error, "ename", type(error).__name__)
        text = getattr(error, "evalue", str(error))
        known = {
            "KeyboardInterrupt": INTERRUPTED,
            "MemoryError": text or TOO_LITTLE_MEMORY,
            "DeadKernelError": "The notebook's kernel died.",
        }
        return name, known.get(name, text)
    finally:
        signal.signal(signal.SIGINT, usual)
        if executed.exists():
            write_atomically(executed, portable(read_file(executed).decode()))
    return "", ""
