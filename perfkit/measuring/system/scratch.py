"""Processes that end with their parent, on Linux, and temporary folders that are removed even
if their processes are killed.

The driver and its supervisor hold a lock on the folder, which the kernel releases when both
have ended. Each driver at its start and each supervisor at its end removes the folders without
a lock, with the processes and the shared memory of the workers registered in them.

It is flock's own lock and not one of filelock, as everywhere else: two owners share it, and
workers test it, whose interpreters may lack filelock.
"""

import ctypes
import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Self

from perfkit.timing.rank_process import OPEN_FOLDER, locked_by_nobody

PREFIX, SUFFIX = "perfkit-", ".run"
SHARED_MEMORY = Path("/dev/shm")
SEGMENTS = ("torch_{pid}_*", "paddle_{pid}_*")
"""Names of the files there with the batches that a process of a DataLoader has made."""
KILLING_SECONDS = 2.0
PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Make this process the new parent of its orphaned descendants."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)


class Scratch:
    """A new temporary folder, locked within a `with` block, which then removes it with the
    processes and shared memory registered in it. Raises OSError."""

    def __init__(self) -> None:
        sweep()
        while True:
            self.folder = Path(tempfile.mkdtemp(SUFFIX, PREFIX))
            # Before it is locked, another process may remove it.
            with suppress(FileNotFoundError):
                self.descriptor = lock(self.folder)
                if self.folder.exists():
                    return
                os.close(self.descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        _remove(self.folder)
        os.close(self.descriptor)


def lock(folder: Path) -> int:
    """Return a descriptor that keeps `folder` from being swept while it is open. Raises
    OSError."""
    descriptor = os.open(folder, OPEN_FOLDER)
    # Without file locks, no folder is swept.
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor


def sweep() -> None:
    """Remove this user's unlocked folders, with the processes registered in them."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*{SUFFIX}"):
        with suppress(OSError), locked_by_nobody(folder) as abandoned:
            if abandoned and folder.lstat().st_uid == os.geteuid():
                _remove(folder)


def _remove(folder: Path) -> None:
    """Kill the processes registered in `folder`, and remove it with their shared memory."""
    # Imported here: workers only register, and their Python may lack psutil.
    import psutil

    registered = []
    killed = []
    for registration in folder.glob("*.pid"):
        pid = int(registration.stem)
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            words = process.cmdline()
            # A process has no words while it exits.
            if words and not any(str(folder) in word for word in words):
                # Another process has the number by now.
                continue
            process.kill()
            killed.append(process)
        registered.append(pid)
    psutil.wait_procs(killed, timeout=KILLING_SECONDS)
    for pid in registered:
        for name in SEGMENTS:
            for segment in SHARED_MEMORY.glob(name.format(pid=pid)):
                segment.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
