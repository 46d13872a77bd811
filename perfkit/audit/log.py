"""A training log of another suite: its windows, configuration, reported figures and notes."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from perfkit.audit.config_facts import number_in
from perfkit.audit.formats import WHOLE, Semantics
from perfkit.audit.statements import FactValue, Note, SourcedFact

WINDOW = dict.fromkeys(("line", "rank", "epoch", "run", "first", "last"), "int64")
WINDOW |= dict.fromkeys(("seconds", "reader", "rate", "own_rate"), "float64")
WINDOW |= dict.fromkeys(("loss", "accuracy", "at", "printed_seconds"), "float64")
"""Columns of a log's windows and their types. A window is the steps that a print covers and no
earlier print does: `first` to `last`, counted from 1 in their epoch. `seconds` and `reader` are
sums over these steps. `rate` and `printed_seconds` (of a step) are as printed; `own_rate` is
the rate of these steps alone, which differs if the print is a running mean. `accuracy` is the
lowest printed, `at` the print's clock. `run` counts the successive trainings of a file. Values
not printed are nan. Ranks whose prints have no rank number are -1, -2, …"""


@dataclass(frozen=True)
class ReportedFigure:
    """A figure that the log reports as its own result, with its name and text; `is_rate`:
    whether it is in samples per second; `ranks`: the device count that the log gives for it."""

    name: str
    value: float
    text: str
    line: int
    is_rate: bool = False
    ranks: int | None = None


@dataclass
class Log:
    """One training of a file.

    `windows` is a DataFrame of WINDOW. `facts` may have, by name: `model`, `framework`,
    `precision` (values of Config), `gpu`, `nodes`, `devices` of a node, `ranks` of all nodes,
    `batch_size` of a device in one step (without accumulation), `global_batch_size` of all
    ranks in one update, `accumulate`, `input`, `mode`, `unit`. Unknown facts are missing;
    nothing is assumed. `notes` are oddities of the file. `part` numbers a file's trainings of
    different configurations from 1; 0: only one.
    """

    path: Path
    format: str
    sha256: str
    semantics: Semantics
    windows: pd.DataFrame
    facts: dict[str, SourcedFact] = field(default_factory=dict)
    reported: list[ReportedFigure] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    part: int = 0

    @property
    def name(self) -> str:
        return f"{self.path}#{self.part}" if self.part else str(self.path)

    def fact(self, name: str) -> FactValue | None:
        """Return a fact by its name; None if it is unknown."""
        if name not in self.facts:
            return None
        return self.facts[name].value

    def number(self, name: str) -> int:
        return number_in(self.facts, name)


class LogError(ValueError):
    """A file can't be read as a training log: the file, the reason, and the line that shows it,
    if it is a single one."""

    def __init__(self, file: Path, reason: str, line: int | None = None) -> None:
        super().__init__(file, reason, line)
        self.file, self.reason, self.line = file, reason, line

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason}" if self.line else self.reason


USUAL = 1.5
"""A print follows a lost one if its distance exceeds this many median distances."""
RANKS = 1024
"""Ranks that are distinguished, at most."""
Columns = dict[str, np.ndarray]
"""Arrays by column: several times as fast as a DataFrame for the short columns of most logs."""


def prints_of(columns: Mapping[str, Sequence[Any]]) -> Columns:
    """Convert the columns of prints, texts or numbers (None: not printed), to arrays. Columns
    are those of a pattern, `line`, and `tag`, a rank. The lowest of several accuracies counts;
    all times are in seconds; a printed loss that is not a number becomes infinite. `since` is
    the steps that a mean covers, 0 if unknown; values not printed are as in WHOLE, else nan."""
    moments = {"at": [*map(_moment, columns["at"])]} if "at" in columns else {}
    parsed = {name: np.array(values, float) for name, values in {**columns, **moments}.items()}
    count = len(columns["line"])
    unknown = np.full(count, np.nan)

    def column(*names: str) -> np.ndarray:
        """Return the first of these columns that is printed."""
        return reduce(known_first, (parsed.get(name, unknown) for name in names))

    parsed["milliseconds"] = column("milliseconds") / 1000
    parsed["steps_per_second"] = 1 / column("steps_per_second")
    prints = {name: column(name) for name in ("window_seconds", "reader", "rate", "samples")}
    prints["seconds"] = column("seconds", "milliseconds", "steps_per_second")
    prints["at"] = column("clock", "at")
    prints["accuracy"] = reduce(
        np.fmin, (parsed[name] for name in parsed if name.startswith("accuracy")), unknown
    )
    printed = np.array([text is not None for text in columns.get("loss", [None] * count)], bool)
    prints["loss"] = np.where(printed & np.isnan(column("loss")), np.inf, column("loss"))
    for name, missing in ({"line": 1} | WHOLE).items():
        numbers = column(name, "tag") if name == "rank" else column(name)
        prints[name] = np.nan_to_num(numbers, nan=missing).astype("int64")
    step, begin, index = (prints[name] for name in ("step", "begin", "since_index"))
    prints["since"] = np.select([index >= 0, begin >= 0], [index + 1, step - begin], 0)
    return prints


def known_first(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the values of `first`, replaced by those of `second` where they are nan."""
    return np.where(np.isnan(first), second, first)


