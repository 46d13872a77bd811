"""How processes of Linux end with the one that started them."""

import ctypes
import signal

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def end_with_parent() -> None:
    """Have the kernel kill this process when its parent ends: a second line of defence, for
    the case that the supervisor itself is killed."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def adopt_orphans() -> None:
    """Have this process become the parent of its descendants whose own parents end."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
