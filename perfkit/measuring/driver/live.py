"""Progress drawn by rich: one line that is replaced, on a terminal or in the output of a
notebook's cell. Imported only there, since logs need no rich."""

import sys
from contextlib import suppress
from io import StringIO
from typing import Self

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from perfkit.measuring.driver.progress import Display, ProgressLine, display

TERMINAL_SECONDS = 0.5
NOTEBOOK_SECONDS = 1
"""Shortest time between two states."""
NOTEBOOK_WIDTH = 79


def drawn(line: ProgressLine) -> Table | Text:
    """Return the line with a bar between its text and the time left, on one line of any
    width."""
    text = Text(line.text, no_wrap=True, overflow="ellipsis")
    if line.share is None:
        return text
    grid = Table.grid(expand=True, padding=(0, 1, 0, 0))
    grid.add_column()
    grid.add_column(ratio=1)
    grid.add_column(no_wrap=True)
    bar = ProgressBar(total=1, completed=line.share)
    grid.add_row(text, bar, Text(f"{line.time_left} left"))
    return grid


class LastLine(Live):
    """The last line of a terminal, refreshed by the caller alone. What is printed meanwhile
    goes above it, but never from a pipe to the terminal. A terminal that is closed ends
    nothing."""

    def __init__(self, console: Console, *, transient: bool = False) -> None:
        super().__init__(
            console=console,
            auto_refresh=False,
            transient=transient,
            redirect_stdout=sys.stdout.isatty(),
        )

    def start(self, refresh: bool = False) -> None:
        with suppress(OSError):
            super().start(refresh)
            # A process that is killed could not show the cursor again.
            self.console.show_cursor()

    def stop(self) -> None:
        with suppress(OSError):
            super().stop()

    def replace(self, line: RenderableType) -> None:
        with suppress(OSError):
            self.update(line, refresh=True)

    def print_above(self, text: str, end: str = "\n") -> None:
        with suppress(OSError):
            self.console.print(Text(text), end=end, soft_wrap=True)


class TerminalDisplay(Display):
    def __init__(self) -> None:
        super().__init__()
        console = Console(stderr=True, force_jupyter=False, force_terminal=True)
        self.live = LastLine(console)

    def __enter__(self) -> Self:
        self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.live.stop()

    def shortest_pause(self, elapsed: float) -> float:
        return TERMINAL_SECONDS

    def write(self, state: ProgressLine) -> None:
        self.live.replace(drawn(state))

    def print(self, text: str) -> None:
        self.live.print_above(text, end="")


class NotebookDisplay(Display):
    """Replaces the output of the cell, so that the stored notebook keeps only the last line.
    Papermill's log has all of them: none twice, and fewer in a long measurement."""

    def __init__(self) -> None:
        super().__init__()
        self.last: tuple[str, float | None] | None = None

    def show(self, state: ProgressLine, *, at_once: bool = False) -> None:
        # Not the time left, which changes each time.
        if (state.text, state.share) != self.last:
            super().show(state, at_once=at_once)

    def shortest_pause(self, elapsed: float) -> float:
        return max(NOTEBOOK_SECONDS, elapsed / 100)

    def write(self, state: ProgressLine) -> None:
        from IPython.display import clear_output

        self.last = (state.text, state.share)
        clear_output(wait=True)
        line = StringIO()
        # Neither colours, which FORCE_COLOR adds, nor a display of the console's own.
        console = Console(
            file=line, width=NOTEBOOK_WIDTH, force_terminal=False, force_jupyter=False
        )
        console.print(drawn(state))
        # Standard output, because notebooks render standard error as a warning. The carriage
        # return tells KernelOutput that this is no other text.
        print(f"\r{line.getvalue().rstrip()}", flush=True)

    def print(self, text: str) -> None:
        print(text, end="", flush=True)


class KernelOutput:
    """A file for the standard output of a notebook's kernel: shows the states of a
    NotebookDisplay in this process's display, and prints other text."""

    def __enter__(self) -> Self:
        self.display = display()
        self.display.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.display.__exit__()

    def write(self, text: str) -> None:
        printed, mark, state = text.rpartition("\r")
        if not mark:
            printed, state = text, ""
        if printed.strip():
            self.display.print(printed)
        if state.strip():
            self.display.show(ProgressLine(state.strip()), at_once=True)

    def flush(self) -> None:
        pass