def _moment(text: str | None) -> float | None:
    """Return a date and time, or UNIX seconds, as seconds of which only differences count."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text.replace("/", "-"))
    except ValueError:
        with suppress(ValueError):
            return float(text)
        return None
    epoch = datetime(1970, 1, 1, tzinfo=moment.tzinfo and UTC)
    return (moment - epoch).total_seconds()


def windows_of(prints: Columns, semantics: Semantics) -> pd.DataFrame:
    """Return the windows of prints in their order; none for means that cover unknown steps."""
    # Ranks without a rank number print the same step one after the other.
    place = prints["epoch"] * 2**40 + prints["step"]
    order, new = np.arange(len(place)), place != _before(place, -1)
    turn = order - np.maximum.accumulate(np.where(new | semantics.repeats, order, 0))
    rank = prints["rank"]
    rank = np.where((rank >= 0) & (rank <= RANKS), rank, np.maximum(-1 - turn, -RANKS))
    prints, ranks = prints | {"rank": rank}, np.unique(rank)
    if len(ranks) == 1:
        windows = _of_rank(prints, semantics)
    else:
        windows = {name: np.zeros(len(place), kind) for name, kind in WINDOW.items()}
        for at in (np.flatnonzero(rank == number) for number in ranks):
            of_rank = _of_rank({name: values[at] for name, values in prints.items()}, semantics)
            for name, values in windows.items():
                values[at] = of_rank[name]
    found = some_of(windows, windows["first"] <= windows["last"])
    return pd.DataFrame({name: found[name] for name in WINDOW}, copy=False)


def some_of(rows: Columns, mask: np.ndarray) -> Columns:
    """Return the masked rows of columns; the columns themselves if all are masked."""
    return rows if mask.all() else {name: values[mask] for name, values in rows.items()}


def _before(values: np.ndarray, first: float) -> np.ndarray:
    """Return each value's predecessor; the first one's is `first`."""
    return np.concatenate([[first], values])[:-1]


def _of_rank(prints: Columns, semantics: Semantics) -> Columns:
    step, epoch = prints["step"] + 1 - semantics.counts_from, prints["epoch"]
    change = np.diff(step, prepend=step[0] - 1)
    backwards = change < -1 if semantics.repeats else change <= 0
    earlier = _before(epoch, -1)
    restarts = (epoch < earlier) | ((epoch == earlier) & backwards)
    run = np.cumsum(restarts)
    if semantics.repeats:
        # Steps printed again count on, from the first step of their run.
        begins = np.diff(run, prepend=-1) > 0
        counted = np.where(begins, step, change).clip(min=1)
        sums = np.cumsum(counted)
        step = sums - (sums - counted)[begins][run]
    opens = restarts | (epoch != earlier)
    # The first step of the epoch that may be in the print's mean.
    begin = np.where(step >= semantics.since, semantics.since, 1)
    windows = prints | {"run": run, "first": step, "last": step, "own_rate": prints["rate"]}
    if semantics.covers == "running":
        return windows | _of_running_means(windows, begin, opens)
    if semantics.covers == "window":
        windows["first"] = np.maximum(step - _reach(windows, opens) + 1, begin)
    steps = step - windows["first"] + 1
    seconds, all_seconds = prints["seconds"], prints["window_seconds"]
    if semantics.mean_of == "rates":
        windows["own_rate"] = np.where(steps == 1, prints["rate"], np.nan)
    return windows | {
        "printed_seconds": known_first(seconds, all_seconds / steps),
        "seconds": known_first(all_seconds, seconds * steps),
        "reader": prints["reader"] * steps,
    }


def _of_running_means(windows: Columns, begin: np.ndarray, opens: np.ndarray) -> Columns:
    """Return the window columns computed from running means since `begin`, as differences of
    the sums behind consecutive prints."""
    step = windows["last"]
    anew = opens | (begin != _before(begin, 0))
    first = np.where(anew, begin, _before(step, 0) + 1).astype("int64")
    steps = step - begin + 1

    def of_window(sums: np.ndarray) -> np.ndarray:
        return sums - np.where(anew, 0.0, _before(sums, 0.0))

    return {
        "first": first,
        "printed_seconds": windows["seconds"],
        "own_rate": (step - first + 1) / of_window(steps / windows["rate"]),
        **{name: of_window(windows[name] * steps) for name in ("seconds", "reader")},
    }


def _reach(windows: Columns, opens: np.ndarray) -> np.ndarray:
    """Return the number of steps that a print covers: those since the previous print, limited
    to the usual number or to the print's own. The mean of a single print covers all steps
    before it; the steps of a single print's window time are unknown."""
    step, since = windows["last"], windows["since"]
    gap = np.where(opens, 0, np.diff(step, prepend=step[0]))
    usual = np.median(gap[gap > 0]) if (gap > 0).any() else 0.0
    reach = np.where(gap > 0, gap, np.append(gap[1:], 0))
    reach = np.where(reach <= USUAL * usual, reach, usual).astype("int64")
    reach = np.where((since > 0) & ((reach <= 0) | (reach > since)), since, reach)
    alone = np.where(np.isnan(windows["window_seconds"]), step, 0)
    return np.where(reach > 0, reach, alone)
