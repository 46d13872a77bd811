"""The files through which a rank and its driver talk: the rank's raw events, and the file that
ends an automatic warm-up."""

import errno
import json
import os
from pathlib import Path
from typing import Any

UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.ESTALE)
"""Errors of a write to a disk that is full, broken or removed: a quota is exhausted, a disk
with errors is remounted read-only, a file server loses its file handles."""


def rank_file(raw_folder: Path, rank: int) -> Path:
    """Return the raw file of a rank in the folder that ranks write to."""
    return raw_folder / f"rank{rank}.jsonl"


def trace_file(raw_file: Path) -> Path:
    """Return the trace of the rank with this raw file, if its steps are profiled."""
    return raw_file.with_suffix(".json.gz")


def steady_file(raw_folder: Path) -> Path:
    """Return the file that the driver creates when the ranks' steps are steady."""
    return raw_folder / ".steady"


class RawFile:
    """The raw events of this rank, one JSON object per line, unbuffered."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.descriptor = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644
        )

    def write(self, *events: dict[str, Any]) -> None:
        """Append the events. Raises OSError if the disk is full, TypeError for a value that
        JSON does not have."""
        self.write_lines([json_line(event) for event in events])

    def write_lines(self, lines: list[str]) -> None:
        """Append lines in one system call. Raises OSError if the disk is full."""
        text = "".join(lines).encode()
        if os.write(self.descriptor, text) != len(text):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def json_line(event: dict[str, Any]) -> str:
    return json.dumps(event, separators=(",", ":"), ensure_ascii=False) + "\n"


def step_line(step: int, seconds: float, data_wait_seconds: float | None, samples: int) -> str:
    """Return the line of the event `step`. An f-string takes a tenth of json.dumps' time, which
    would be spent in every step of the window."""
    wait = "" if data_wait_seconds is None else f'"data_wait_seconds":{data_wait_seconds!r},'
    return f'{{"event":"step","step":{step},"seconds":{seconds!r},{wait}"samples":{samples}}}\n'


def loss_line(step: int, value: float) -> str:
    """Return the line of the event `loss`; `value` is finite."""
    return f'{{"event":"loss","step":{step},"value":{value!r}}}\n'
