"""Reads a model's notebook and runs it through papermill."""

import ast
import re
import signal
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from perfkit.cli.options import TOO_LITTLE_MEMORY
from perfkit.core.models import MODELS
from perfkit.core.paths import ROOT, expanded, portable
from perfkit.core.request import RequestError

PLAN_CALL = re.compile(r"^[^#\n]*\bplan\(\s*[\"'](\w*)[\"']", re.MULTILINE)
"""A cell's call of `perfkit.plan`; the group is the model's name."""
INTERRUPTED = "Interrupted; finished repeats are kept, and the same command continues."


class Source(NamedTuple):
    """A notebook that measures `model`, with the values of its parameters cell, and those that
    papermill injected into an executed copy. `own` is true for a user's notebook."""

    path: Path
    model: str
    values: dict[str, Any]
    injected: dict[str, Any]
    own: bool


def source_of(model: str) -> Source:
    """Return the notebook of a model, or the notebook at a path. Raises RequestError if it
    can't be read, does not plan exactly one model, or has parameters other than literals."""
    import nbformat

    suite_path = ROOT / "notebooks" / f"{model}.ipynb"
    path = suite_path if model in MODELS else expanded(model).absolute()
    if path.suffix != ".ipynb":
        # `plan` reports the misspelt model.
        return Source(path, model, {}, {}, own=True)
    try:
        notebook = nbformat.read(path, as_version=4)
    except OSError as error:
        raise RequestError([f"{path}: {error.strerror}"]) from None
    except (nbformat.ValidationError, ValueError, AttributeError, RecursionError):
        raise RequestError([f"{path}: not a notebook"]) from None
    if not notebook.metadata.get("kernelspec", {}).get("name"):
        raise RequestError([f"{path}: names no kernel; choose one in Jupyter and save it"])
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    models = [*dict.fromkeys(name for c in cells for name in PLAN_CALL.findall(c.source))]
    if len(models) != 1:
        found = f"it plans several: {', '.join(models)}" if models else "no cell does"
        needed = f'must call perfkit.plan("MODEL", globals()) for one of {", ".join(MODELS)}'
        raise RequestError([f"{model}: {needed}; {found}"])
    try:
        values = _literals(cells, "parameters")
        injected = _literals(cells, "injected-parameters")
    except (SyntaxError, ValueError, TypeError, RecursionError) as error:
        problem = "the parameters cell may only assign literals"
        raise RequestError([f"{path}: {problem}: {error}"]) from None
    own = path.resolve() != ROOT / "notebooks" / f"{models[0]}.ipynb"
    return Source(path, models[0], values | injected, injected, own)


def _literals(cells: list[Any], tag: str) -> dict[str, Any]:
    """Return the literals that the cells with this tag assign. Raises SyntaxError and
    ValueError for anything else."""
    values: dict[str, Any] = {}
    tagged = [c.source for c in cells if tag in c.metadata.get("tags", [])]
    for line in ast.parse("\n".join(tagged)).body:
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


def execute(notebook: Path, executed: Path, values: dict[str, Any]) -> tuple[str, str]:
    """Run a notebook through papermill; return name and message of its error, or empty text."""
    import papermill
    from jupyter_client.kernelspec import NoSuchKernel
    from nbclient.exceptions import DeadKernelError
    from papermill.exceptions import PapermillExecutionError

    from perfkit.core.driver.live import KernelOutput
    from perfkit.core.results.store import read_file, write_atomically

    # Papermill would follow a link.
    executed.unlink(missing_ok=True)
    previous = signal.getsignal(signal.SIGINT)

    def interrupt(*_: object) -> None:
        # A second interrupt ends papermill and the kernel.
        signal.signal(signal.SIGINT, previous)
        for kernel in psutil.Process().children():
            kernel.send_signal(signal.SIGINT)

    def handle_interrupts(**_: object) -> None:
        # Not before the kernel handles interrupts: papermill would drop it in mid-reply.
        if previous is signal.default_int_handler:
            signal.signal(signal.SIGINT, interrupt)

    try:
        # Papermill takes paths for format strings.
        paths = (re.sub(r"[{}]", r"\g<0>\g<0>", str(path)) for path in (notebook, executed))
        with KernelOutput() as kernel_output:
            papermill.execute_notebook(
                *paths,
                values,
                language="python",
                progress_bar=False,
                stdout_file=kernel_output,
                coalesce_streams=True,
                on_cell_execute=handle_interrupts,
                # Else the kernel gets another SIGINT at its end, and prints a stack trace.
                shutdown_kernel="immediate",
            )
    except NoSuchKernel as error:
        return "RequestError", f"{notebook}: its kernel {error.name!r} is not installed here"
    except (
        PapermillExecutionError,
        DeadKernelError,
        KeyboardInterrupt,
        FileNotFoundError,  # the folder was removed during the run; papermill names it
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
        signal.signal(signal.SIGINT, previous)
        if executed.exists():
            write_atomically(executed, portable(read_file(executed).decode()))
    return "", ""
