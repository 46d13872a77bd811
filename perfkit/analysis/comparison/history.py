"""Series: the measurements of one configuration over time, versions and labels, with their
change points."""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from math import log
from typing import Any, Literal, NamedTuple

import pandas as pd

from perfkit.analysis.comparison.blocks import FACTS, named, numbered
from perfkit.analysis.comparison.configurations import Configuration, configurations
from perfkit.analysis.comparison.keys import (
    LIVE_LABEL,
    MAY_DIFFER,
    OF_COMMANDS,
    SERIES,
    Differences,
)
from perfkit.analysis.rates import MachineRate, machine_rates
from perfkit.analysis.ratios import Ratio, estimated
from perfkit.analysis.series import (
    FEWEST_MEASUREMENTS,
    NEAREST,
    level_changes,
    level_starts,
    newest_drop,
    scatter,
)
from perfkit.analysis.verdicts import LEVEL, THRESHOLD, verdict
from perfkit.measuring.results.base import Stored
from perfkit.measuring.results.frames import records
from perfkit.measuring.results.identity import NOT_IDENTITY
from perfkit.measuring.results.schema import Result
from perfkit.measuring.statistics import Estimate, median, ratio_interval

CHANGING = {"threads": "effective.threads", "interpreter": "python"}
"""What may change of the workers within a series -> its column. The parameter `python` is
called the interpreter: `python` is the environment's fact, its version."""
Read = Callable[[str], Result]
"""Returns the result in a folder, a value of the column `folder`."""
ACCEPTED = "accepted"
"""A label that begins so accepts the level of its measurement."""


class Point(Stored):
    """A measurement of a series with `n` complete repeats. `changes`: fact of the environment,
    `threads` (sizes of the pools), `interpreter` or other parameter, such as the label ->
    values before and after."""

    id: str
    folder: str
    created: str
    label: str
    throughput: float
    interval: tuple[float, float] | None
    interval_level: float | None
    n: int
    repeat_throughputs: list[float]
    changes: Differences
    disturbed: bool = False
    """whether other load took more than a tenth of the cores: it is shown, but not judged"""
    peak_memory_bytes: int | None = None
    first_step_seconds: float | None = None

    @property
    def changed_environment(self) -> Differences:
        """The changes of the environment and of parameters, without that of the label, which
        names the measurement alone."""
        return {name: values for name, values in self.changes.items() if name != "label"}


class Change(Ratio):
    """A change of level at the judged measurement `start` (from 0): the ratio to the level
    before, the median throughputs before and after, and the rates of the machine beside
    them."""

    start: int
    before: float
    after: float
    rates: list[MachineRate]


class Drop(Ratio):
    """The newest level is below the best accepted one by more than the threshold; the ratio is
    the newest / the best. `start` is the first judged measurement below the best accepted level
    (from 0)."""

    start: int


class Series(Stored):
    """The measurements of one configuration in chronological order, of which at least
    FEWEST_MEASUREMENTS are judged: those that no other load disturbed.

    `scatter_share` is the standard deviation between measurements / median. The series has
    `regressed` while it has a `drop`: since the level of the measurement `judged_from` (from
    0), which was accepted."""

    configuration: Configuration
    framework: str
    unit: str
    points: list[Point]
    changes: list[Change]
    scatter_share: float
    judged_from: int
    drop: Drop | None
    regressed: bool

    @property
    def judged(self) -> list[Point]:
        """The measurements that no other load disturbed."""
        return [point for point in self.points if not point.disturbed]

    @property
    def accepted(self) -> Point | None:
        """The measurement that accepts its level; None if all measurements are judged."""
        return self.judged[self.judged_from] if self.judged_from else None

    @property
    def levels(self) -> Iterator[tuple[int, int]]:
        """Yield the first and the last index of each level's judged measurements."""
        bounds = [0, *(change.start for change in self.changes), len(self.judged)]
        for begin, end in pairwise(bounds):
            yield begin, end - 1


class History(Stored):
    """All series of a folder of results. `threshold` is the share that a regression exceeds;
    `left_out` counts measurements whose series is too short."""

    schema_version: Literal[6] = 6
    threshold: float
    series: list[Series]
    left_out: int
    regressed: bool


def history(
    measurements: pd.DataFrame,
    threshold: float = THRESHOLD,
    read: Read | None = None,
) -> History:
    """Return the series among `measurements` (perfkit.load), the most recently measured first.
    Measurements that `perfkit compare --live` labelled are left out: their repeats were
    interleaved with those of others.

    A series has regressed while its newest level is below the best accepted one by more than
    `threshold` (a share). With `read`, changes have the rates of the machine."""
    frame = _in_series(measurements)
    undisturbed = ~frame["disturbed"].astype(bool)
    sizes = undisturbed.groupby(frame["series"]).transform("sum")
    long = frame[sizes >= FEWEST_MEASUREMENTS]
    by_number = configurations(long, SERIES)
    every = []
    for number, rows in long.groupby("series", sort=False):
        every.append(_series(by_number[number], records(rows), threshold, read))
    every.sort(key=lambda series: series.points[-1].created, reverse=True)
    return History(
        threshold=threshold,
        series=every,
        left_out=len(frame) - len(long),
        regressed=any(series.regressed for series in every),
    )


class Mover(NamedTuple):
    """The newest measurement of a series beside the one before."""

    configuration: Configuration
    newest: dict[str, Any]
    """its row of `perfkit.load`"""
    before: dict[str, Any]
    ratio: Estimate


