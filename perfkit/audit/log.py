"""A training log of another suite: its windows, configuration, reported figures and notes."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from perfkit.audit.config_facts import number_in
from perfkit.audit.formats import UNITS_OF_TIME, WHOLE, Semantics
from perfkit.audit.numbers import numbers, times
from perfkit.audit.print_facts import COLUMNS as FACTS_OF_PRINTS
from perfkit.audit.printed import PRINTED, DeclaredQuantity
from perfkit.audit.rolling import windows_of_means
from perfkit.audit.statements import FactValue, Note, SourcedFact

WINDOW = dict.fromkeys(("line", "rank", "epoch", "run", "first", "last"), "int64")
WINDOW |= dict.fromkeys(("seconds", "reader", "rate", "own_rate"), "float64")
WINDOW |= dict.fromkeys(("samples", "loss", "at", "printed_seconds"), "float64")
"""Columns of a log's windows and their types. A window is the steps that a print covers and no
earlier print does: `first` to `last`, counted from 1 in their epoch. `seconds`, `reader` and
`samples` (of one device or of all, like the rate) are sums over these steps. `rate` and
`printed_seconds` (of a step) are as printed; `own_rate` is the rate of these steps alone, which
differs if the print is a running mean. `at` is the print's clock. `run` counts the successive
trainings of a file. Values not printed are nan. Ranks whose prints have no rank number are -1,
-2, …"""


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
    ranks in one update, `accumulate`, `mode`, `unit`. Unknown facts are missing;
    nothing is assumed. `notes` are oddities of the file. `part` numbers a file's trainings of
    different configurations from 1; 0: only one. `printed` are the quantities that windows have
    besides the columns of WINDOW. `of_several`: whether the reported figures are those of
    several models.
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
    of_several: bool = False
    printed: tuple[DeclaredQuantity, ...] = ()

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
    """A file can't be read as a training log: the file, and the reason."""

    def __init__(self, file: Path, reason: str) -> None:
        super().__init__(reason)
        self.file, self.reason = file, reason


USUAL = 1.5
"""A print follows a lost one if its distance exceeds this many median distances."""
MOST_STEPS = 2.0**40
"""Steps of all epochs together, at most."""
YEAR = 2000
"""Year of a moment without one."""
RANKS = 1024
"""Ranks that are distinguished, at most."""
Columns = dict[str, np.ndarray]
"""Arrays by column: several times as fast as a DataFrame for the short columns of most logs."""


def prints_of(columns: Mapping[str, Sequence[Any]]) -> Columns:
    """Convert the columns of prints, texts or numbers (None: not printed), to arrays.

    Columns are those of a pattern, `line`, and `tag`, a rank. All times are in seconds; a
    printed loss that is not a number becomes infinite. `since` is the steps that a mean covers,
    0 if unknown; values not printed are as in WHOLE, else nan. Milliseconds of "250" and None
    become seconds of 0.25 and nan."""
    parsed = {name: _values_of(name, texts) for name, texts in columns.items()}
    unknown = np.full(len(columns["line"]), np.nan)

    def column(*names: str) -> np.ndarray:
        """Return, for each print, the first of these columns that is printed."""
        printed = unknown
        for name in names:
            printed = known_first(printed, parsed.get(name, unknown))
        return printed

    parsed["steps_per_second"] = 1 / column("steps_per_second")
    plain = ("window_seconds", "window_samples", "reader", "rate", "samples")
    prints = {name: column(name) for name in plain}
    prints["seconds"] = column("seconds", "milliseconds", "steps_per_second")
    prints["at"] = column("clock", "clock_hours", "at")
    prints |= {name: values for name, values in parsed.items() if _is_further(name)}
    prints["loss"] = column("loss")
    if "loss" in columns:
        is_printed = np.array([text is not None for text in columns["loss"]], bool)
        prints["loss"][is_printed & np.isnan(prints["loss"])] = np.inf
    for name, missing in ({"line": 1} | WHOLE).items():
        values = column(name, "tag") if name == "rank" else column(name)
        prints[name] = np.nan_to_num(values, nan=missing).astype("int64")
    _count_over_epochs(prints)
    step, begin, index = (prints[name] for name in ("step", "begin", "since_index"))
    # The rate of several steps tells the time of all their samples, and so their number.
    seconds = prints["window_samples"] / prints["rate"]
    prints["window_seconds"] = known_first(prints["window_seconds"], seconds)
    counted = np.nan_to_num(seconds / prints["seconds"], posinf=0.0).round()
    prints["since"] = np.select(
        [index >= 0, begin >= 0],
        [index + 1, step - begin],
        counted.clip(max=MOST_STEPS).astype("int64"),
    )
    return prints


