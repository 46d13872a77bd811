"""Paths in parameters: absolute for use on this machine, without user names for publication."""

import os
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The checkout, or the folder in which the package is installed."""
IS_CHECKOUT = (ROOT / "notebooks" / "resnet50.ipynb").is_file()
START = ROOT if IS_CHECKOUT else Path()
"""Where relative paths in parameters start: in the checkout, wherever the notebook runs;
without one, in the working directory."""
URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


def is_local_folder(path: str) -> bool:
    """Return whether files can be stored here; not for URLs, /proc, /sys and unprintable
    characters."""
    is_virtual = path.startswith("/") and Path(path).parts[1:2] in (("proc",), ("sys",))
    return path.isprintable() and not is_virtual and not URL.match(path)


def expanded(path: str) -> Path:
    """Expand `~`; `~name` of an unknown user is kept."""
    return Path(os.path.expanduser(path))  # noqa: PTH111


def resolved_path(path: str) -> Path:
    """Return a parameter's path as an absolute path without links; relative paths start at
    START."""
    return Path(os.path.realpath(START / expanded(path)))


def interpreter_path(python: str | None) -> str:
    """Return the workers' interpreter as an absolute path; links stay, which locate
    environments."""
    if not python:
        return sys.executable
    return str((START / expanded(python)).absolute())


def typed_path(path: str) -> str:
    """Convert a path or URL typed in the working directory to a parameter's value, which means
    the same place wherever relative paths start."""
    if URL.match(path):
        return path
    absolute = str(expanded(path).absolute())
    portable = portable_path(absolute)
    is_relative = not portable.startswith(("/", "~"))
    if is_relative and Path.cwd() != ROOT:
        return absolute
    return portable


def portable_path(path: str) -> str:
    """Return `portable(path)`, or `path` if that would be another place: `~+data`, an empty
    text."""
    short = portable(path)
    # An unprintable path is refused later; with NUL it can't even be resolved.
    if short and path.isprintable() and resolved_path(short) == resolved_path(path):
        return short
    return path


def portable(text: str) -> str:
    """Return `text` without user names, for publication: the checkout's path removed, the home
    folder as `~`."""
    home = expanded("~")
    shorter = {f"{ROOT}/": "", str(home): "~", str(home.resolve()): "~"}
    for path, short in shorter.items():
        if path == "/":
            continue
        # Match whole leading folders only: neither /data/root nor /rootfs is in /root.
        end = "" if path.endswith("/") else r"(?![\w.-])"
        text = re.sub(rf"(?<![\w./~-]){re.escape(path)}{end}", short, text)
    return text
