"""The files through which a rank and its driver talk: the rank's raw events, and the file that
ends an automatic warm-up."""

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.ESTALE)
"""Errors of a write to a disk that is full, broken or removed: a quota is exhausted, a disk
with errors is remounted read-only, a file server loses its file handles."""

Encode = Callable[[dict[str, Any]], bytes]


def rank_file(raw_folder: Path, rank: int) -> Path:
    """Return the raw file of a rank in the folder that workers write to."""
    return raw_folder / f"rank{rank}.jsonl"


def steady_file(raw_folder: Path) -> Path:
    """Return the file that the driver creates when the workers' steps are steady."""
    return raw_folder / ".steady"


class RawFile:
    """The raw events of this rank, one per line, unbuffered."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.encode = json_encoder()
        self.descriptor = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644
        )

    def write(self, *events: dict[str, Any]) -> None:
        """Append the events in one system call. Raises OSError if the disk is full."""
        lines = b"\n".join([*map(self.encode, events), b""])
        if os.write(self.descriptor, lines) != len(lines):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def json_encoder() -> Encode:
    """Return the fastest encoder of an event: json.dumps is eight times slower than pydantic's,
    which runs in every step of the window, but a user's interpreter may lack pydantic."""
    try:
        from pydantic_core import to_json
    except ImportError:
        return json_bytes
    return to_json


def json_bytes(event: dict[str, Any]) -> bytes:
    """Encode an event as pydantic_core.to_json does."""
    return json.dumps(event, separators=(",", ":"), ensure_ascii=False).encode()
