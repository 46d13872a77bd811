"""How throughput grows with devices: as it was measured, and as it was published."""

from collections.abc import Iterator
from math import nan
from typing import Any

import numpy as np
import pandas as pd

from perfkit.comparison.blocks import ROW, varying
from perfkit.reference.cells import NO_BASE, RUNS, cells_of
from perfkit.reference.matches import place, place_of
from perfkit.reference.table import published
from perfkit.results.frames import records
from perfkit.statistics import ratio_interval

PANEL = [key for key in ROW if key != "topology"]
"""In these the lines agree that stand beside each other."""


def over_first(points: pd.DataFrame, line: list[str], *more: str) -> pd.DataFrame:
    """The points with columns of the first of their line, as `base_…`: throughput, devices,
    topology and `more`. Besides, what they are over it: `gain`, throughput / its throughput;
    `times`, devices / its devices, the ideal gain; `efficiency`, gain / times."""
    columns = ["throughput", "devices", "topology", *more]
    first = points.groupby(line)[columns].transform("first")
    points = points.join(first.add_prefix("base_"))
    gain = points["throughput"] / points["base_throughput"]
    times = points["devices"] / points["base_devices"]
    return points.assign(gain=gain, times=times, efficiency=gain / times)


def speedups(cells: pd.DataFrame) -> pd.DataFrame:
    """The `cells` (`comparison.blocks`) that were measured on several topologies, and the
    published numbers of their work, which have a `source`.

    Each is over the first of its line, the fewest devices, which lies on the ideal: `speedup`,
    1 for the fewest devices of the panel, `speedup_low`, `speedup_high`, `repeat_speedups`.
    `shares_cores` where processes of the panel do, so that no speed-up is the ideal one."""
    measured = varying(cells, "topology").assign(source="")
    if measured.empty:
        return measured
    points = pd.DataFrame([*records(measured), *_published(measured)], columns=measured.columns)
    points = points.sort_values([*PANEL, "order", "source", "devices", "topology"])
    points = over_first(points, [*PANEL, "name", "source"], "resources", "repeat_throughputs")
    panels = points.assign(share=points["resources"] / points["devices"]).groupby(PANEL)
    times = points["base_resources"] / panels["resources"].transform("min")
    both = points[["repeat_throughputs", "base_repeat_throughputs"]].itertuples(index=False)
    ends = pd.DataFrame([_interval(*pair) for pair in both], points.index, ["low", "high"])
    scale = times / points["base_throughput"]
    return points.assign(
        speedup=points["throughput"] * scale,
        speedup_low=ends["low"] * times,
        speedup_high=ends["high"] * times,
        repeat_speedups=points["repeat_throughputs"].map(np.array) * scale,
        shares_cores=panels["share"].transform("nunique") > 1,
    )


def _interval(values: tuple[float, ...], base: tuple[float, ...]) -> tuple[float, float]:
    """Of `values` / `base`. None of published numbers, single repeats and the base."""
    if values is base or min(len(values), len(base)) < 2:
        return (nan, nan)
    return ratio_interval(values, base)[1:3]


def _published(measured: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """The published numbers of the work that was measured, on all topologies, as such rows."""
    places = [
        (cell, place_of(cell))
        for cell in cells_of(published().dropna(subset="throughput"))
        if cell["table"] != RUNS and cell["note"] != NO_BASE
    ]
    for row in records(measured.drop_duplicates([*PANEL, "framework"])):
        work = place(row | {"precision": row["used"]})
        for cell, where in places:
            if where == work | {"topology": where["topology"]}:
                number = {key: cell[key] for key in ("topology", "throughput")}
                number |= {"devices": cell["gpus"], "resources": cell["gpus"]}
                source = f"{cell['table']} {cell['gpu']} {cell['note'] or ''}"
                yield row | number | {"source": source, "repeat_throughputs": ()}
