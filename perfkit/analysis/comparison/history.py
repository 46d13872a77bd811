"""Series: the measurements of one configuration over time, versions and labels, with their
change points."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Literal

import pandas as pd

from perfkit.analysis.comparison.blocks import FACTS, named, numbered, title
from perfkit.analysis.comparison.keys import PROTOCOL, WORK, Differences
from perfkit.analysis.ratios import Ratio, Verdict, estimated, verdict
from perfkit.analysis.series import FEWEST_MEASUREMENTS, LEVEL, segment
from perfkit.core.results.base import Stored
from perfkit.core.results.frames import records
from perfkit.core.results.identity import NOT_IDENTITY
from perfkit.core.statistics import ratio_interval
from perfkit.report.text.names import column_value, traits

MACHINE = ["device", *(f"environment.{name}" for name in ("cpu", "cpu_cores", "gpus"))]
SERIES = [*WORK, "topology", "used", "effective.tf32", *PROTOCOL, *MACHINE]
SERIES = [*dict.fromkeys([*SERIES, "input_sha256"])]
"""Columns in which the measurements of a series agree: work, protocol and hardware."""
NAME = ["model", "name", "used", "batch_size", "topology", "input"]
"""Columns that always name a series; others are added if series differ in them."""
RECENT = 2
"""A lower level is reported as a regression while it has at most this many measurements."""
PREDECESSOR_LEVEL = 0.95


class Point(Stored):
    """A measurement of a series with `n` complete repeats. `changes`: fact of the environment,
    or label -> values before and after."""

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


class Change(Ratio):
    """A change of level at the measurement `start` (from 0), with the p-value of the exact test
    between the two levels."""

    start: int
    p_value: float


def newest_drop(changes: Sequence[Change], threshold: float) -> Change | None:
    """Return the newest drop that has not recovered: the newest level is lower than the level
    before it by more than `threshold`."""
    level = 1.0
    for change in reversed(changes):
        level *= change.ratio
        if level < 1 - threshold:
            return change
    return None


class Newest(Ratio):
    """The newest measurement compared with the previous one."""

    verdict: Verdict


class Series(Stored):
    """The measurements of one configuration, at least FEWEST_MEASUREMENTS, in chronological
    order.

    `test_level` is the level of a single test that keeps the level of the series;
    `scatter_share` is the standard deviation between consecutive measurements / median. The
    series has `regressed` if the level fell by more than the threshold within the newest two
    measurements."""

    name: str
    framework: str
    unit: str
    points: list[Point]
    changes: list[Change]
    test_level: float
    scatter_share: float
    newest: Newest
    regressed: bool

    def fall(self, threshold: float) -> Change | None:
        """Return the newest drop by more than `threshold` that has not recovered."""
        return newest_drop(self.changes, threshold)

    @property
    def levels(self) -> Iterator[tuple[int, int]]:
        """Yield the first and the last index of each level's measurements."""
        bounds = [0, *(change.start for change in self.changes), len(self.points)]
        for begin, end in pairwise(bounds):
            yield begin, end - 1


class History(Stored):
    """All series of a folder of results. `level` is the probability of a false change in a
    series without any, `threshold` the share that a regression exceeds; `left_out` counts
    measurements whose series is too short."""

    schema_version: Literal[1] = 1
    level: float
    threshold: float
    series: list[Series]
    left_out: int
    regressed: bool


def history(
    measurements: pd.DataFrame, level: float = LEVEL, threshold: float = 0.02
) -> History:
    """Return the series among `measurements` (perfkit.load), the most recently measured first.

    `level` is the probability of a false change point in a series without any. A series has
    regressed if the level fell by more than `threshold` (a share) at one of its RECENT newest
    measurements."""
    frame = named(measurements[measurements["throughput"].notna()])
    frame = frame.sort_values(["created", "folder"])
    frame["series"] = numbered(frame, SERIES)
    sizes = frame.groupby("series")["series"].transform("size")
    long = frame[sizes >= FEWEST_MEASUREMENTS]
    names = _names(long)
    found = [
        _series(names[number], records(rows), level, threshold)
        for number, rows in long.groupby("series", sort=False)
    ]
    return History(
        level=level,
        threshold=threshold,
        series=sorted(found, key=lambda series: series.points[-1].created, reverse=True),
        left_out=len(frame) - len(long),
        regressed=any(series.regressed for series in found),
    )


def _series(name: str, rows: list[dict[str, Any]], level: float, threshold: float) -> Series:
    throughputs = [row["repeat_throughputs"] for row in rows]
    changes = [{}, *(_changes(*pair) for pair in pairwise(rows))]
    declared = [index for index, changed in enumerate(changes) if changed]
    found = segment(throughputs, declared, level)
    newest = ratio_interval(throughputs[-1], throughputs[-2], PREDECESSOR_LEVEL)
    changes_of_level = [
        Change(start=point.start, **estimated(point.ratio), p_value=point.p_value)
        for point in found.change_points
    ]
    drop = newest_drop(changes_of_level, threshold)
    return Series(
        name=name,
        framework=rows[0]["name"],
        unit=rows[0]["unit"],
        points=[_point(row, changed) for row, changed in zip(rows, changes, strict=True)],
        changes=changes_of_level,
        test_level=found.test_level,
        scatter_share=found.scatter,
        newest=Newest(**estimated(newest), verdict=verdict(newest, PREDECESSOR_LEVEL)),
        regressed=drop is not None and drop.start >= len(rows) - RECENT,
    )


def _point(row: dict[str, Any], changes: Differences) -> Point:
    low, high = row["throughput_low"], row["throughput_high"]
    interval = None if low is None else (low, high)
    values = {name: row[name] for name in Point.model_fields if name in row}
    values |= {"label": row["label"] or "", "changes": changes, "interval": interval}
    return Point(**values | {"repeat_throughputs": [*row["repeat_throughputs"]]})


def _changes(before: dict[str, Any], after: dict[str, Any]) -> Differences:
    """Return the differences in environment or label: the framework's version first, then
    hardware and driver, then all other facts."""
    prefix = "environment."
    facts = [key.removeprefix(prefix) for key in after if key.startswith(prefix)]
    order = [after["framework"], *FACTS, *sorted(facts)]
    keys = {fact: f"{prefix}{fact}" for fact in order if fact not in NOT_IDENTITY}
    return {
        name: (before.get(key), after.get(key))
        for name, key in (keys | {"label": "label"}).items()
        if (before.get(key) or None) != (after.get(key) or None)
    }


def _names(frame: pd.DataFrame) -> dict[Any, str]:
    """Return the name of each series: its configuration, the parameters that differ from the
    defaults, and the values of all other columns in which series of that configuration
    differ."""
    heads = frame.drop_duplicates("series").set_index("series")
    keys = [key for key in SERIES if key in heads and key not in NAME]
    names = {}
    for _values, alike in heads.groupby(NAME, dropna=False, sort=False):
        differing = [key for key in keys if alike[key].nunique(dropna=False) > 1]
        for number, row in zip(alike.index, records(alike), strict=True):
            named = traits(row)
            others = [key for key in differing if row[key] is not None and key not in named]
            words = [title(row, NAME), *named.values()]
            words += [column_value(key, row[key]) for key in others]
            names[number] = " · ".join(words)
    return names
