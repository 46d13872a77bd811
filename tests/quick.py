"""Selects the tests of `make check`: no processes, no simulations, and no file that imports a
framework.

All follow from the tests themselves, without a list. Only tests with the fixture `processes`,
directly or through another fixture, may start a process; any other start fails the test, in
`make test` too. Forks are not detected, because sample images are made in forks; tests that
draw every chart of a page or site have the fixture because they take long.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ALLOWED = {"cc", "git", "ldconfig", "make", "nvidia-smi", "uname"}
"""Programs that any test may start: they only report on the repository, make and machine, or
compile the fake NVML. Python asks ldconfig for libraries while PyTorch is imported."""
SLOW_IMPORTS = {"paddle", "torch", "jax", "tensorflow", "playwright"}
restricted_test: str | None = None
"""The name of the running test if it may start no process."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--quick", action="store_true", help="no processes, frameworks and simulations"
    )


@pytest.fixture(scope="session")
def processes() -> None:
    """Allows a test to start processes."""


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    if restricted_test and event == "subprocess.Popen":
        name = Path(str(arguments[0])).name
        if name not in ALLOWED:
            pytest.fail(
                f"{restricted_test} starts {name}, which needs the fixture `processes`: "
                'add @pytest.mark.usefixtures("processes")'
            )


sys.addaudithook(_refuse)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Function) -> Iterator[None]:
    return (yield from _restricted(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Function) -> Iterator[None]:
    return (yield from _restricted(item))


def _restricted(item: pytest.Function) -> Iterator[None]:
    # Teardown is unrestricted, because it may also tear down a shared fixture.
    global restricted_test  # noqa: PLW0603 - an audit hook has no other way to know
    restricted_test = None if "processes" in item.fixturenames else item.name
    try:
        return (yield)
    finally:
        restricted_test = None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if not config.getoption("quick") or collection_path.suffix != ".py":
        return None
    imports_slowly = bool(_imported(collection_path) & SLOW_IMPORTS)
    return imports_slowly or None


def _imported(file: Path) -> set[str]:
    """Return the packages that a file imports at module level."""
    modules: list[str] = []
    for node in ast.parse(file.read_bytes()).body:
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules.append(node.module or "")
        elif isinstance(node, ast.Assign) and "importorskip" in ast.dump(node.value):
            constants = [n for n in ast.walk(node.value) if isinstance(n, ast.Constant)]
            modules += [str(constant.value) for constant in constants]
    return {module.partition(".")[0] for module in modules}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run long tests first, so that none runs alone at the end."""
    if config.getoption("quick"):
        left_out = [item for item in items if _starts_processes(item) or _simulates(item)]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
    else:
        items.sort(key=_starts_processes, reverse=True)


def _starts_processes(item: pytest.Item) -> bool:
    return "processes" in getattr(item, "fixturenames", ())


def _simulates(item: pytest.Item) -> bool:
    return "simulations" in item.function.__code__.co_names
