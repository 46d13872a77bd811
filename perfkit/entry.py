"""The command `perfkit`: a sentence where the extra `report` is not installed."""

import os
import signal
import sys


def main() -> None:
    """Run the command."""
    interrupts = signal.getsignal(signal.SIGINT)
    if interrupts is signal.default_int_handler:
        # An exception during an import would be shown as a traceback, or be lost.
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    try:
        from perfkit.cli import main as run
    except ModuleNotFoundError as error:
        if str(error.name).startswith("perfkit"):
            raise
        install = f"{sys.executable} -m pip install 'perfkit[report]'"
        message = f"perfkit: the commands need {error.name}; to install: {install}"
        print(message, file=sys.stderr)
        sys.exit(2)
    signal.signal(signal.SIGINT, interrupts)
    run()
