"""Runs one command and leaves nothing of it behind, however it or the driver ends.

`python -m perfkit.driver.supervisor SCRATCH GRACE COMMAND…`, with standard input a pipe that
the driver holds open: when the driver ends, even by kill -9, the pipe ends. COMMAND then gets a
SIGTERM and GRACE seconds before it is killed: srun and mpirun end what runs elsewhere. With
`--interrupt` before COMMAND it gets a SIGINT, on which alone Snakemake cancels its jobs. As a
"subreaper" the supervisor becomes the parent of descendants whose own parents are gone, also
of those in a session of their own, which a launcher's workers are; so it finds all of them.
Then all scratch folders without a driver are removed, SCRATCH too if its driver is gone.
Linux only.
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

from perfkit.system.scratch import adopt_orphans, end_with_parent, lock, sweep

POLL_SECONDS = 0.05
KILLING_SECONDS = 8.0


def supervise(
    scratch: Path,
    grace_seconds: float,
    command: list[str],
    ending: signal.Signals = signal.SIGTERM,
) -> int:
    """Run `command` to its end, or until standard input ends; its exit status."""
    descriptor = lock(scratch)
    adopt_orphans()
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        preexec_fn=_prepare,  # noqa: PLW1509 - this process has one thread
    )
    try:
        while process.poll() is None and not _ended(sys.stdin.fileno()):
            pass
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if grace_seconds and process.poll() is None:
            process.send_signal(ending)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(grace_seconds)
        kill_descendants()
        os.close(descriptor)
        sweep()
    return process.returncode if process.returncode is not None else -signal.SIGKILL


def _prepare() -> None:
    end_with_parent()
    # Whoever started all this in the background may have had interrupts ignored.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _ended(descriptor: int) -> bool:
    """Whether the pipe has ended; waits a moment for it."""
    readable, _, _ = select.select([descriptor], [], [], POLL_SECONDS)
    return bool(readable) and not os.read(descriptor, 1)


def kill_descendants() -> None:
    """Kill every descendant, and wait until none is left.

    One that the kernel does not let go, stuck in a driver, is named after KILLING_SECONDS.
    """
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
    scratch, grace, *words = sys.argv[1:]
    ending = signal.SIGTERM
    if words[0] == "--interrupt":
        ending = signal.SIGINT
        del words[0]
    sys.exit(supervise(Path(scratch), float(grace), words, ending) & 0xFF)
