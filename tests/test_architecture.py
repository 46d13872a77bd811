"""The rooms of docs/architecture.md are those of the code, and so are their imports."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from perfkit.config import ROOT

PACKAGE = ROOT / "perfkit"
PAGE = (ROOT / "docs" / "architecture.md").read_text()
ROW = re.compile(r"^\| `([a-z]+)(?:/|\.py)` \| [^|]+ \| ([^|]*) \|$", re.MULTILINE)
ROOMS = {room: {*re.findall(r"[a-z]+", imports)} for room, imports in ROW.findall(PAGE)}
"""What each room of the page imports, in the page's order."""
FRAMEWORKS = {"paddle", "torch", "jax", "tensorflow", "mxnet", "nvidia"}


def imported(file: Path) -> Iterator[str]:
    """The modules that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{name.name}" for name in node.names)


def files_of(room: str) -> list[Path]:
    folder = PACKAGE / room
    return sorted(folder.rglob("*.py")) if folder.is_dir() else [PACKAGE / f"{room}.py"]


def test_the_page_lists_every_package():
    there = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    there |= {path.stem for path in PACKAGE.glob("*.py")} - {"__init__"}
    assert there == {*ROOMS}


@pytest.mark.parametrize("room", ROOMS)
def test_a_package_imports_only_packages_listed_above_it(room):
    modules = {name for file in files_of(room) for name in imported(file)}
    found = {name.split(".")[1] for name in modules if name.startswith("perfkit.")} - {room}
    assert found == ROOMS[room]
    above = [*ROOMS][: [*ROOMS].index(room)]
    assert found <= {*above}


def test_only_worker_code_imports_a_framework():
    importers = {
        str(file.relative_to(PACKAGE))
        for file in PACKAGE.rglob("*.py")
        if FRAMEWORKS & {name.split(".")[0] for name in imported(file)}
    }
    workers = re.compile(
        r"frameworks/(paddle|torch|jax|tensorflow|mxnet)/\w+\.py|inputs/dali\.py"
    )
    assert importers and all(workers.fullmatch(name) for name in importers)


def test_package_docstrings_list_every_module():
    """A room with several modules says in its first lines what each is for."""
    for folder in PACKAGE.glob("*/__init__.py"):
        named = {*re.findall(r"^([a-z0-9_]+\.py) ", folder.read_text(), re.MULTILINE)}
        if named:
            there = {path.name for path in folder.parent.glob("*.py")} - {"__init__.py"}
            assert named == there, folder.parent.name
