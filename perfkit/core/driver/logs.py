"""The logs of workers, of which the beginning and the end are kept, however much is printed."""

import contextlib
import ctypes
import errno
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

LOG_BYTES = 512 * 1024
"""Bytes that are kept of a log's beginning, and of its end."""
MOST_ON_DISK = 16 * 2**20
"""Bytes of a log on the disk above which those between beginning and end are freed."""
LIMITING_SECONDS = 0.5
"""Shortest interval between two looks at the sizes of the logs."""
BLOCK_BYTES = 512
"""Unit of `st_blocks`, whatever the block size of the file system."""
FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE = 1, 2
UNSUPPORTED = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


def shortened(log: Path) -> str:
    """Return the text of a log; of a long log, its beginning and its end."""
    left_out = bytes_left_out(log)
    with log.open("rb") as stream:
        text = stream.read(LOG_BYTES)
        if left_out:
            text += f"\n[… {left_out} bytes left out …]\n".encode()
            stream.seek(-LOG_BYTES, os.SEEK_END)
        text += stream.read(LOG_BYTES)
    # What `free` has cut off reads as NUL bytes where it can't free a part of a file.
    return text.replace(b"\0", b"").decode(errors="replace")


def bytes_left_out(log: Path) -> int:
    """Return how many bytes of a log its shortened text lacks."""
    return max(0, log.stat().st_size - 2 * LOG_BYTES)


class LogLimit:
    """Keeps logs that are being written from filling the disk. `find` returns the existing
    logs."""

    def __init__(self, find: Callable[[], Iterable[Path]]) -> None:
        self.find = find
        self.next_look = 0.0

    def apply(self) -> None:
        """Free what logs take above MOST_ON_DISK, unless that was done just before."""
        now = time.monotonic()
        if now < self.next_look:
            return
        self.next_look = now + LIMITING_SECONDS
        for log in self.find():
            with contextlib.suppress(FileNotFoundError):
                if log.stat().st_blocks * BLOCK_BYTES > MOST_ON_DISK:
                    free(log)


def free(log: Path) -> None:
    """Free the disk's blocks between beginning and end of a log, whose size stays the same, so
    that its writer goes on where it was. Raises OSError."""
    descriptor = os.open(log, os.O_RDWR)
    try:
        # The end is that of the moment when the process exits, and no earlier one.
        _punch(descriptor, LOG_BYTES, bytes_left_out(log))
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise
        # A file system without holes, such as NFS before 4.2, loses the end until now, too.
        os.truncate(descriptor, LOG_BYTES)
    finally:
        os.close(descriptor)


def _punch(descriptor: int, begin: int, length: int) -> None:
    """Make a hole in a file, which takes no space. Raises OSError."""
    fallocate = ctypes.CDLL(None, use_errno=True).fallocate64
    fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    if fallocate(descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, begin, length):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
