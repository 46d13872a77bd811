"""A training log of another suite: its windows, configuration, reported figures and notes."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from perfkit.logs.config_facts import Sourced, number_in
from perfkit.logs.formats import COLUMNS, WHOLE, Semantics
from perfkit.messages import Message

Unit = Literal["samples/s", "s", ""]
WINDOW = ["line", "rank", "epoch", "run", "first", "last", "seconds", "reader", "rate"]
WINDOW += ["own_rate", "loss", "accuracy", "at", "printed_seconds"]
"""Columns of a log's windows. A window is the steps that a print covers and no earlier print
does: `first` to `last`, counted from 1 in their epoch. `seconds` and `reader` are sums over
these steps. `rate` and `printed_seconds` (of a step) are as printed; `own_rate` is the rate of
these steps alone, which differs if the print is a running mean. `accuracy` is the lowest
printed, `at` the print's clock. `run` counts the successive trainings of a file. Values not
printed are nan. Ranks whose prints have no rank number are -1, -2, …"""


@dataclass(frozen=True)
class ReportedFigure:
    """A figure that the log reports as its own result, with its name and text; `ranks` is the
    device count that the log gives for it."""

    name: str
    value: float
    text: str
    line: int
    unit: Unit = ""
    ranks: int | None = None


@dataclass
class Log:
    """One training of a file.

    `windows` is a DataFrame of WINDOW. `facts` may have, by name: `model`, `framework`,
    `precision` (values of Config), `gpu`, `nodes`, `devices` of a node, `ranks` of all nodes,
    `batch_size` of a device in one step (without accumulation), `global_batch_size` of all
    ranks in one update, `accumulate`, `input`, `mode`, `unit`. Unknown facts are missing;
    nothing is assumed. `notes` are oddities of the file with their lines; line 0 is the whole
    file. `part` numbers a file's trainings of different configurations from 1; 0: only one.
    """

    path: Path
    format: str
    sha256: str
    semantics: Semantics
    windows: pd.DataFrame
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
        return number_in(self.facts, name)


class LogError(ValueError):
    """A file can't be read as a training log; the message is the reason, without the file."""


USUAL = 1.5
"""A print follows a lost one if its distance exceeds this many median distances."""
RANKS = 1024
"""Ranks that are distinguished, at most."""


