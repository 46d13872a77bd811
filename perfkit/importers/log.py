"""What a foreign log says: the prints of its training, the configuration that it names, the
figures that it gives itself, and what was wrong with the file."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from perfkit.importers.spool import Spool

RAW = np.dtype(
    [
        ("line", "i8"),
        ("rank", "i4"),
        ("epoch", "i4"),
        ("step", "i8"),
        ("since", "i8"),
        ("seconds", "f8"),
        ("reader", "f8"),
        ("rate", "f8"),
        ("loss", "f8"),
        ("accuracy", "f8"),
        ("at", "f8"),
    ]
)
"""A print as it stands in its line: `step` by the format's own count, `since` how many steps
ago at most its means began (0 if it does not say), `seconds` and `reader` of one step, `rate`
in samples per second, `accuracy` the lowest of those printed, `at` by the print's own clock.
What is not printed is nan, a rank -1."""

WINDOW = np.dtype(
    [
        *RAW.descr[:3],
        ("run", "i4"),
        ("first", "i8"),
        ("last", "i8"),
        *RAW.descr[5:8],
        ("own_rate", "f8"),
        *RAW.descr[8:],
    ]
)
"""The steps that a print tells of and none before it does: `first` to `last`, counted from 1 in
their epoch; `seconds` and `reader` are those of all of them together. `rate` is as printed,
`own_rate` that of these steps alone: another one where what is printed is a running mean. `run`
counts the trainings that one file holds, one after the other. Where several ranks print and
don't say who, their `rank` is -1, -2, …"""


@dataclass(frozen=True)
class SincePrint:
    """A printed time is the mean of the steps since the last print, in each epoch since step
    `since`."""

    since: int = 1


@dataclass(frozen=True)
class Running:
    """A printed time is the mean of all steps since step `since` of the epoch; of those before
    it, it is the mean since the epoch began, or, if not `anew`, since an earlier epoch, too."""

    since: int = 1
    anew: bool = True


@dataclass(frozen=True)
class Step:
    """A printed time is that of the last step alone."""


@dataclass(frozen=True)
class Meaning:
    """What the printed figures of a format mean.

    `rate_of`: samples of one device or of all. `counts_from`: what the first step is called.
    `reader`: whether the printed time of a step has its wait for input in it; None if the
    format leaves it open. `step`: what is counted, the optimizer's updates or the batches, of
    which several may be accumulated for one. `mean_of`: what a printed rate is a
    mean of; that of rates is not the rate of several steps. `repeats`: the same step may be
    printed again without a restart. `source`: where all this is known from.
    """

    rate_of: Literal["device", "all"]
    covers: SincePrint | Running | Step
    counts_from: Literal[0, 1]
    reader: Literal["in", "apart"] | None
    source: str
    step: Literal["update", "batch"] = "update"
    mean_of: Literal["times", "rates"] = "times"
    repeats: bool = False


@dataclass(frozen=True)
class Fact:
    """What the log tells of its configuration, and which line, or its name, says so."""

    value: int | str
    said_by: str


Unit = Literal["samples/s", "s", ""]


@dataclass(frozen=True)
class Told:
    """A figure that the log gives as its own result, in its own words and as it is printed."""

    name: str
    value: float
    text: str
    line: int
    unit: Unit = ""


@dataclass(frozen=True)
class Note:
    """What is odd about the file itself, in words; line 0 is all of it."""

    line: int
    words: str


class Windows(Spool):
    """Rows of WINDOW in the order of the file."""

    DTYPE = WINDOW
    MEMORY_BYTES = 32 * 1024 * 1024
    BLOCK = 16_384


@dataclass
class Log:
    """One file, read to its end.

    `facts` may have, by name: `model`, `framework`, `precision` (the words of Config), `nodes`,
    `devices` of a node, `ranks` of all nodes, `batch_size` of a device in one step (without
    what is accumulated), `global_batch_size` of all ranks in one update, `accumulate`, `input`,
    `unit`. What the file does not tell is not there, and nothing is assumed.
    """

    path: Path
    format: str
    sha256: str
    meaning: Meaning
    windows: Windows
    facts: dict[str, Fact] = field(default_factory=dict)
    told: list[Told] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)


class LogError(ValueError):
    """A file that can't be read as a training log; the message names it and says why."""
