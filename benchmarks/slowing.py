"""Slows running workers down, as a machine's fault does."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import psutil

from perfkit.core.driver.supervised import WORKER

PERIOD_SECONDS = 0.1
STOPPED_SHARE = 1 / 3
Find = Callable[[], Sequence[psutil.Process]]
"""Returns the processes that are slowed down now."""


def is_worker(process: psutil.Process) -> bool:
    """Return whether this process is a worker of a measurement."""
    try:
        return WORKER in process.cmdline()
    except psutil.Error:
        return False


def own_workers() -> list[psutil.Process]:
    """Return the workers of the measurements that this process drives."""
    children = psutil.Process().children(recursive=True)
    return [process for process in children if is_worker(process)]


def stop_and_go(find: Find, ended: threading.Event) -> None:
    """Stop the processes for STOPPED_SHARE of each period, as a CPU quota does."""
    while not ended.is_set():
        stopped = find()
        _signal(stopped, signal.SIGSTOP)
        time.sleep(PERIOD_SECONDS * STOPPED_SHARE)
        _signal(stopped, signal.SIGCONT)
        time.sleep(PERIOD_SECONDS * (1 - STOPPED_SHARE))


def hold_to_one_core(find: Find, ended: threading.Event) -> None:
    """Hold every thread of the processes to the first core."""
    core = {min(os.sched_getaffinity(0))}
    while not ended.wait(0.05):
        for process in find():
            try:
                for thread in process.threads():
                    os.sched_setaffinity(thread.id, core)
            except (OSError, psutil.Error):
                continue


@contextmanager
def slowed(slow: Callable[[Find, threading.Event], None], find: Find) -> Iterator[None]:
    """Slow down, within the block, what `find` returns, by one of the functions above."""
    ended = threading.Event()
    thread = threading.Thread(target=slow, args=[find, ended])
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _signal(processes: Sequence[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        try:
            process.send_signal(number)
        except psutil.Error:
            continue
