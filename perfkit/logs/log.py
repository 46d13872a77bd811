"""What a foreign log says: the windows of its training, the configuration that it names, the
figures that it gives itself, and what was wrong with the file."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from perfkit.logs.config_facts import Sourced, number_in
from perfkit.logs.formats import Semantics
from perfkit.messages import Message

Unit = Literal["samples/s", "s", ""]
WINDOW = np.dtype(
    [(name, "i8") for name in ("line", "rank", "epoch", "run", "first", "last")]
    + [(name, "f8") for name in ("seconds", "reader", "rate", "own_rate")]
    + [(name, "f8") for name in ("loss", "accuracy", "at", "printed_seconds")]
)
"""The columns of a log's windows. A window is the steps that a print tells of and none before
it does: `first` to `last`, counted from 1 in their epoch; `seconds` and `reader` are those of
all of them together. `rate` and `printed_seconds` (of a step) are as printed, `own_rate` is
that of these steps alone: another one where what is printed is a running mean. `accuracy` is
the lowest of those printed, `at` the print's own clock. `run` counts the trainings that one
file holds, one after the other. What is not printed is nan. Ranks that print and don't say who
they are are -1, -2, …"""


@dataclass(frozen=True)
class ReportedFigure:
    """A figure that the log gives as its own result, in its own words and as it is printed;
    `ranks` if it is of so many devices by its own words."""

    name: str
    value: float
    text: str
    line: int
    unit: Unit = ""
    ranks: int | None = None


@dataclass
class Log:
    """One training of a file, read to its end.

    `windows` is an array of WINDOW. `facts` may have, by name: `model`, `framework`,
    `precision` (the words of Config), `gpu`, `nodes`, `devices` of a node, `ranks` of all
    nodes, `batch_size` of a device in one step (without what is accumulated),
    `global_batch_size` of all ranks in one update, `accumulate`, `input`, `mode`, `unit`. What
    the file does not tell is not there, and nothing is assumed. `notes` are what is odd about
    the file, each with its line; line 0 is all of it. `part` counts the trainings of different
    configurations that a file holds from 1; 0: there is one.
    """

    path: Path
    format: str
    sha256: str
    semantics: Semantics
    windows: np.ndarray
    facts: dict[str, Sourced] = field(default_factory=dict)
    reported: list[ReportedFigure] = field(default_factory=list)
    notes: list[tuple[int, Message]] = field(default_factory=list)
    part: int = 0

    @property
    def name(self) -> str:
        return f"{self.path}#{self.part}" if self.part else str(self.path)

    def fact(self, name: str) -> int | str | None:
        return self.facts[name].value if name in self.facts else None

    def number(self, name: str) -> int:
        """A fact that is a number above 0; 0 if the log does not tell it."""
        return number_in(self.facts, name)


class LogError(ValueError):
    """A file that can't be read as a training log; the message names it and says why."""