def prints_of(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Convert prints to numbers, with a row per print. Each is a mapping of `line`, `tag`, a
    rank, and groups of a pattern to texts or numbers (None: not printed). The lowest of several
    accuracies counts; all times are in seconds; a printed loss that is not a number becomes
    infinite. `since` is the steps that a mean covers, 0 if unknown; values not printed are as
    in WHOLE, else nan."""
    texts = pd.DataFrame(rows, dtype=object)
    if "at" in texts:
        texts["at"] = texts["at"].map(_moment)
    numbers = texts.astype(float)
    absent = {"line", "tag", *COLUMNS}.difference(numbers.columns)
    numbers = numbers.reindex(columns=[*numbers.columns, *absent])
    prints = numbers[["window_seconds", "reader", "rate", "samples", "loss"]].copy()
    other = numbers["milliseconds"] / 1000, 1 / numbers["steps_per_second"]
    prints["seconds"] = numbers["seconds"].fillna(other[0]).fillna(other[1])
    prints["at"] = numbers["clock"].fillna(numbers["at"])
    prints["accuracy"] = numbers.filter(like="accuracy").min(axis="columns")
    if "loss" in texts:
        prints["loss"] = prints["loss"].mask(prints["loss"].isna() & texts["loss"].notna(), inf)
    numbers["rank"] = numbers["rank"].fillna(numbers["tag"])
    for name, missing in ({"line": 1} | WHOLE).items():
        prints[name] = numbers[name].fillna(missing).astype("int64")
    index, begin = prints["since_index"], prints["begin"]
    since = [index + 1, prints["step"] - begin]
    prints["since"] = np.select([index >= 0, begin >= 0], since, 0)
    return prints


def _moment(text: str | None) -> float | None:
    """Return a date and time, or UNIX seconds, as seconds of which only differences count."""
    try:
        moment = datetime.fromisoformat((text or "").replace("/", "-"))
    except ValueError:
        with suppress(ValueError):
            return float(text or "nan")
        return None
    return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()


def windows_of(prints: pd.DataFrame, semantics: Semantics) -> pd.DataFrame:
    """Return the windows of prints in their order; none for means that cover unknown steps."""
    # Ranks without a rank number print the same step one after the other.
    place = prints["epoch"] * 2**40 + prints["step"]
    turn = place.groupby(((place.diff() != 0) | semantics.repeats).cumsum()).cumcount()
    rank = prints["rank"].where(prints["rank"].between(0, RANKS), (-1 - turn).clip(-RANKS))
    by_rank = prints.assign(rank=rank).groupby("rank")
    parts = [_of_rank(of_rank, semantics) for _rank, of_rank in by_rank]
    if not parts:
        return pd.DataFrame(columns=WINDOW, dtype=float)
    windows = pd.concat(parts).sort_index()
    return windows.loc[windows["first"] <= windows["last"], WINDOW].reset_index(drop=True)


def _of_rank(prints: pd.DataFrame, semantics: Semantics) -> pd.DataFrame:
    step = prints["step"] + 1 - semantics.counts_from
    epochs, change = prints["epoch"].diff(), step.diff().fillna(1)
    backwards = change < -1 if semantics.repeats else change <= 0
    restarts = (epochs < 0) | ((epochs == 0) & backwards)
    run = restarts.cumsum()
    if semantics.repeats:
        # Steps printed again count on, from the first step of their run.
        counted = change.where(run.diff() == 0, step).clip(1)
        step = counted.groupby(run).cumsum().astype("int64")
    opens = restarts | (epochs != 0)
    # The first step of the epoch that may be in the print's mean.
    begin = (step >= semantics.since) * (semantics.since - 1) + 1
    windows = prints.assign(run=run, first=step, last=step, own_rate=prints["rate"])
    if semantics.covers == "running":
        return _of_running_means(windows, begin, opens)
    if semantics.covers == "window":
        windows["first"] = np.maximum(step - _reach(windows, opens) + 1, begin)
    steps = step - windows["first"] + 1
    if semantics.mean_of == "rates":
        windows["own_rate"] = prints["rate"].where(steps == 1)
    seconds, all_seconds = prints["seconds"], prints["window_seconds"]
    return windows.assign(
        printed_seconds=seconds.fillna(all_seconds / steps),
        seconds=all_seconds.fillna(seconds * steps),
        reader=prints["reader"] * steps,
    )


def _of_running_means(
    windows: pd.DataFrame, begin: "pd.Series[int]", opens: "pd.Series[bool]"
) -> pd.DataFrame:
    """Return windows of running means since `begin`: differences of the sums behind consecutive
    prints."""
    step, anew = windows["last"], opens | (begin.diff() != 0)
    first = begin.where(anew, step.shift(fill_value=0) + 1)
    steps = step - begin + 1

    def of_window(sums: "pd.Series[float]") -> "pd.Series[float]":
        return sums - sums.shift().mask(anew, 0.0)

    return windows.assign(
        first=first,
        printed_seconds=windows["seconds"],
        own_rate=(step - first + 1) / of_window(steps / windows["rate"]),
        seconds=of_window(windows["seconds"] * steps),
        reader=of_window(windows["reader"] * steps),
    )


def _reach(windows: pd.DataFrame, opens: "pd.Series[bool]") -> "pd.Series[int]":
    """Return the number of steps that a print covers: those since the previous print, limited
    to the usual number or to the print's own. The mean of a single print covers all steps
    before it; the steps of a single print's window time are unknown."""
    step, since = windows["last"], windows["since"]
    gap = step.diff().mask(opens, 0)
    usual = gap[gap > 0].median() if (gap > 0).any() else 0
    reach = gap.where(gap > 0, gap.shift(-1, fill_value=0))
    reach = reach.where(reach <= USUAL * usual, usual).astype("int64")
    reach = reach.mask((since > 0) & ~reach.between(1, since), since)
    alone = step.where(windows["window_seconds"].isna(), 0)
    return reach.where(reach > 0, alone)
