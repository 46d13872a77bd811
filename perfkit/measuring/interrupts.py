"""Ctrl-C before there is anything to tidy up."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def ended_by_interrupt() -> Iterator[None]:
    """Let an interrupt end this process at once, with 130. As an exception in an import, it may
    be shown as a traceback, or be lost."""
    previous = signal.getsignal(signal.SIGINT)
    if previous is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
