"""What `make check` runs: the tests that start no process, of files that import no framework.

Both follow from the tests themselves, so that neither needs a list. A test may start a process
only if it has the fixture `processes`, itself or through another one that starts some; whatever
else starts one is refused, also in `make test`. Forks are not looked at, as sample images are
made by some; a test that renders a whole site, by forks too, has the fixture for its time.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

TELLING = {"git", "make", "nvidia-smi", "uname"}
"""What any test may start: it only tells what this checkout and this machine are, or what make
would do."""
SLOW_IMPORTS = {"paddle", "torch", "jax", "tensorflow", "playwright"}
refused_for: str | None = None
"""The test at work, if it may start no process."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--quick", action="store_true", help="only tests that start no process, nor a framework"
    )


@pytest.fixture(scope="session")
def processes() -> None:
    """Lets a test start processes."""


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    if refused_for and event == "subprocess.Popen":
        name = Path(str(arguments[0])).name
        if name not in TELLING:
            pytest.fail(
                f"{refused_for} starts {name}: such a test needs the fixture `processes`, "
                'as by @pytest.mark.usefixtures("processes")'
            )


sys.addaudithook(_refuse)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Function) -> Iterator[None]:
    return (yield from _watched(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Function) -> Iterator[None]:
    return (yield from _watched(item))


def _watched(item: pytest.Function) -> Iterator[None]:
    # Not in its teardown: it may be the last before that of a fixture which others shared.
    global refused_for  # noqa: PLW0603 - an audit hook has no other way to know
    refused_for = None if "processes" in item.fixturenames else item.name
    try:
        return (yield)
    finally:
        refused_for = None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if config.getoption("quick") and collection_path.suffix == ".py":
        return True if _imported(collection_path) & SLOW_IMPORTS else None
    return None


def _imported(file: Path) -> set[str]:
    """The packages that a file imports when it is imported itself."""
    found = set()
    for node in ast.parse(file.read_bytes()).body:
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").partition(".")[0])
        elif isinstance(node, ast.Assign) and "importorskip" in ast.dump(node.value):
            found |= {n.value for n in ast.walk(node.value) if isinstance(n, ast.Constant)}
    return found


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The long ones first, so that none is left to one core at the end."""
    long = {item for item in items if "processes" in getattr(item, "fixturenames", ())}
    if config.getoption("quick"):
        config.hook.pytest_deselected(items=[*long])
        items[:] = [item for item in items if item not in long]
    else:
        items.sort(key=lambda item: item not in long)
