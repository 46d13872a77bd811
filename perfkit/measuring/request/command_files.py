"""Reads the files that a command line names, without running it: their digest, the state of
their git checkout, and the frameworks that they import."""

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfkit.measuring.paths import absolute_path
from perfkit.measuring.request.script import SUFFIX, digest_of, read_script

FLAGS = "{flags}"
"""The place of the flags in a command."""
PER_NODE = re.compile(r"--nproc[-_]per[-_]node[ =](\d{1,3})\b")
"""Number of devices in a command of torchrun or paddle.distributed.launch."""
NODES = re.compile(r"--nnodes[ =](\d{1,3})(?![\d:])")
"""Number of nodes in such a command."""
LARGEST_BYTES = 2**20
"""Larger files are data or weights, not scripts or configurations."""
LONGEST_NAME = 255
"""Longer words are no names of files, but code for `bash -c`."""
GIT_SECONDS = 20


@dataclass(frozen=True)
class CommandContent:
    """What the files that a command names say, without running it."""

    files: list[str]
    """names of these files"""
    files_sha256: str
    """digest of their names and contents, of the local modules of scripts, and of what the git
    checkout has changed since its commit"""
    commit: str | None
    """commit of the git checkout in which the command runs; None outside of one"""
    dirty: bool
    """whether files of this checkout have uncommitted changes"""
    frameworks: list[str]
    """frameworks that the scripts among the files import"""
    devices: int
    """devices per node by PER_NODE; 0 if unknown"""
    nodes: int
    """nodes by NODES; 1 if unknown"""


def with_flags(command: str, flags: str) -> list[str]:
    """Return the words of a command with its flags, in the place of {flags} or behind it.
    Raises ValueError if a quote is not closed."""
    words, more = shlex.split(command), shlex.split(flags)
    if FLAGS not in command:
        return [*words, *more]
    placed: list[str] = []
    for word in words:
        placed += more if word == FLAGS else [word.replace(FLAGS, flags)]
    return placed


def files_of(words: Sequence[str], directory: Path, log_file: Path | None) -> list[str]:
    """Return the names of the files that the words of a command name, such as train.py and
    --config=llama.toml, except its log."""
    names = []
    for name in (word.rpartition("=")[2] for word in words):
        if len(name) > LONGEST_NAME:
            continue
        file = directory / name
        if file != log_file and file.is_file() and file.stat().st_size <= LARGEST_BYTES:
            names.append(name)
    return names


def read_command(words: Sequence[str], files: list[str], directory: Path) -> CommandContent:
    """Read these files of a command, which files_of found. Raises OSError."""
    contents: dict[str, bytes] = {}
    frameworks: list[str] = []
    for name in files:
        file = directory / name
        contents[name] = file.read_bytes()
        if file.suffix == SUFFIX:
            script = read_script(file)
            contents[name] = script.sha256.encode()
            frameworks += script.frameworks
    commit = _git(directory, "rev-parse", "HEAD").decode().strip()
    changes = _git(directory, "diff", "HEAD")
    contents["git diff"] = changes
    line = shlex.join(words)
    per_node, nodes = PER_NODE.search(line), NODES.search(line)
    return CommandContent(
        files=files,
        files_sha256=digest_of(contents),
        commit=commit or None,
        dirty=bool(changes),
        frameworks=frameworks,
        devices=int(per_node[1]) if per_node else 0,
        nodes=int(nodes[1]) if nodes else 1,
    )


def _git(directory: Path, *arguments: str) -> bytes:
    """Return what git prints about the checkout of a folder; empty outside of one."""
    command = ["git", "-C", str(directory), *arguments]
    try:
        return subprocess.run(
            command, capture_output=True, timeout=GIT_SECONDS, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return b""


def wrong_command(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with the command of a request, whose paths are absolute."""
    if values.get("command") in (None, ""):
        yield "command: names no command: -p command 'bash train.sh'"
    place = absolute_path(values.get("directory") or ".")
    if not place.is_dir():
        yield f"directory: there is no folder {place}"


def missing_program(program: str, directory: Path) -> Iterator[str]:
    """Yield why the program of a command can't be started, if it can't."""
    place = str(directory / program) if "/" in program else program
    if not shutil.which(place):
        yield f"command: there is no program {program}, as seen from {directory}"
