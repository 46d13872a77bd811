"""The sections of the history: how the throughput of each configuration changed over time."""

from functools import partial
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from perfkit.comparison.history import RECENT, Series
from perfkit.comparison.keys import contrasted
from perfkit.report.pages import render
from perfkit.report.section import Section, folded, picture
from perfkit.report.style import COLOURS, FAINT, INK, estimates, new_figure
from perfkit.report.summary import Summary
from perfkit.text.format import minute, number
from perfkit.text.language import gettext as _
from perfkit.text.terminal import plain

MOST_CHARTS = 20
"""Series whose charts are drawn, those measured last; the table has all."""
MOST_TICKS = 12
LEAST_HEIGHT = 0.02
"""Of the space above and below the points, in median throughputs."""
_text = partial(render, "history")


def history_overview(summary: Summary) -> Section:
    """Which series regressed, and a table of all: the newest throughput, its ratio to the
    measurement before, and the last change of level."""
    return _text("overview", summary.history, RECENT)


def history_series(summary: Summary) -> Section:
    """A chart and the changes of each series. The series that regressed come first."""
    section = Section()
    ordered = sorted(summary.history.series, key=lambda series: not series.regressed)
    for series in ordered[:MOST_CHARTS]:
        points = folded(_("All measurements"), _text("points", series, summary.outputs))
        section += _text("series", series) + picture(chart(series), series.name)
        section += _text("changes", series, summary.outputs) + points
    return section + _text("more", len(ordered) - MOST_CHARTS)


def chart(series: Series) -> Figure:
    """Throughput of each measurement with its interval, in the order of time; a line for each
    level, with the ratio to the level before; a dotted line where the environment changed."""
    count, colour = len(series.points), COLOURS[series.framework]
    points = pd.DataFrame(
        {
            "x": x,
            "name": series.framework,
            "throughput": point.throughput,
            "throughput_low": point.interval and point.interval[0],
            "throughput_high": point.interval and point.interval[1],
            "repeat_throughputs": point.repeat_throughputs,
        }
        for x, point in enumerate(series.points)
    )
    names = [point.created[:10] for point in series.points]
    if len({*names}) < count:
        # What tells several measurements of a day apart.
        names = [plain(point.label) or minute(point.created) for point in series.points]
    with new_figure(8, 3.2) as (figure, (axes,)):
        estimates(axes, points, "x", "throughput", series.framework)
        for x, point in enumerate(series.points):
            facts = [name for name in point.changes if name != "label"]
            if facts:
                axes.axvline(x - 0.5, color=FAINT, linestyle=":", linewidth=1)
                _before, after = contrasted(facts[0], *point.changes[facts[0]], width=16)
                text = f"{plain(facts[0])} {after}"
                look: dict[str, Any] = {"color": INK, "rotation": 90, "size": 7}
                axes.text(x - 0.45, 0.02, text, transform=axes.get_xaxis_transform(), **look)
        values = points["throughput"]
        for first, last in series.levels:
            level = values[first : last + 1].median()
            axes.hlines(level, first - 0.4, last + 0.4, color=colour, linewidth=1.5, alpha=0.6)
        # Not from 0: a change of a few percent must be seen. Noise must not fill the chart.
        low, high, middle = axes.dataLim.y0, axes.dataLim.y1, values.median()
        margin = max(0.25 * (high - low), LEAST_HEIGHT * middle)
        axes.set_ylim(low - margin, high + margin)
        above: dict[str, Any] = {"textcoords": "offset points", "ha": "center"}
        for change in series.changes:
            text, at = f"× {number(change.ratio, 3)}", (change.start, values[change.start])
            axes.annotate(text, at, (0, 14), **above)
        ticks = range(0, count, -(-count // MOST_TICKS))
        axes.set_xticks(ticks, [names[x] for x in ticks], rotation=20)
        axes.set(ylabel=series.unit, xlim=(-0.7, count - 0.3))
        axes.grid(visible=False, axis="x")
    return figure
