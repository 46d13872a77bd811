"""Series: the measurements of one configuration over time, versions and labels, with the points
at which their level changes."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Annotated, Any, Literal

import pandas as pd
from pydantic import Field

from perfkit.analysis.series import FEWEST_MEASUREMENTS, LEVEL, ChangePoint, segment
from perfkit.comparison.blocks import FACTS, numbered, title
from perfkit.comparison.keys import PROTOCOL, WORK, Value
from perfkit.comparison.verdict import Verdict, verdict
from perfkit.results.frames import records
from perfkit.results.schema import NOT_IDENTITY, Stored
from perfkit.statistics import Estimate, ratio_interval
from perfkit.text.format import FRAMEWORK_NAMES, column_value

MACHINE = ["device", *(f"environment.{name}" for name in ("cpu", "cpu_cores", "gpus"))]
SERIES = [*WORK, "topology", "used", "effective.tf32", *PROTOCOL, "input_sha256", "imported"]
SERIES = list(dict.fromkeys([*SERIES, *MACHINE]))
"""Columns in which the measurements of a series agree: the work, how it is measured, and what
computes."""
NAME = ["model", "name", "used", "batch_size", "topology", "input"]
"""Columns that always name a series; others are added where they tell series apart."""
RECENT = 2
"""A change of level is reported as a regression while it has so many measurements at most."""
PREDECESSOR_LEVEL = 0.95

Changes = Annotated[
    dict[str, tuple[Value, Value]],
    Field(description="fact of the environment, or label -> before, after"),
]


class Point(Stored):
    """A measurement of a series."""

    id: str
    folder: str
    created: str
    label: str
    throughput: float
    interval: tuple[float, float] | None
    interval_level: float | None
    n: Annotated[int, Field(description="complete repeats")]
    changes: Changes


class Change(Stored):
    """A change of level, from the measurement `start` (from 0) on."""

    start: int
    ratio: Annotated[float, Field(description="new level / former level")]
    interval: tuple[float, float]
    interval_level: float
    p_value: Annotated[float, Field(description="of the exact test between both levels")]


class Newest(Stored):
    """The newest measurement against the one before it."""

    ratio: float
    interval: tuple[float, float]
    interval_level: float
    verdict: Verdict


class Series(Stored):
    """The measurements of one configuration, FEWEST_MEASUREMENTS at least, in the order of
    time."""

    name: str
    framework: str
    unit: str
    points: list[Point]
    changes: list[Change]
    test_level: Annotated[
        float, Field(description="of a single test, so that the series keeps the level")
    ]
    scatter_share: Annotated[
        float, Field(description="standard deviation from one measurement to the next / median")
    ]
    newest: Newest
    regressed: Annotated[
        bool,
        Field(description="the level fell by more than the threshold within the newest two"),
    ]

    @property
    def levels(self) -> Iterator[tuple[int, int]]:
        """First and last index of the measurements of each level."""
        bounds = [0, *(change.start for change in self.changes), len(self.points)]
        for begin, end in pairwise(bounds):
            yield begin, end - 1


class History(Stored):
    """All series of a folder of results."""

    schema_version: Literal[1] = 1
    level: Annotated[
        float, Field(description="probability of a false change in a series without any")
    ]
    threshold: Annotated[float, Field(description="of a regression, a share")]
    series: list[Series]
    left_out: Annotated[
        int, Field(description="measurements with a number whose series is too short")
    ]
    regressed: bool


def history(
    measurements: pd.DataFrame, level: float = LEVEL, threshold: float = 0.02
) -> History:
    """The series among `measurements` (perfkit.load), the most recently measured first.

    `level` is the probability of a false change point in a series without any; a series has
    regressed if a change point at one of its newest RECENT measurements is slower by more than
    `threshold` (a share)."""
    frame = measurements[measurements["throughput"].notna()]
    effective = frame["effective.precision"]
    frame = frame.assign(
        used=effective.where(effective.notna(), frame["precision"]),
        name=frame["framework"].map(FRAMEWORK_NAMES),
    ).sort_values(["created", "folder"])
    frame["series"] = numbered(frame, SERIES)
    sizes = frame.groupby("series")["series"].transform("size")
    long = frame[sizes >= FEWEST_MEASUREMENTS]
    names = _names(long)
    found = [
        _series(names[number], some, level, threshold)
        for number, some in long.groupby("series", sort=False)
    ]
    found.sort(key=lambda series: series.points[-1].created, reverse=True)
    return History(
        level=level,
        threshold=threshold,
        series=found,
        left_out=len(frame) - len(long),
        regressed=any(series.regressed for series in found),
    )


def _series(name: str, frame: pd.DataFrame, level: float, threshold: float) -> Series:
    rows = records(frame)
    throughputs = [row["repeat_throughputs"] for row in rows]
    changes = [{}, *(_changes(*pair) for pair in pairwise(rows))]
    declared = [index for index, changed in enumerate(changes) if changed]
    segmentation = segment(throughputs, declared, level)
    points = segmentation.change_points
    newest = ratio_interval(throughputs[-1], throughputs[-2], PREDECESSOR_LEVEL)
    recent = points[-1:] if points and points[-1].start >= len(rows) - RECENT else []
    return Series(
        name=name,
        framework=rows[0]["name"],
        unit=rows[0]["unit"],
        points=[_point(row, changed) for row, changed in zip(rows, changes, strict=True)],
        changes=[_change(point) for point in points],
        test_level=segmentation.test_level,
        scatter_share=segmentation.scatter,
        newest=Newest(**_ratio(newest), verdict=verdict(newest, PREDECESSOR_LEVEL)),
        regressed=any(point.ratio.value < 1 - threshold for point in recent),
    )


def _point(row: dict[str, Any], changes: Changes) -> Point:
    low, high = row["throughput_low"], row["throughput_high"]
    same = ("id", "folder", "created", "throughput", "interval_level", "n")
    return Point(
        **{name: row[name] for name in same},
        label=row["label"] or "",
        interval=None if low is None else (low, high),
        changes=changes,
    )


def _change(point: ChangePoint) -> Change:
    return Change(start=point.start, **_ratio(point.ratio), p_value=point.p_value)


def _ratio(estimate: Estimate) -> dict[str, Any]:
    ends = (estimate.low, estimate.high)
    return {"ratio": estimate.value, "interval": ends, "interval_level": estimate.level}


def _changes(before: dict[str, Any], after: dict[str, Any]) -> Changes:
    """In what the environment or the label of two measurements differs: the framework's version
    first, then hardware and driver, then all other facts."""
    facts = [
        key.removeprefix("environment.") for key in after if key.startswith("environment.")
    ]
    order = [after["framework"], *FACTS, *sorted(facts)]
    keys = {fact: f"environment.{fact}" for fact in order if fact not in NOT_IDENTITY}
    keys["label"] = "label"
    return {
        name: (before.get(key), after.get(key))
        for name, key in keys.items()
        if (before.get(key) or None) != (after.get(key) or None)
    }


def _names(frame: pd.DataFrame) -> dict[Any, str]:
    """The name of each series: its configuration, and the values of all columns in which the
    series of that configuration differ."""
    heads = frame.drop_duplicates("series").set_index("series")
    keys = [key for key in SERIES if key in heads and key not in NAME]
    names = {}
    for _values, alike in heads.groupby(NAME, dropna=False, sort=False):
        differing = [key for key in keys if alike[key].nunique(dropna=False) > 1]
        for number, row in zip(alike.index, records(alike), strict=True):
            words = [title(row, NAME)]
            words += [column_value(key, row[key]) for key in differing if row[key] is not None]
            names[number] = " · ".join(words)
    return names
