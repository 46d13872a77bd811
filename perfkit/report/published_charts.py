"""Charts of a part of a published table, each with a sentence on what it shows."""

from textwrap import fill
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from perfkit.analysis.comparison.scaling import over_first
from perfkit.analysis.published.cells import NO_BASE
from perfkit.measuring.format import number
from perfkit.measuring.results.frames import topology_size
from perfkit.report.style import COLOURS, IDEAL, MARKERS, from_zero, lines
from perfkit.report.text.language import gettext as _

VALUES = ("throughput_low", "throughput", "throughput_high")
LEAD = 1.01
"""Least ratio to the second framework at which a framework counts as the fastest."""


def batches(axes: Axes, cells: pd.DataFrame, _runs: pd.DataFrame) -> str:
    """Draw throughput by batch size, a line per topology; return a sentence on the highest."""
    cells, sizes = cells.sort_values("gpus"), sorted({*cells["batch_per_gpu"]})
    lines(axes, cells, "topology", _("topology"), x="batch_per_gpu", y="throughput")
    best = cells.loc[cells["throughput"].idxmax()]
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, map(str, sizes))
    axes.set(xlabel=_("batch per device"), ylabel=best["unit"])
    from_zero(axes, best["throughput"])
    words = _("%(value)s %(unit)s at batch %(batch)d on %(topology)s, the highest of %(count)d")
    value, batch = number(best["throughput"]), best["batch_per_gpu"]
    return words % dict(best, value=value, batch=batch, count=len(cells))


def scaling(axes: Axes, cells: pd.DataFrame, runs: pd.DataFrame) -> str:
    """Draw scaling efficiency by topology, with single runs as dots; 100 % is the efficiency on
    the fewest GPUs of a line. Return a sentence on the best scaling to the most GPUs."""
    line, legend = "batch_per_gpu", _("batch per device")
    if cells["name"].nunique() > 1:
        line, legend = "name", _("framework")
    cells = cells[cells["note"] != NO_BASE].sort_values([line, "gpus", "nodes"])
    order = sorted({*cells["topology"]}, key=topology_size)
    is_on_a_line = runs["topology"].isin(order) & runs[line].isin(cells[line])
    points = _efficiencies(pd.concat([cells, runs[is_on_a_line]]), line)
    points["x"] = points["topology"].map(order.index)
    points, dots = points[: len(cells)], points[len(cells) :]
    lines(axes, points, line, legend, x="x", y="share")
    axes.axhline(100, color=IDEAL, linestyle="--", linewidth=1)
    axes.scatter(dots["x"] + 0.08, dots["share"], s=6, color=dots["name"].map(COLOURS))
    axes.set_xticks(range(len(order)), order)
    axes.set(xlabel=_("nodes x devices"), ylabel=_("share of ideal, %"))
    from_zero(axes, points["share"].max())
    best = points.sort_values(["times", "gain"]).iloc[-1]
    words = _(
        "%(topology)s reaches up to %(gain)#.3g × %(base_topology)s, %(share).3g %% of ideal "
        "(%(legend)s: %(line)s)"
    )
    return words % dict(best, line=best[line], legend=legend)


def _efficiencies(cells: pd.DataFrame, line: str) -> pd.DataFrame:
    """Return the cells with their gain over the fewest GPUs of a line, and `share`, its share
    of the ideal one in percent."""
    points = over_first(cells.rename(columns={"gpus": "devices"}), [line])
    return points.assign(share=100 * points["efficiency"])


def frameworks(axes: Axes, cells: pd.DataFrame, _runs: pd.DataFrame) -> str:
    """Draw throughput per GPU by row, with measurements on the same GPU in the same precision.
    Return a sentence on the number of rows in which each framework is the fastest at the row's
    batch size."""
    rows = list(cells["row"].unique())
    names = list(cells["name"].unique())
    lane = 0.7 / len(names)
    heights = cells["row"].map(rows.index) + lane * cells["name"].map(names.index)
    cells = cells.assign(x=cells["throughput"] / cells["gpus"], y=heights - 0.25)
    for cell in cells.to_dict("records"):
        at = (cell["x"], cell["y"])
        axes.annotate(
            cell["marks"], at, (-6, -3), textcoords="offset points", ha="right", fontsize=7
        )
        _draw_matches(axes, cell, cell["y"] + lane / 2)
    lines(axes, cells, "name", _("framework"), x="x", y="y", linestyle="none")
    axes.set_yticks(range(len(rows)), [fill(row, 26) for row in rows])
    unit = _("%(unit)s per GPU") % {"unit": cells["unit"].iloc[0]}
    axes.set(xlabel=unit, ylabel="", ylim=(len(rows) - 0.5, -0.5))
    from_zero(axes, axes.dataLim.x1, "x")
    return _leaders(cells)


def _draw_matches(axes: Axes, cell: dict[str, Any], y: float) -> None:
    """Draw the measurements that match a published number: medians per GPU with intervals, as
    hollow markers, and repeats."""
    name, gpus = cell["name"], cell["gpus"]
    label = _("%(framework)s, measured") % {"framework": name}
    look: dict[str, Any] = {
        "color": COLOURS[name],
        "marker": MARKERS[name],
        "markerfacecolor": "white",
        "capsize": 3,
    }
    for pair in cell["matches"]:
        if not (pair.ratio and pair.is_like):
            continue
        low, middle, high = (pair.row[column] or np.nan for column in VALUES)
        ends = np.array([[middle - low], [high - middle]]) / gpus
        _handles, labels = axes.get_legend_handles_labels()
        new_label = None if label in labels else label
        axes.errorbar([middle / gpus], [y], xerr=ends, label=new_label, **look)
        repeats = np.array(pair.row["repeat_throughputs"]) / gpus
        axes.scatter(repeats, [y] * len(repeats), s=5, alpha=0.5, color=COLOURS[name])


def _leaders(cells: pd.DataFrame) -> str:
    """Return a sentence on the number of rows in which each framework is the fastest."""
    same = cells[cells["batch_per_gpu"] == cells["row_batch"]]
    speeds = same.pivot_table("x", "row", "name", "max").dropna(thresh=2)
    is_close = speeds.ge(speeds.max(axis="columns") / LEAD, axis="index")
    is_alone = is_close.sum(axis="columns") == 1
    counts = is_close[is_alone].sum().sort_values(ascending=False, kind="stable")
    leaders = ", ".join(f"{name} ({count})" for name, count in counts.items() if count)
    words = _("Fastest by over 1 %% at the same batch size, in rows: %(leaders)s")
    return words % {"leaders": leaders or _("none")}


CHARTS = {"batch": (batches, scaling), "scaling": (scaling,), "frameworks": (frameworks,)}
"""Kind of a table's layout -> its charts; other kinds have no chart."""
