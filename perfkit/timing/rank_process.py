"""The process of a rank: it ends with its parent, leaves nothing behind, and can be asked for
its stacks."""

import ctypes
import faulthandler
import fcntl
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """Have the kernel kill this process with its parent, even if that is the supervisor."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def register(folder: Path, *, ends_with_parent: bool = True) -> None:
    """Tie this process to its parent, unless told otherwise, and to a scratch folder, with
    which its shared memory is removed; exit if both of the folder's owners have been killed."""
    if ends_with_parent:
        end_with_parent()
    (folder / f"{os.getpid()}.pid").touch()
    with locked_by_nobody(folder) as abandoned:
        if abandoned:
            sys.exit("driver and supervisor have ended")


@contextmanager
def locked_by_nobody(folder: Path) -> Iterator[bool]:
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


def enter_scratch(folder: Path) -> None:
    """Tie this process, and those that it forks, to the scratch folder of its job; see
    `register`. SIGUSR1 has it write its stacks to its log."""
    register(folder)
    # Otherwise, a DataLoader process waiting to deliver a batch would outlive its trainer.
    children = Children(folder)
    os.register_at_fork(before=children.before_fork, after_in_child=children.register)
    # The driver sends this signal when a rank hangs, to get each rank's stacks in the log.
    faulthandler.register(signal.SIGUSR1)


class Children:
    """Registers the processes that a rank forks. The kernel would end a child already with the
    thread that has forked it, so only the children of the main thread end with their parent."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.of_main_thread = True

    def before_fork(self) -> None:
        self.of_main_thread = threading.current_thread() is threading.main_thread()

    def register(self) -> None:
        register(self.folder, ends_with_parent=self.of_main_thread)
