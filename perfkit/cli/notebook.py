"""Reads the notebook of a model, or of scripts, and runs it through papermill."""

import ast
import logging
import re
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import Any

import psutil

from perfkit.cli.options import TOO_LITTLE_MEMORY
from perfkit.measuring.paths import ROOT, absolute_path
from perfkit.measuring.request import RequestError
from perfkit.measuring.request.suite_notebook import suite_notebook_path
from perfkit.measuring.system.scratch import Scratch
from perfkit.measuring.work import KINDS
from perfkit.timing.failure import portable
from perfkit.training.models import MODELS

PLAN_CALL = re.compile(r"^[^#\n]*\bplan\(\s*[\"'](\w*)[\"']", re.MULTILINE)
"""A cell's call of `perfkit.plan`; the group is the model's name."""
KERNEL_START_SECONDS = 300
"""On a busy node, or with packages on a network disk, papermill's 60 s may be too little."""


@dataclass(frozen=True)
class ModelNotebook:
    """A notebook that measures `model`."""

    path: Path
    model: str
    values: dict[str, Any]
    """values of its parameters cell"""
    injected: dict[str, Any]
    """values that papermill injected into an executed copy"""
    is_own: bool
    """whether it is the user's"""


@dataclass(frozen=True)
class NotebookError:
    """The error that ended a notebook: the name of its type, and its message."""

    name: str
    message: str


def model_notebook(name: str) -> ModelNotebook:
    """Return the notebook of a model or of scripts, or the notebook at a path. Raises
    RequestError if it can't be read, does not plan exactly one model, or has parameters other
    than literals."""
    is_of_suite = name in (*MODELS, *KINDS)
    path = suite_notebook_path(name) if is_of_suite else absolute_path(name)
    if path.suffix != ".ipynb":
        # `plan` reports the misspelt model.
        return ModelNotebook(path, name, {}, {}, is_own=True)
    cells = _code_cells(path)
    model = _planned_model(cells, name)
    try:
        values = _literals(cells, "parameters")
        injected = _literals(cells, "injected-parameters")
    except (SyntaxError, ValueError, TypeError, RecursionError) as error:
        problem = "the parameters cell may only assign literals"
        raise RequestError([f"{path}: {problem}: {error}"]) from None
    is_own = path.resolve() != ROOT / "notebooks" / f"{model}.ipynb"
    return ModelNotebook(path, model, values | injected, injected, is_own)


def _code_cells(path: Path) -> list[Any]:
    """Return the code cells of a notebook. Raises RequestError if it can't be read or run."""
    import nbformat

    try:
        notebook = nbformat.reads(path.read_text(encoding="utf-8"), as_version=4)
        nbformat.validate(notebook, relax_add_props=True)
    except OSError as error:
        raise RequestError([f"{path}: {error.strerror}"]) from None
    # Of values of wrong types, nbformat raises errors of any type.
    except Exception as error:
        reason = shorten(f"{type(error).__name__}: {error}", 200, placeholder=" …")
        remedy = "begin with a copy of one in notebooks/"
        raise RequestError([f"{path}: not a notebook ({reason}); {remedy}"]) from None
    if not notebook.metadata.get("kernelspec", {}).get("name"):
        raise RequestError([f"{path}: names no kernel; choose one in Jupyter and save it"])
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def _planned_model(cells: list[Any], name: str) -> str:
    """Return the model that the cells of the notebook with this name plan. Raises RequestError
    unless it is exactly one."""
    models: list[str] = []
    for cell in cells:
        models += PLAN_CALL.findall(cell.source)
    names = [*dict.fromkeys(models)]
    if len(names) == 1:
        return names[0]
    every = ", ".join([*MODELS, *KINDS])
    needed = f'must call perfkit.plan("MODEL", globals()) for one of {every}'
    actual = f"it plans several: {', '.join(names)}" if names else "no cell does"
    raise RequestError([f"{name}: {needed}; {actual}"])


def _literals(cells: list[Any], tag: str) -> dict[str, Any]:
    """Return the literals that the cells with this tag assign. Raises SyntaxError and
    ValueError for anything else."""
    values: dict[str, Any] = {}
    sources = [cell.source for cell in cells if tag in cell.metadata.get("tags", [])]
    module = ast.parse("\n".join(sources))
    for line in module.body:
        match line:
            case (
                ast.Assign(targets=[ast.Name(name)], value=value)
                | ast.AnnAssign(target=ast.Name(name), value=ast.expr() as value)
            ):
                values[name] = ast.literal_eval(value)
            case ast.Expr(ast.Constant()):
                pass
            case _:
                raise ValueError(ast.unparse(line))
    return values


