"""Slows running workers down, as a machine that throttles does."""

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import psutil

from perfkit.measuring.driver.supervised import RANK

PERIOD_SECONDS = 0.1
STOPPED_SHARE = 1 / 3
Find = Callable[[], Sequence[psutil.Process]]
"""Returns the processes that are slowed down now."""


def is_worker(process: psutil.Process) -> bool:
    """Return whether this process is a worker of a measurement."""
    try:
        return RANK in process.cmdline()
    except psutil.Error:
        return False


def own_workers() -> list[psutil.Process]:
    """Return the workers of the measurements that this process drives."""
    children = psutil.Process().children(recursive=True)
    return [process for process in children if is_worker(process)]


def workers_on(node: str) -> list[psutil.Process]:
    """Return the workers that Slurm's jobs on a node run now."""
    workers = []
    for process in psutil.process_iter():
        if is_worker(process) and node_of(process) == node:
            workers.append(process)
    return workers


def node_of(process: psutil.Process) -> str:
    """Return the node of Slurm whose job has started a process; empty outside a job."""
    try:
        return process.environ().get("SLURMD_NODENAME", "")
    except psutil.Error:
        return ""


@contextmanager
def slowed(find: Find) -> Iterator[None]:
    """Slow down, within the block, the processes that `find` returns."""
    ended = threading.Event()
    thread = threading.Thread(target=_stop_and_go, args=[find, ended])
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _stop_and_go(find: Find, ended: threading.Event) -> None:
    """Stop the processes for STOPPED_SHARE of each period, as a CPU quota does."""
    while not ended.is_set():
        stopped = find()
        _signal(stopped, signal.SIGSTOP)
        time.sleep(PERIOD_SECONDS * STOPPED_SHARE)
        _signal(stopped, signal.SIGCONT)
        time.sleep(PERIOD_SECONDS * (1 - STOPPED_SHARE))


def _signal(processes: Sequence[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        try:
            process.send_signal(number)
        except psutil.Error:
            continue
