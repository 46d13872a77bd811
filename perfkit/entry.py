"""The command `perfkit`: a sentence where the extra `report` is not installed."""

import sys

from perfkit.measuring.interrupts import ended_by_interrupt


def main() -> None:
    """Run the command."""
    try:
        with ended_by_interrupt():
            from perfkit.cli import main as run
    except ModuleNotFoundError as error:
        if str(error.name).startswith("perfkit"):
            raise
        install = f"{sys.executable} -m pip install 'perfkit[report]'"
        message = f"perfkit: the commands need {error.name}; to install: {install}"
        print(message, file=sys.stderr)
        sys.exit(2)
    run()
