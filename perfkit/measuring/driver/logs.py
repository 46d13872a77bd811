"""The text of a worker's log, of which the beginning and the end are kept."""

import os
import re
from pathlib import Path

LOG_BYTES = 512 * 1024
"""Bytes that are kept of a log's beginning, and of its end."""
LAST_LINES, LINE_LENGTH = 8, 200
"""Lines of a log that are stored with a failure, and their characters."""
STARTING = re.compile(r'  File "(<frozen runpy>|.*perfkit/timing/rank\.py)", line \d+ in ')
"""Line of the stack that a hanging rank writes, below the script that it runs."""


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


def last_lines(log: str) -> str:
    """Return the last lines of a log's text that say something. Of a stack that a hanging rank
    has written, they are those of its script."""
    lines = []
    for line in log.splitlines():
        # Python underlines parts of a traceback.
        if line.strip(" ^~") and not STARTING.match(line):
            lines.append(line.rstrip())
    return "\n".join(line[:LINE_LENGTH] for line in lines[-LAST_LINES:])
