"""The text of a worker's log, of which the beginning and the end are kept."""

import os
from pathlib import Path

LOG_BYTES = 512 * 1024
"""Bytes that are kept of a log's beginning, and of its end."""


def shortened(log: Path) -> str:
    """Return the text of a log; of a long log, its beginning and its end."""
    left_out = log.stat().st_size - 2 * LOG_BYTES
    with log.open("rb") as stream:
        text = stream.read(LOG_BYTES)
        if left_out > 0:
            text += f"\n[… {left_out} bytes left out …]\n".encode()
            stream.seek(-LOG_BYTES, os.SEEK_END)
        text += stream.read(LOG_BYTES)
    return text.decode(errors="replace")
