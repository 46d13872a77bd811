"""The sections of the history: how the throughput of each configuration changed over time."""

from typing import Any

from matplotlib.figure import Figure

from perfkit.comparison.history import RECENT, Series
from perfkit.report.pages import TEMPLATES
from perfkit.report.section import Section, folded, markup, picture
from perfkit.report.style import FAINT, INK, LOOKS, new_figure
from perfkit.report.summary import Summary, page_address
from perfkit.statistics import median
from perfkit.text.format import number, shortened
from perfkit.text.language import gettext as _
from perfkit.text.terminal import plain

MOST_CHARTS = 40
"""Series whose charts are drawn, those measured last; the table has all."""
MOST_TICKS = 12
LEAST_HEIGHT = 0.02
"""Of the space above and below the points, in median throughputs."""
HTML: Any = TEMPLATES.get_template("history.html.j2").make_module(
    {"page_address": page_address}
)


def history_overview(summary: Summary) -> Section:
    """Which series regressed, and a table of all: the newest throughput, its ratio to the
    measurement before, and the last change of level."""
    return markup(HTML.overview(summary.history, RECENT))


def history_series(summary: Summary) -> Section:
    """A chart and the changes of each series. The series that regressed come first."""
    section = Section()
    ordered = sorted(summary.history.series, key=lambda series: not series.regressed)
    for series in ordered[:MOST_CHARTS]:
        details = folded(_("All measurements"), markup(HTML.points(series, summary.outputs)))
        section += markup(HTML.series(series)) + picture(chart(series), series.name)
        section += markup(HTML.changes(series, summary.outputs)) + details
    return section + markup(HTML.more(len(ordered) - MOST_CHARTS))


def chart(series: Series) -> Figure:
    """Throughput of each measurement with its interval, in the order of time; a line for each
    level, with the ratio to the level before; a dotted line where the environment changed."""
    colour, marker = LOOKS[series.framework]
    count = len(series.points)
    with new_figure(8, 3.2) as (figure, (axes,)):
        for x, point in enumerate(series.points):
            if point.interval:
                axes.vlines(x, *point.interval, color=colour, alpha=0.5)
            facts = [name for name in point.changes if name != "label"]
            if facts:
                axes.axvline(x - 0.5, color=FAINT, linestyle=":", linewidth=1)
                text = plain(f"{facts[0]} {shortened(point.changes[facts[0]][1], 16)}")
                at: dict[str, Any] = {
                    "transform": axes.get_xaxis_transform(),
                    "rotation": 90,
                    "size": 7,
                }
                axes.text(x - 0.45, 0.02, text, color=INK, **at)
        values = [point.throughput for point in series.points]
        axes.plot(range(count), values, marker, color=colour, markersize=4)
        for first, last in series.levels:
            level = median(values[first : last + 1])
            axes.hlines(level, first - 0.4, last + 0.4, color=colour, linewidth=1.5, alpha=0.6)
        # Not from 0: a change of a few percent must be seen. Noise must not fill the chart.
        low, high, middle = axes.dataLim.y0, axes.dataLim.y1, median(values)
        margin = max(0.25 * (high - low), LEAST_HEIGHT * middle)
        axes.set_ylim(low - margin, high + margin)
        for change in series.changes:
            axes.annotate(
                f"× {number(change.ratio, 3)}",
                (change.start, values[change.start]),
                (0, 14),
                textcoords="offset points",
                ha="center",
            )
        ticks = range(0, count, -(-count // MOST_TICKS))
        axes.set_xticks(ticks, [series.points[x].created[:10] for x in ticks], rotation=20)
        axes.set(ylabel=series.unit, xlim=(-0.7, count - 0.3))
        axes.grid(visible=False, axis="x")
    return figure
