"""Scaling: speed-ups over the fewest devices, measured and published."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import nan
from typing import Any

import numpy as np
import pandas as pd

from perfkit.analysis.comparison.blocks import ROW, Work, varying, work_of
from perfkit.analysis.published import published
from perfkit.analysis.published.cells import NO_BASE, RUNS, cells_of
from perfkit.analysis.published.matches import place, place_of
from perfkit.measuring.results.frames import records
from perfkit.measuring.statistics import ratio_interval
from perfkit.training.models import find_model

PANEL = [key for key in ROW if key != "topology"]
"""Columns in which the lines of a panel agree."""


def over_first(points: pd.DataFrame, line: list[str], *more: str) -> pd.DataFrame:
    """Add the columns of each line's first point as `base_…`: throughput, devices, topology and
    `more`; and the ratios to it: `gain`, of the throughput; `times`, of the devices, which is
    the ideal gain; `efficiency`, gain / times."""
    columns = ["throughput", "devices", "topology", *more]
    first = points.groupby(line)[columns].transform("first")
    points = points.join(first.add_prefix("base_"))
    gain = points["throughput"] / points["base_throughput"]
    times = points["devices"] / points["base_devices"]
    return points.assign(gain=gain, times=times, efficiency=gain / times)


def speedups(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the `cells` measured on several topologies, and the published numbers of the same
    work, which have a `source`.

    `speedup`, `speedup_low`, `speedup_high` and `repeat_speedups` are relative to the first
    point of the line, with the fewest devices, which lies on the ideal; the fewest devices of
    the panel have 1. `shares_cores`: processes of the panel share cores, so that there is no
    ideal speed-up."""
    measured = varying(cells, "topology").assign(source="")
    if measured.empty:
        return measured
    points = pd.DataFrame([*records(measured), *_published(measured)], columns=measured.columns)
    points = points.sort_values([*PANEL, "order", "source", "devices", "topology"])
    line = [*PANEL, "name", "source"]
    points = over_first(points, line, "resources", "repeat_throughputs")
    panels = points.assign(share=points["resources"] / points["devices"]).groupby(PANEL)
    times = points["base_resources"] / panels["resources"].transform("min")
    scale = times / points["base_throughput"]
    repeats = points[["repeat_throughputs", "base_repeat_throughputs"]]
    intervals = [_interval(*pair) for pair in repeats.itertuples(index=False)]
    ends = pd.DataFrame(intervals, points.index, ["low", "high"])
    return points.assign(
        speedup=points["throughput"] * scale,
        speedup_low=ends["low"] * times,
        speedup_high=ends["high"] * times,
        repeat_speedups=points["repeat_throughputs"].map(np.array) * scale,
        shares_cores=panels["share"].transform("nunique") > 1,
    )


@dataclass(frozen=True)
class Gain:
    """The gain in throughput of the most devices of a line over its fewest."""

    work: Work
    framework: str
    """The framework's name, as shown."""
    devices: int
    base_devices: int
    ratio: float
    efficiency: float
    """The share of the ideal gain."""
    shares_cores: bool
    """Whether processes share cores, so that there is no ideal gain."""


def gains(points: pd.DataFrame) -> list[Gain]:
    """Return the gain of each measured line of `speedups`."""
    measured = points[points["source"] == ""]
    lines = measured.groupby([*PANEL, "name"], sort=False)
    line_gains = []
    for last in records(lines.tail(1)):
        gain = Gain(
            work=work_of(last),
            framework=last["name"],
            devices=last["devices"],
            base_devices=last["base_devices"],
            ratio=last["gain"],
            efficiency=last["efficiency"],
            shares_cores=last["shares_cores"],
        )
        line_gains.append(gain)
    return line_gains


def _interval(values: tuple[float, ...], base: tuple[float, ...]) -> tuple[float, float]:
    """Return the interval of `values` / `base`; NaN for published numbers, single repeats and
    the base itself."""
    if values is base or min(len(values), len(base)) < 2:
        return (nan, nan)
    ratio = ratio_interval(values, base)
    return ratio.low, ratio.high


def _published(measured: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield the published numbers of the measured work, on all topologies, as rows of it."""
    comparable = []
    for cell in cells_of(published().dropna(subset="throughput")):
        if cell.table != RUNS and cell.note != NO_BASE:
            comparable.append((cell, place_of(cell)))
    rows = records(measured.drop_duplicates([*PANEL, "framework"]))
    of_models = [row for row in rows if find_model(row["model"])]
    for row in of_models:
        work = place(row | {"precision": row["used"]})
        for cell, cell_place in comparable:
            if cell_place == work._replace(topology=cell.topology):
                yield row | {
                    "topology": cell.topology,
                    "throughput": cell.throughput,
                    "devices": cell.gpus,
                    "resources": cell.gpus,
                    "source": f"{cell.table} {cell.gpu} {cell.note or ''}",
                    "repeat_throughputs": (),
                }