def movers(measurements: pd.DataFrame) -> list[Mover]:
    """Return the series whose newest measurement differs from the one before by more than the
    usual threshold, with an interval of the ratio that excludes 1; the largest difference
    first. Measurements that other load disturbed are left out."""
    frame = _in_series(measurements)
    frame = frame[~frame["disturbed"].astype(bool)]
    long = frame[frame.groupby("series")["series"].transform("size") >= FEWEST_MEASUREMENTS]
    by_number = configurations(long, SERIES)
    found = []
    for number, rows in long.groupby("series", sort=False):
        before, newest = records(rows.tail(2))
        ratio = ratio_interval(newest["repeat_throughputs"], before["repeat_throughputs"])
        is_told = verdict(ratio, LEVEL, THRESHOLD) in ("faster", "slower")
        if is_told and abs(ratio.value - 1) > THRESHOLD:
            found.append(Mover(by_number[number], newest, before, ratio))
    return sorted(found, key=lambda mover: abs(log(mover.ratio.value)), reverse=True)


def _in_series(measurements: pd.DataFrame) -> pd.DataFrame:
    """Return the measurements with a throughput in chronological order, with the number of
    their series."""
    is_live = measurements["label"].fillna("").str.fullmatch(LIVE_LABEL)
    frame = named(measurements[measurements["throughput"].notna() & ~is_live])
    frame = frame.sort_values(["created", "folder"])
    return frame.assign(series=numbered(frame, SERIES))


def _series(
    configuration: Configuration,
    rows: list[dict[str, Any]],
    threshold: float,
    read: Read | None,
) -> Series:
    judged = [row for row in rows if not row["disturbed"]]
    throughputs = [row["repeat_throughputs"] for row in judged]
    starts = level_starts(throughputs, threshold)
    judged_from = _accepted_from(judged)
    found = newest_drop(throughputs, starts, judged_from, threshold)
    drop = Drop(**estimated(found.ratio), start=found.start) if found else None
    return Series(
        configuration=configuration,
        framework=rows[0]["name"],
        unit=rows[0]["unit"],
        points=_points(rows),
        changes=_changes(judged, starts, read),
        scatter_share=scatter(throughputs),
        judged_from=judged_from,
        drop=drop,
        regressed=drop is not None,
    )


def _accepted_from(rows: Sequence[dict[str, Any]]) -> int:
    """Return the newest measurement whose label accepts its level; 0 without any."""
    labels = [row["label"] or "" for row in rows]
    accepting = [index for index, label in enumerate(labels) if label.startswith(ACCEPTED)]
    return max(accepting, default=0)


def _changes(
    rows: Sequence[dict[str, Any]], starts: Sequence[int], read: Read | None
) -> list[Change]:
    """Return the changes of level of the judged measurements, with medians and rates of those
    from which a change's ratio follows."""
    throughputs = [row["repeat_throughputs"] for row in rows]
    bounds = [*starts, len(rows)]
    changes = []
    for index, change in enumerate(level_changes(throughputs, starts), 1):
        before = rows[bounds[index - 1] : change.start][-NEAREST:]
        after = rows[change.start : bounds[index + 1]][:NEAREST]
        rates: list[MachineRate] = []
        if read:
            earlier = [read(row["folder"]) for row in before]
            later = [read(row["folder"]) for row in after]
            rates = machine_rates(earlier, later, change.ratio, LEVEL)
        changed = Change(
            **estimated(change.ratio),
            start=change.start,
            before=_median(before),
            after=_median(after),
            rates=rates,
        )
        changes.append(changed)
    return changes


def _median(rows: Sequence[dict[str, Any]]) -> float:
    return median(median(row["repeat_throughputs"]) for row in rows)


def _points(rows: Sequence[dict[str, Any]]) -> list[Point]:
    """Return the measurements of a series, each with what changed since the one before."""
    points = [_point(rows[0], {})]
    for before, after in pairwise(rows):
        points.append(_point(after, _differences(before, after)))
    return points


def _point(row: dict[str, Any], changes: Differences) -> Point:
    ends = (row["throughput_low"], row["throughput_high"])
    has_interval = None not in ends
    label = row["label"] or ""
    return Point(
        id=row["id"],
        folder=row["folder"],
        created=row["created"],
        label=label,
        throughput=row["throughput"],
        interval=ends if has_interval else None,
        interval_level=row["interval_level"],
        n=row["n"],
        repeat_throughputs=row["repeat_throughputs"],
        changes=changes,
        disturbed=bool(row["disturbed"]),
        peak_memory_bytes=row["peak_memory_bytes"],
        first_step_seconds=row["first_step_seconds"],
    )


def _differences(before: dict[str, Any], after: dict[str, Any]) -> Differences:
    """Return the differences in what may change: script or command, the framework's version,
    threads and interpreter first, then hardware and driver, all other facts, and the parameters
    that don't define the work."""
    prefix = "environment."
    facts = [key.removeprefix(prefix) for key in after if key.startswith(prefix)]
    framework = after["framework"]
    columns = {name: name for name in ("script_sha256", *OF_COMMANDS)}
    columns |= {framework: f"{prefix}{framework}", **CHANGING}
    for fact in [*FACTS, *sorted(facts)]:
        if fact not in NOT_IDENTITY:
            columns[fact] = f"{prefix}{fact}"
    columns |= {parameter: parameter for parameter in MAY_DIFFER}
    differences: Differences = {}
    for name, column in columns.items():
        values = before.get(column), after.get(column)
        # An empty value is as good as none.
        if (values[0] or None) != (values[1] or None):
            differences[name] = values
    return differences