def _is_further(column: str) -> bool:
    """Whether a column of prints is kept with the windows as it is."""
    return column.startswith(PRINTED) or column in FACTS_OF_PRINTS


def _values_of(column: str, texts: Sequence[Any]) -> np.ndarray:
    """Convert the texts of a column to numbers; times to seconds."""
    if column == "at":
        return np.array([_moment(text) for text in texts], float)
    if column in UNITS_OF_TIME:
        return times(texts, UNITS_OF_TIME[column])
    return numbers(texts)


def _count_over_epochs(prints: Columns) -> None:
    """Count the steps over all epochs, which are numbered from 1, where prints tell the steps
    of an epoch: step 2 of epoch 3 is step 14 if an epoch has 6 steps."""
    steps_of_epoch = prints.pop("steps_of_epoch")
    epochs_before = (prints["epoch"] - 1).clip(min=0)
    # Logs may contain numbers of any size.
    is_countable = steps_of_epoch * epochs_before.astype(float) < MOST_STEPS
    steps_before = np.where(is_countable, steps_of_epoch * epochs_before, 0)
    prints["step"] = prints["step"] + steps_before
    is_counted = (steps_of_epoch > 0) & is_countable
    prints["epoch"] = np.where(is_counted, 0, prints["epoch"])


def known_first(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the values of `first`, replaced by those of `second` where they are nan."""
    return np.where(np.isnan(first), second, first)


def _moment(text: str | None) -> float | None:
    """Return a date and time, or UNIX seconds, as seconds of which only differences count."""
    if text is None:
        return None
    text = text.replace("/", "-")
    if text[2:3] == "-":
        text = f"{YEAR}-{text}"
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        with suppress(ValueError):
            return float(text)
        return None
    epoch = datetime(1970, 1, 1, tzinfo=moment.tzinfo and UTC)
    return (moment - epoch).total_seconds()


def windows_of(prints: Columns, semantics: Semantics) -> pd.DataFrame:
    """Return the windows of prints in their order; none for means that cover unknown steps.
    Prints of steps 10 and 20 have the windows 1–10 and 11–20."""
    prints = prints | {"rank": _named_ranks(prints, semantics)}
    further = [name for name in prints if _is_further(name)]
    ranks = np.unique(prints["rank"])
    if len(ranks) == 1:
        windows = _of_rank(prints, semantics)
    else:
        windows = {name: np.zeros_like(prints[name]) for name in further}
        for name, kind in WINDOW.items():
            windows[name] = np.zeros(len(prints["rank"]), kind)
        for rank in ranks:
            is_of_rank = prints["rank"] == rank
            windows_of_rank = _of_rank(some_of(prints, is_of_rank), semantics)
            for name, values in windows.items():
                values[is_of_rank] = windows_of_rank[name]
    existing = some_of(windows, windows["first"] <= windows["last"])
    return pd.DataFrame({name: existing[name] for name in (*WINDOW, *further)}, copy=False)


def _named_ranks(prints: Columns, semantics: Semantics) -> np.ndarray:
    """Return the ranks of prints. Ranks without a rank number print the same step one after the
    other: of three prints of step 10 and three of step 20, the ranks are -1, -2, -3, -1, -2
    and -3."""
    rank, epoch, step = prints["rank"], prints["epoch"], prints["step"]
    place = epoch * 2**40 + step
    order = np.arange(len(place))
    is_next_step = place != _before(place, -1)
    if semantics.repeats:
        # The same step may be another one.
        is_next_step[:] = True
    first_of_step = np.maximum.accumulate(np.where(is_next_step, order, 0))
    turn = order - first_of_step
    unnamed = np.maximum(-1 - turn, -RANKS)
    return np.where((rank >= 0) & (rank <= RANKS), rank, unnamed)


def some_of(rows: Columns, mask: np.ndarray) -> Columns:
    """Return the masked rows of columns; the columns themselves if all are masked."""
    if mask.all():
        return rows
    return {name: values[mask] for name, values in rows.items()}


def _before(values: np.ndarray, first: float) -> np.ndarray:
    """Return each value's predecessor; the first one's is `first`: 0, 4, 5 for 4, 5, 6."""
    return np.concatenate([[first], values])[:-1]


def _of_rank(prints: Columns, semantics: Semantics) -> Columns:
    """Return the windows of one rank's prints."""
    step, epoch = prints["step"] + 1 - semantics.counts_from, prints["epoch"]
    change = np.diff(step, prepend=step[0] - 1)
    is_backwards = change < -1 if semantics.repeats else change <= 0
    epoch_before = _before(epoch, -1)
    restarts = (epoch < epoch_before) | ((epoch == epoch_before) & is_backwards)
    run = np.cumsum(restarts)
    if semantics.repeats:
        step = _counted_on(step, change, run)
    opens = restarts | (epoch != epoch_before)
    # The first step of the epoch that may be in the print's mean.
    begin = np.where(step >= semantics.since, semantics.since, 1)
    windows = prints | {"run": run, "first": step, "last": step, "own_rate": prints["rate"]}
    if semantics.covers == "running":
        return windows | _of_running_means(windows, begin, opens)
    if semantics.covers == "rolling" and semantics.window:
        return windows | _of_rolling_means(windows, semantics.window)
    if semantics.covers != "step":
        reach = _reach(windows, opens)
        if semantics.window:
            reach = np.minimum(reach, semantics.window)
        covered = np.maximum(step - reach + 1, begin)
        # A print that tells the step before the first covers no other steps.
        told = prints["begin"] + 2 - semantics.counts_from
        windows["first"] = np.where(prints["begin"] >= 0, told, covered)
    steps = step - windows["first"] + 1
    seconds, all_seconds = prints["seconds"], prints["window_seconds"]
    if semantics.mean_of == "rates":
        windows["own_rate"] = np.where(steps == 1, prints["rate"], np.nan)
    if semantics.mean_of == "usual":
        steps = steps.max()
    return windows | {
        "printed_seconds": known_first(seconds, all_seconds / steps),
        "seconds": known_first(all_seconds, seconds * steps),
        "reader": prints["reader"] * steps,
        "samples": known_first(prints["window_samples"], prints["samples"] * steps),
    }


def _counted_on(step: np.ndarray, change: np.ndarray, run: np.ndarray) -> np.ndarray:
    """Return steps that count on if a step is printed again, from the first step of their run:
    5, 6, 7, 8 for the printed steps 5, 5, 5, 6."""
    begins_run = np.diff(run, prepend=-1) > 0
    counted = np.where(begins_run, step, change).clip(min=1)
    sums = np.cumsum(counted)
    sums_before_run = (sums - counted)[begins_run]
    return sums - sums_before_run[run]


def _of_running_means(windows: Columns, begin: np.ndarray, opens: np.ndarray) -> Columns:
    """Return the window columns computed from running means since `begin`, as differences of
    the sums behind consecutive prints. Means of 2 s at step 10 and 3 s at step 20 are sums of
    20 and 60 s, so the window of steps 11 to 20 took 40 s."""
    step = windows["last"]
    is_anew = opens | (begin != _before(begin, 0))
    first = np.where(is_anew, begin, _before(step, 0) + 1).astype("int64")
    steps_in_mean = step - begin + 1

    def of_window(sums: np.ndarray) -> np.ndarray:
        return sums - np.where(is_anew, 0.0, _before(sums, 0.0))

    seconds_in_mean = steps_in_mean / windows["rate"]
    return {
        "first": first,
        "printed_seconds": windows["seconds"],
        "own_rate": (step - first + 1) / of_window(seconds_in_mean),
        "seconds": of_window(windows["seconds"] * steps_in_mean),
        "reader": of_window(windows["reader"] * steps_in_mean),
    }


def _of_rolling_means(windows: Columns, window: int) -> Columns:
    """Return the window columns computed from means over the last `window` steps."""
    step, run = windows["last"], windows["run"]
    times = windows_of_means(step, run, windows["seconds"], window)
    waits = windows_of_means(step, run, windows["reader"], window)
    return {
        "first": times.first,
        "printed_seconds": windows["seconds"],
        "seconds": times.sums,
        "reader": waits.sums,
    }


def _reach(windows: Columns, opens: np.ndarray) -> np.ndarray:
    """Return the number of steps that a print covers: those since the previous print, limited
    to the usual number or to the print's own. The mean of a single print covers all steps
    before it; the steps of a single print's window time are unknown. Prints of steps 10, 20,
    40 and 50 (that of step 30 is lost) cover 10 steps each."""
    step, since = windows["last"], windows["since"]
    gap = np.where(opens, 0, np.diff(step, prepend=step[0]))
    usual = np.median(gap[gap > 0]) if (gap > 0).any() else 0.0
    # The first print of an epoch covers as many steps as the second.
    next_gap = np.append(gap[1:], 0)
    reach = np.where(gap > 0, gap, next_gap)
    reach = np.where(reach <= USUAL * usual, reach, usual).astype("int64")
    reach = np.where((since > 0) & ((reach <= 0) | (reach > since)), since, reach)
    alone = np.where(np.isnan(windows["window_seconds"]), step, 0)
    return np.where(reach > 0, reach, alone)
