"""What is wrong with the script of a request, and with the framework that it imports."""

import platform
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from perfkit.measuring.parameters import is_open
from perfkit.measuring.paths import stored_path
from perfkit.measuring.request import suggest
from perfkit.measuring.request.script import ScriptContent, read_script
from perfkit.measuring.work import ScriptWork
from perfkit.timing.frameworks import OF_SCRIPTS

SUFFIX = ".py"


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
    elif is_open("framework", values.get("framework"), ScriptWork):
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
