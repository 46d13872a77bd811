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
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

PREFIX, SUFFIX = "perfkit-", ".run"
SHARED_MEMORY = Path("/dev/shm")
SEGMENTS = ("torch_{pid}_*", "paddle_{pid}_*")
"""Names of the files there with the batches that a process of a DataLoader has made."""
KILLING_SECONDS = 2.0
OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def end_with_parent() -> None:
    """Have the kernel kill this process with its parent, even if that is the supervisor."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


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


def register(folder: Path, *, ends_with_parent: bool = True) -> None:
    """Tie this process to its parent, unless told otherwise, and to `folder`, with which its
    shared memory is removed; exit if both owners have been killed."""
    if ends_with_parent:
        end_with_parent()
    (folder / f"{os.getpid()}.pid").touch()
    with _locked_by_nobody(folder) as abandoned:
        if abandoned:
            sys.exit("driver and supervisor have ended")


def sweep() -> None:
    """Remove this user's unlocked folders, with the processes registered in them."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*{SUFFIX}"):
        with suppress(OSError), _locked_by_nobody(folder) as abandoned:
            if abandoned and folder.lstat().st_uid == os.geteuid():
                _remove(folder)


@contextmanager
def _locked_by_nobody(folder: Path) -> Iterator[bool]:
    """Yield whether `folder` has no lock; if so, it is locked within the block."""
    descriptor = os.open(folder, OPEN_FOLDER)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        abandoned = True
    except OSError:
        abandoned = False
    try:
        yield abandoned
    finally:
        os.close(descriptor)


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
