"""Packages of an interpreter, read from files, since importing a framework would start it. Runs
in other environments, too, so it imports only the standard library."""

import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from perfkit.training.frameworks import CUDA_VERSIONS, Framework

OLDEST = (3, 11)
"""The oldest Python that workers run on."""
Sources = Mapping[str, Sequence[str]]
"""Fact -> sources of its version, in order of preference: a distribution (`jax`), or a string
assigned in a module's file (`torch/version.py:cuda`)."""
PACKAGES: Sources = {
    "dali": tuple(f"nvidia-dali-cuda{cuda}0" for cuda in CUDA_VERSIONS),
    "h5py": ("h5py",),
    "pillow": ("pillow",),
    "numpy": ("numpy",),
}
"""Sources of the packages that inputs use."""
NAME = r"(python|pypy)[\w.-]*"
"""Pattern of an interpreter's file name. Other programs are not started."""
START = f"""
import runpy, sys
if sys.version_info < {OLDEST}:
    sys.exit("Python " + sys.version.split()[0] + "; needs {OLDEST[0]}.{OLDEST[1]} or later")
runpy.run_path(sys.argv.pop(1), run_name="__main__")
"""
"""Code that old interpreters can run, too."""
MOST_SECONDS = 60
ABSENT = ("False", "0", "None")
"""Values that a build has instead of the version of a component that it lacks."""


class InterpreterError(ValueError):
    """Workers can't run on an interpreter."""

    def __init__(self, interpreter: str, reason: str) -> None:
        self.interpreter = interpreter
        self.reason = reason
        super().__init__(f"{interpreter}: {reason}")


class Software(NamedTuple):
    """Versions of an interpreter and of facts (None: not installed); missing modules."""

    python: str
    versions: dict[str, str | None]
    lacking: list[str]


def read_software(interpreter: str, sources: Sources, modules: Sequence[str] = ()) -> Software:
    """Read the packages of `interpreter`, by running this file in it if it is another one.
    Raises InterpreterError."""
    if interpreter == sys.executable:
        return _software(sources, modules)
    return Software(*ask(interpreter, START, __file__, json.dumps([sources, modules])))


def search_path(interpreter: str) -> dict[str, str]:
    """Return the variable by which another interpreter finds perfkit."""
    if interpreter == sys.executable:
        return {}
    folders = [str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH", "")]
    return {"PYTHONPATH": os.pathsep.join(filter(None, folders))}


def ask(interpreter: str, code: str, *words: str) -> Any:
    """Run `code` in `interpreter` and parse its last line as JSON. Raises InterpreterError."""
    path = Path(interpreter)
    if path.is_dir() or not re.fullmatch(NAME, path.name):
        reason = "is not a Python interpreter; use one such as .venv/bin/python"
        raise InterpreterError(interpreter, reason)
    try:
        done = subprocess.run(
            [interpreter, "-c", code, *words],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=MOST_SECONDS,
            check=False,
            env=os.environ | search_path(interpreter),
        )
    except OSError as error:
        raise InterpreterError(interpreter, error.strerror or str(error)) from None
    except subprocess.TimeoutExpired:
        raise InterpreterError(interpreter, f"no answer within {MOST_SECONDS} s") from None
    try:
        return json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        _before, _newline, last = done.stderr.strip().rpartition("\n")
        silent = f"exited with status {done.returncode} and no answer"
        raise InterpreterError(interpreter, last or silent) from None


def _software(sources: Sources, modules: Sequence[str]) -> Software:
    versions = {fact: find_version(*places) for fact, places in sources.items()}
    lacking = [module for module in modules if not _installed(module)]
    return Software(platform.python_version(), versions, lacking)


def _installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def find_version(*places: str) -> str | None:
    """Return the version from the first of these sources (Sources) that has one."""
    for place in places:
        release = _assigned(place) if ":" in place else _distributed(place)
        if release:
            return release
    return None


def installed_version(framework: Framework) -> str | None:
    """Return a framework's version; None if this interpreter does not have it."""
    return find_version(*framework.versions[framework.facts[0]])


def _assigned(place: str) -> str | None:
    """Return the string assigned at `module/file:name`."""
    path, _colon, name = place.partition(":")
    module, _slash, file = path.partition("/")
    return constants(module, file).get(name)


def _distributed(distribution: str) -> str | None:
    """Return the version of an installed distribution, with the CUDA version in its name."""
    try:
        installed = version(distribution)
    except PackageNotFoundError:
        return None
    cuda = re.search(r"cuda(\d\d)0$", distribution)
    return f"{installed} (CUDA {cuda[1]} build)" if cuda else installed


def constants(module: str, file: str) -> dict[str, str]:
    """Return the strings and lists assigned in `file` of a module, such as `cuda_version`,
    without values that mean the absence of a component; empty for a module that is not
    installed."""
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        return {}
    text = (Path(spec.origin).parent / file).read_text()
    assigned = re.findall(
        r"^(\w+) *(?:: .+?)?= *(?:['\"](.+)['\"]|(\[.+\]))$", text, re.MULTILINE
    )
    values = {name: text or items for name, text, items in assigned}
    return {name: value for name, value in values.items() if value not in ABSENT}


if __name__ == "__main__":
    print(json.dumps(_software(*json.loads(sys.argv[1]))))
