"""Folders that one of several pytest processes fills for all of them."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """Return a folder that `make` has filled, once in this run of the tests, whichever process
    has the first test that needs it: the tests of a module can be in several."""
    runs = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        runs = runs.parent
    folder = runs / name
    with FileLock(runs / f"{name}.lock"):
        if not folder.exists():
            unfinished = runs / f"{name}-unfinished"
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()
            make(unfinished)
            unfinished.rename(folder)
    return folder
