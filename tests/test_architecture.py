"""The rooms of docs/architecture.md and their imports."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from perfkit.measuring.paths import ROOT

PACKAGE = ROOT / "perfkit"
PAGE = (ROOT / "docs" / "architecture.md").read_text()
ROOMS = [
    "timing",
    "inputs",
    "training",
    "measuring",
    "analysis",
    "audit",
    "report",
    "sweep",
    "cli",
]
"""In the page's order: a room imports the rooms before it."""
FACTS = (
    "perfkit.training.models",
    "perfkit.training.frameworks",
    "perfkit.training.options",
)
"""Facts and arguments without a framework, which inputs/ imports too."""
FRAMEWORKS = {"paddle", "torch", "jax", "tensorflow", "mxnet", "nvidia"}


def imported(file: Path) -> Iterator[str]:
    """Yield the modules that a file imports, at any level."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{name.name}" for name in node.names)


def imported_rooms(room: str) -> set[str]:
    rooms = set()
    for file in (PACKAGE / room).rglob("*.py"):
        for module in imported(file):
            if module.startswith("perfkit.") and not module.startswith(FACTS):
                rooms.add(module.split(".")[1])
    return rooms - {room}


def test_the_package_has_the_rooms_of_the_page():
    existing = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    modules = {path.name for path in PACKAGE.glob("*.py")}
    assert existing == {*ROOMS}
    assert modules == {"__init__.py", "entry.py"}
    assert re.findall(r"<b>(\w+)/</b>", PAGE) == ROOMS


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_rooms_above_it(room):
    above = {*ROOMS[: ROOMS.index(room)]}
    assert imported_rooms(room) <= above


def test_only_worker_code_imports_a_framework():
    importers = {
        str(file.relative_to(PACKAGE))
        for file in PACKAGE.rglob("*.py")
        if FRAMEWORKS & {name.split(".")[0] for name in imported(file)}
    }
    workers = re.compile(
        r"inputs/dali\.py|training/(paddle|torch|jax|tensorflow|mxnet)/\w+\.py"
    )
    assert importers and all(workers.fullmatch(name) for name in importers)
