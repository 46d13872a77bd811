"""Paths in parameters: absolute for use on this machine, without user names for publication."""

import os
import re
import shlex
import sys
from pathlib import Path

from perfkit.timing import failure

ROOT = failure.ROOT
"""The checkout, or the folder in which the package is installed."""
IS_CHECKOUT = (ROOT / "notebooks" / "resnet50.ipynb").is_file()
STORED_START = ROOT if IS_CHECKOUT else Path()
"""Where relative paths in stored configurations start: in the checkout, whose path they leave
out; without one, in the working directory."""
OUTPUTS = "outputs"
"""The default folder of the results."""
URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


def expanded(path: str) -> Path:
    """Expand `~`; `~name` of an unknown user is kept."""
    return Path(os.path.expanduser(path))  # noqa: PTH111


def absolute_path(path: str | Path) -> Path:
    """Return a path of a request as an absolute path; links stay, which locate environments.
    Relative paths start in the working directory."""
    return expanded(str(path)).absolute()


def results_path(path: str | Path) -> Path:
    """Return the path of results that a request names as an absolute path; links stay.

    Relative paths start in the working directory; but from anywhere in the checkout, `outputs`,
    the default, and what is below it, is the folder at the top of the checkout, since
    JupyterLab starts a notebook in its own folder.
    """
    words = str(path)
    is_usual = words == OUTPUTS or words.startswith(f"{OUTPUTS}/")
    if is_usual and IS_CHECKOUT and Path.cwd().is_relative_to(ROOT):
        return ROOT / words
    return absolute_path(words)


def outputs_path(path: str | Path = OUTPUTS) -> Path:
    """Return the path of results that a request names, as `results_path`, without links."""
    return Path(os.path.realpath(results_path(path)))


def in_checkout(command: str) -> str:
    """Return a command that works in the checkout for the working directory."""
    if Path.cwd() == ROOT or not IS_CHECKOUT:
        return command
    return f"cd {shlex.quote(str(ROOT))} && {command}"


def stored_path(path: str) -> Path:
    """Return a path of a configuration as an absolute path without links."""
    return Path(os.path.realpath(STORED_START / expanded(path)))


def interpreter_path(python: str | None) -> str:
    """Return the workers' interpreter of a configuration as an absolute path; links stay, which
    locate environments."""
    if not python:
        return sys.executable
    return str((STORED_START / expanded(python)).absolute())
