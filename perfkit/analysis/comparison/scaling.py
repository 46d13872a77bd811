"""Scaling: speed-ups over the fewest devices."""

from math import nan

import numpy as np
import pandas as pd

from perfkit.analysis.comparison.blocks import ROW, varying
from perfkit.measuring.statistics import ratio_interval

PANEL = [key for key in ROW if key != "topology"]
"""Columns in which the lines of a panel agree."""


def speedups(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the `cells` measured on several topologies, those of a line, which is a framework,
    by devices.

    Relative to the line's first point, `base_devices` has its devices, `gain` is the ratio of
    the throughputs, and `efficiency` that ratio / the ratio of the devices, the ideal gain.
    `speedup`, `speedup_low`, `speedup_high` and `repeat_speedups` are relative to the same
    point, which lies on the ideal; the fewest devices of the panel have 1. `shares_cores`:
    processes of the panel share cores, so that there is no ideal speed-up."""
    points = varying(cells, "topology").sort_values([*PANEL, "order", "devices", "topology"])
    if points.empty:
        return points
    columns = ["throughput", "devices", "resources", "repeat_throughputs"]
    first = points.groupby([*PANEL, "name"])[columns].transform("first")
    points = points.join(first.add_prefix("base_"))
    gain = points["throughput"] / points["base_throughput"]
    panels = points.assign(share=points["resources"] / points["devices"]).groupby(PANEL)
    times = points["base_resources"] / panels["resources"].transform("min")
    scale = times / points["base_throughput"]
    repeats = points[["repeat_throughputs", "base_repeat_throughputs"]]
    intervals = [_interval(*pair) for pair in repeats.itertuples(index=False)]
    ends = pd.DataFrame(intervals, points.index, ["low", "high"])
    return points.assign(
        gain=gain,
        efficiency=gain * points["base_devices"] / points["devices"],
        speedup=points["throughput"] * scale,
        speedup_low=ends["low"] * times,
        speedup_high=ends["high"] * times,
        repeat_speedups=points["repeat_throughputs"].map(np.array) * scale,
        shares_cores=panels["share"].transform("nunique") > 1,
    )


def _interval(values: tuple[float, ...], base: tuple[float, ...]) -> tuple[float, float]:
    """Return the interval of `values` / `base`; NaN for single repeats and the base itself."""
    if values is base or min(len(values), len(base)) < 2:
        return (nan, nan)
    ratio = ratio_interval(values, base)
    return ratio.low, ratio.high
