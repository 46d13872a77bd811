"""docs/architecture.md lists the packages and their imports."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from perfkit.config import ROOT

PACKAGE = ROOT / "perfkit"
PAGE = (ROOT / "docs" / "architecture.md").read_text()
ROW = re.compile(r"^\| `([a-z]+)(?:/|\.py)` \| [^|]+ \| ([^|]*) \|$", re.MULTILINE)
PACKAGES = {name: {*re.findall(r"[a-z]+", imports)} for name, imports in ROW.findall(PAGE)}
"""Package -> packages that it may import, in the page's order."""
FRAMEWORKS = {"paddle", "torch", "jax", "tensorflow", "mxnet", "nvidia"}


def imported(file: Path) -> Iterator[str]:
    """Yield the modules that a file imports, at any level."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{name.name}" for name in node.names)


def files_of(name: str) -> list[Path]:
    folder = PACKAGE / name
    return sorted(folder.rglob("*.py")) if folder.is_dir() else [PACKAGE / f"{name}.py"]


def test_the_page_lists_every_package():
    existing = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    existing |= {path.stem for path in PACKAGE.glob("*.py")} - {"__init__"}
    assert existing == {*PACKAGES}


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_imports_only_packages_listed_above_it(name):
    modules = {module for file in files_of(name) for module in imported(file)}
    found = {module.split(".")[1] for module in modules if module.startswith("perfkit.")}
    assert found - {name} == PACKAGES[name]
    assert PACKAGES[name] <= {*[*PACKAGES][: [*PACKAGES].index(name)]}


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
    for init in PACKAGE.glob("*/__init__.py"):
        named = {*re.findall(r"^([a-z0-9_]+\.py) ", init.read_text(), re.MULTILINE)}
        existing = {path.name for path in init.parent.glob("*.py")} - {"__init__.py"}
        assert named in (set(), existing), init.parent.name


def test_no_test_imports_another_test():
    importers = []
    for file in Path(__file__).parent.glob("*.py"):
        if any(name.startswith("test_") for name in imported(file)):
            importers.append(file.name)
    assert importers == []