def execute(notebook: Path, executed: Path, values: dict[str, Any]) -> NotebookError | None:
    """Run a notebook through papermill, which writes it to `executed`; return the error that
    ended it, if any."""
    from perfkit.measuring.results.store import write_atomically

    # That of an earlier run must not be taken for this one's.
    executed.unlink(missing_ok=True)
    interrupts = KernelInterrupts()
    try:
        with Scratch() as scratch:
            error = _run_papermill(
                notebook, executed, values, scratch.folder, interrupts.before_cell
            )
        if error and interrupts.came:
            # Whatever the interrupt led to.
            return _named_error(KeyboardInterrupt.__name__, "")
        return error
    finally:
        interrupts.restore()
        if executed.exists():
            write_atomically(executed, portable(executed.read_text(encoding="utf-8")))


class KernelInterrupts:
    """Passes the first interrupt of this process on to the kernel; a second one ends this
    process, and so the kernel."""

    def __init__(self) -> None:
        self.previous = signal.getsignal(signal.SIGINT)
        self.came = False
        # A kernel that starts ignores SIGINT, and papermill may hang if it is interrupted.
        self.passed_on = signal.SIGKILL
        # A shell may have set interrupts to be ignored.
        if self.previous is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, self._interrupt_kernel)

    def before_cell(self, **_: object) -> None:
        """Papermill calls this before each cell."""
        if self.came:
            # The kernel was between two cells.
            raise KeyboardInterrupt
        self.passed_on = signal.SIGINT

    def _interrupt_kernel(self, *_: object) -> None:
        self.came = True
        self.restore()
        # Papermill would print that its kernel died.
        logging.disable()
        kernels = psutil.Process().children()
        if not kernels:
            raise KeyboardInterrupt
        for kernel in kernels:
            kernel.send_signal(self.passed_on)

    def restore(self) -> None:
        """Handle interrupts as before."""
        signal.signal(signal.SIGINT, self.previous)


def _run_papermill(
    notebook: Path,
    executed: Path,
    values: dict[str, Any],
    scratch: Path,
    on_cell: Callable[..., None],
) -> NotebookError | None:
    """Run a notebook, calling `on_cell` before each cell; return its error, if any. The file
    with the kernel's key is in `scratch`, which is removed even after a kill."""
    import papermill
    from jupyter_client.kernelspec import NoSuchKernel
    from papermill.exceptions import PapermillExecutionError
    from traitlets.config import Config

    from perfkit.measuring.driver.progress import KernelOutput

    manager = {"connection_file": str(scratch / "kernel.json")}
    try:
        with KernelOutput() as kernel_output:
            papermill.execute_notebook(
                _without_format(notebook),
                _without_format(executed),
                values,
                language="python",
                progress_bar=False,
                stdout_file=kernel_output,
                coalesce_streams=True,
                on_cell_execute=on_cell,
                config=Config(KernelManager=manager),
                start_timeout=KERNEL_START_SECONDS,
                # Else the kernel gets another SIGINT at its end, and prints a stack trace.
                shutdown_kernel="immediate",
            )
    except NoSuchKernel as error:
        message = f"{notebook}: its kernel {error.name!r} is not installed here"
        return NotebookError(RequestError.__name__, message)
    except PapermillExecutionError as error:
        return _named_error(error.ename, error.evalue)
    except (
        RuntimeError,  # the kernel died (DeadKernelError), or did not start in time
        KeyboardInterrupt,
        FileNotFoundError,  # the folder was removed during the run; papermill names it
    ) as error:
        return _named_error(type(error).__name__, str(error))
    return None


def _without_format(path: Path) -> str:
    """Return a path as papermill reads it, which takes paths for format strings."""
    return re.sub(r"[{}]", r"\g<0>\g<0>", str(path))


def _named_error(name: str, message: str) -> NotebookError:
    """Return an error of the notebook; some types have no message that a user understands."""
    messages = {
        "KeyboardInterrupt": "Interrupted.",
        "MemoryError": message or TOO_LITTLE_MEMORY,
        "DeadKernelError": "The notebook's kernel died.",
    }
    return NotebookError(name, messages.get(name, message))
