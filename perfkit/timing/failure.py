"""The failure that a rank reports: a code, and a message."""

import os
import re
from pathlib import Path
from typing import NamedTuple

from perfkit.timing.raw_file import UNWRITABLE

NO_MEMORY = re.compile(
    "out of memory|resourceexhausted|bad_alloc|(unable|failed) to allocate"
    "|can(not|'t) allocate|allocation failed|oom when allocating|status_alloc_failed",
    re.IGNORECASE,
)
WORKER_ERROR = "worker_error"
"""The code of an exception that is not known otherwise; it may follow from another rank's."""
MOST_CHARACTERS = 600
"""Longest message of an exception, or of a script that exits, that is stored."""
ROOT = Path(__file__).resolve().parents[2]
"""The checkout, or the folder in which the package is installed."""


class ConfigMismatchError(RuntimeError):
    """The training silently differs from the configuration."""

    failure_code = "config_mismatch"


class Failure(NamedTuple):
    """Why a rank ended: a code, and a message on one line."""

    code: str
    message: str


def classify(error: BaseException) -> Failure:
    """Return the failure of a rank that an exception ended. Its code is the `failure_code` of
    the exception, if that has one, and `worker_error` if nothing is known."""
    text = " ".join(str(error).split())
    text = text.encode(errors="replace").decode()
    message = portable(text)[:MOST_CHARACTERS] or type(error).__name__
    own_code = getattr(error, "failure_code", None)
    if isinstance(own_code, str):
        return Failure(own_code, message)
    if isinstance(error, MemoryError) or NO_MEMORY.search(text):
        return Failure("out_of_memory", message)
    if isinstance(error, OSError) and error.errno in UNWRITABLE:
        return Failure("io_error", message)
    return Failure(WORKER_ERROR, f"{type(error).__name__}: {message}")


def portable(text: str) -> str:
    """Return `text` without user names, for publication: the checkout's path removed, the home
    folder as `~`."""
    home = Path(os.path.expanduser("~"))  # noqa: PTH111, without a home it stays "~"
    shorter = {f"{ROOT}/": "", str(ROOT): ".", str(home): "~", str(home.resolve()): "~"}
    for path, short in shorter.items():
        if path == "/":
            continue
        # Match whole leading folders only: neither /data/root nor /rootfs is in /root.
        end = "" if path.endswith("/") else r"(?![\w.-])"
        text = re.sub(rf"(?<![\w./~-]){re.escape(path)}{end}", short, text)
    return text
