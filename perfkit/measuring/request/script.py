"""Reads a training script of the user's without running it: the digest of its content, the
local modules and the frameworks that it imports, and what is wrong with it."""

import ast
import hashlib
import platform
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfkit.measuring.paths import stored_path
from perfkit.measuring.request import suggest
from perfkit.timing.frameworks import OF_SCRIPTS
from perfkit.training.frameworks import FRAMEWORKS

SUFFIX = ".py"

IMPLIED_BY = {
    "torch": (
        *("accelerate", "deepspeed", "diffusers", "lightning", "peft", "pytorch_lightning"),
        *("timm", "torchaudio", "torchvision", "transformers", "trl"),
    ),
    "paddle": ("paddlenlp", "paddleformers"),
    "jax": ("equinox", "flax", "haiku", "optax"),
    "tensorflow": ("keras", "tf_keras"),
    "mxnet": ("gluoncv", "gluonnlp"),
}
"""Framework -> packages that imply it, if the script imports no framework by its own name."""
TIMER_PACKAGE = "perfkit"


@dataclass(frozen=True)
class ScriptContent:
    """What a script and its local modules say, without running them."""

    sha256: str
    """digest of the names and contents of the script and its modules"""
    modules: list[str]
    """dotted names of the local modules that are imported, at any depth, sorted"""
    frameworks: list[str]
    """frameworks that are imported by name; without any, those that other packages imply"""
    imports_perfkit: bool
    """whether the script or a module imports perfkit, which has the timer"""
    fault: str
    """why the script is not valid Python; empty if it is"""
    fault_line: int
    """line of the fault, 0 without one"""


def read_script(script: Path) -> ScriptContent:
    """Read a script. A local module with a fault is searched for no imports. Raises OSError."""
    folder = script.parent
    contents = {script.name: script.read_bytes()}
    packages: set[str] = set()
    fault, fault_line = "", 0
    try:
        imported = _imported_names(contents[script.name], package="")
    except SyntaxError as error:
        fault, fault_line = error.msg, error.lineno or 0
        imported = set()
    waiting = sorted(imported)
    while waiting:
        name = waiting.pop()
        file = _module_file(folder, name)
        if file is None:
            packages.add(name.partition(".")[0])
        elif name not in contents:
            contents[name] = file.read_bytes()
            package = name if file.name == "__init__.py" else name.rpartition(".")[0]
            # The script need not import a module that is not valid Python.
            with suppress(SyntaxError):
                waiting += sorted(_imported_names(contents[name], package))
    modules = sorted(contents.keys() - {script.name})
    packages -= {name.partition(".")[0] for name in modules}
    return ScriptContent(
        sha256=digest_of(contents),
        modules=modules,
        frameworks=_frameworks(packages),
        imports_perfkit=TIMER_PACKAGE in packages,
        fault=fault,
        fault_line=fault_line,
    )


def script_digest(script: Path) -> str:
    """Return the digest of a script and its local modules. Raises OSError."""
    return read_script(script).sha256


def digest_of(contents: Mapping[str, bytes]) -> str:
    """Return the digest of files by their names."""
    digest = hashlib.sha256()
    for name, content in sorted(contents.items()):
        digest.update(f"{name}\0{len(content)}\0".encode(errors="surrogateescape"))
        digest.update(content)
    return digest.hexdigest()


def _frameworks(packages: set[str]) -> list[str]:
    """Return the frameworks among the imported packages, or those that the packages imply."""
    by_name = [name for name in FRAMEWORKS if name in packages]
    if by_name:
        return by_name
    return [name for name, implying in IMPLIED_BY.items() if packages.intersection(implying)]


def _module_file(folder: Path, name: str) -> Path | None:
    """Return the file of a module below the script's folder; None if it is elsewhere."""
    place = folder.joinpath(*name.split("."))
    with suppress(OSError):  # a name may be too long for a file
        for file in (place / "__init__.py", place.with_name(f"{place.name}.py")):
            if file.is_file():
                return file
    return None


def _imported_names(source: bytes, package: str) -> set[str]:
    """Return the dotted names that may be modules in the import statements of a file, with the
    packages that contain them. `package` is that of the file. Raises SyntaxError."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        for name in _names_in(node, package):
            parts = name.split(".")
            names |= {".".join(parts[:count]) for count in range(1, len(parts) + 1)}
    return names


def _names_in(node: ast.AST, package: str) -> Iterator[str]:
    """Yield the dotted names that may be modules in an import statement."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield alias.name
    elif isinstance(node, ast.ImportFrom):
        parts = package.split(".") if package else []
        if node.level > len(parts):
            # Python refuses a relative import beyond the outermost package.
            return
        base = parts[: len(parts) - node.level + 1] if node.level else []
        if node.module:
            base.append(node.module)
            yield ".".join(base)
        for alias in node.names:
            if alias.name != "*":
                yield ".".join([*base, alias.name])


def wrong_script(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with the script of a request, whose paths are absolute; nothing of a
    value that is no path, which is of the wrong type."""
    script = values.get("script")
    if script in (None, ""):
        yield "script: names no training script: -p script train.py"
    elif isinstance(script, str):
        yield from _wrong_file(stored_path(script), values)


def _wrong_file(file: Path, values: Mapping[str, Any]) -> Iterator[str]:
    is_other = file.suffix != SUFFIX or not file.is_file()
    if is_other and file.exists() and not file.is_dir():
        yield (
            f"script: {file} is no Python script; name the file that trains, which ends in "
            f"{SUFFIX}"
        )
        return
    try:
        content = read_script(file)
    except OSError as error:
        others = [script.name for script in file.parent.glob(f"*{SUFFIX}")]
        question = suggest(file.name, others)
        yield f"script: {file} can't be read: {error.strerror or error}{question}"
        return
    if content.fault:
        python = platform.python_version()
        place = f"{file}, line {content.fault_line}"
        yield f"script: {place}: {content.fault} (as Python {python} reads it)"
    elif values.get("framework") is None:
        yield from _unclear_framework(file, content)


def _unclear_framework(file: Path, content: ScriptContent) -> Iterator[str]:
    """Yield why the framework of a script has to be named, if it has."""
    if len(content.frameworks) == 1:
        return
    imported = ", ".join(content.frameworks) or f"none of {', '.join(OF_SCRIPTS)}"
    yield (
        f"framework: {file.name} and its modules import {imported}; name the one that trains: "
        "-p framework NAME"
    )
