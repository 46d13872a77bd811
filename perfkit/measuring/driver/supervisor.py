"""Runs one command and leaves no process behind, however the command or the driver ends.

`python -m perfkit.measuring.driver.supervisor SCRATCH SECONDS COMMAND…`, with standard input a
pipe that the driver, or a node program, holds open: when that ends, even by kill -9, the pipe
closes. COMMAND may take at most SECONDS (or `inf`). SCRATCH is the starter's scratch folder.

As a subreaper, the supervisor becomes the parent of orphaned descendants, including those in
sessions of their own, such as a launcher's workers, and so finds all of them. Finally it
removes all scratch folders without a driver, also SCRATCH if its driver has ended. Linux only.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

from perfkit.measuring.system.scratch import adopt_orphans, lock, sweep
from perfkit.timing.rank_process import end_with_parent

POLL_SECONDS = 0.05
KILLING_SECONDS = 8.0


def supervise(scratch: Path, seconds: float, command: list[str]) -> int:
    """Run `command` until it exits, standard input closes or `seconds` have passed, and return
    its exit status as a shell does: 128 + N after signal N."""
    descriptor = lock(scratch)
    deadline = time.monotonic() + seconds
    adopt_orphans()
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        preexec_fn=_prepare,  # noqa: PLW1509 - this process has one thread
    )
    try:
        while process.poll() is None and not _ended(sys.stdin.fileno()):
            if time.monotonic() > deadline:
                break
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        kill_descendants()
        os.close(descriptor)
        sweep()
    status = -signal.SIGKILL if process.returncode is None else process.returncode
    return status if status >= 0 else 128 - status


def _prepare() -> None:
    end_with_parent()
    # A shell that started perfkit in the background may have set SIGINT to be ignored.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _ended(descriptor: int) -> bool:
    """Wait up to POLL_SECONDS, and return whether the pipe has closed."""
    readable, _, _ = select.select([descriptor], [], [], POLL_SECONDS)
    return bool(readable) and not os.read(descriptor, 1)


def kill_descendants() -> None:
    """Kill all descendants and wait for their exit. After KILLING_SECONDS, print those that
    remain, stuck in a kernel driver."""
    deadline = time.monotonic() + KILLING_SECONDS
    while children := psutil.Process().children(recursive=True):
        if time.monotonic() > deadline:
            print("could not be killed:", *(child.pid for child in children), flush=True)
            break
        for child in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                continue
        time.sleep(0.01)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    scratch, seconds, *command = sys.argv[1:]
    sys.exit(supervise(Path(scratch), float(seconds), command))
