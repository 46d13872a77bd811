"""The summary's sections on throughput by batch size and on scaling, with their charts."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil

import pandas as pd
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from perfkit.analysis.comparison import blocks
from perfkit.analysis.comparison.scaling import PANEL, Gain, gains, speedups
from perfkit.measuring.format import number, percent
from perfkit.measuring.results.frames import records
from perfkit.report import style
from perfkit.report.elements import more, note, paragraph, strong
from perfkit.report.section import Section, picture
from perfkit.report.summarized import Summary
from perfkit.report.text.language import gettext as _
from perfkit.report.text.wording import caption, fact_words, row_title

MOST_PANELS = 12
"""Panels that are drawn, at most."""
MOST_LEVEL_TICKS = 6
"""Ticks of a panel whose names are level; more are slanted, so that they do not overlap."""
COLUMNS = 3
"""Panels beside each other, at most."""


@dataclass(frozen=True)
class Curves:
    """What charts show: the column `vary` by which the points of a panel differ, the columns on
    the axes, and the heading of the x axis."""

    vary: str
    x: str
    y: str
    heading: str

    @property
    def alike(self) -> list[str]:
        """Columns in which the points of a panel agree."""
        return [key for key in blocks.ROW if key != self.vary]


def throughput_by_batch(summary: Summary) -> Section:
    """Throughput by batch size; empty without several batch sizes."""
    points = blocks.varying(summary.cells, "batch_size").assign(source="")
    if points.empty:
        return Section()
    return _charts(points, Curves("batch_size", "batch_size", "throughput", _("Batch")))


def scaling(summary: Summary) -> Section:
    """Speed-up over the fewest devices, with the ideal and published speed-ups."""
    points = speedups(summary.cells)
    if points.empty:
        return Section()
    line_gains = gains(points)
    sentences = [strong(_gain_sentence(gain)) for gain in line_gains[:MOST_PANELS]]
    section = paragraph(Markup("<br>").join(sentences)) + note(*_scaling_notes(line_gains))
    return section + _charts(points, Curves("topology", "devices", "speedup", _("Topology")))


def _gain_sentence(gain: Gain) -> str:
    """Return the gain of a line's most devices over its fewest in words."""
    facts = {
        "title": row_title(gain.work._asdict(), PANEL[1:]),
        "name": gain.framework,
        "devices": gain.devices,
        "gain": number(gain.ratio, 3),
        "base": gain.base_devices,
    }
    if gain.shares_cores:
        words = _(
            "%(title)s, %(name)s: %(devices)d devices give %(gain)s × the throughput of "
            "%(base)d"
        )
        return words % facts
    words = _(
        "%(title)s, %(name)s: %(devices)d devices give %(gain)s × the throughput of %(base)d, "
        "%(share)s of ideal"
    )
    return words % (facts | {"share": percent(gain.efficiency)})


def _scaling_notes(line_gains: Sequence[Gain]) -> list[str]:
    notes = [_("Error bars: interval of the ratio to the repeats on the fewest devices.")]
    if any(gain.shares_cores for gain in line_gains):
        notes.append(_("No ideal line where the processes share the cores."))
    return notes


def _charts(points: pd.DataFrame, curves: Curves) -> Section:
    """Return a figure per block of points, with a panel per group of rows that differ only in
    one column."""
    section = Section()
    panel_numbers = blocks.numbered(points, curves.alike)
    shown = points[panel_numbers < MOST_PANELS]
    for block in blocks.blocks_of(shown):
        words = caption(block)
        section += note(Markup("%s<br>%s") % (words, " · ".join(fact_words(block))))
        narrow = partial(_figure, block.measurements, curves, columns=1)
        figure = partial(_figure, block.measurements, curves)
        section += picture(figure, words, narrow)
    return section + more(int(panel_numbers.max()) + 1 - MOST_PANELS)


def _figure(points: pd.DataFrame, curves: Curves, columns: int = COLUMNS) -> Figure:
    """Draw the panels of a block, at most `columns` beside each other."""
    panels = [panel for _key, panel in points.groupby(curves.alike, sort=False)]
    columns, rows = min(len(panels), columns), ceil(len(panels) / columns)
    width, height = 3.4 * columns + 0.4, 2.8 * rows + 0.2
    with style.new_figure(width, height, columns, rows) as (figure, places):
        for axes, panel in zip(places, panels, strict=False):
            _draw_panel(axes, panel, curves)
        for axes in places[len(panels) :]:
            axes.set_axis_off()
    return figure


def _draw_panel(axes: Axes, panel: pd.DataFrame, curves: Curves) -> None:
    """Draw a line per framework and source."""
    for (name, source), line in panel.groupby(["name", "source"], sort=False):
        label = _("%(name)s, published") % {"name": name} if source else name
        style.estimates(axes, line, curves.x, curves.y, label)
    style.from_zero(axes, axes.dataLim.y1)
    title = row_title(panel.iloc[0], curves.alike[1:])
    axes.set_title("\n".join(textwrap.wrap(title, 46, max_lines=3)), fontsize=8)
    axes.set(xscale="log", xlabel=curves.heading, ylabel=panel["unit"].iloc[0])
    values = panel[curves.vary].astype(str).groupby(panel[curves.x]).unique()
    angle = 45 if len(values) > MOST_LEVEL_TICKS else 0
    axes.set_xticks(values.index.astype(float), values.map("\n".join), rotation=angle)
    axes.xaxis.set_minor_locator(NullLocator())
    if curves.y == "speedup":
        _compare_to_ideal(axes, panel)
    axes.legend(fontsize=7)


def _compare_to_ideal(axes: Axes, panel: pd.DataFrame) -> None:
    """Make the y axis logarithmic, so that the ideal speed-up is a straight line. Unless the
    processes share cores, draw the ideal."""
    if not panel["shares_cores"].any():
        devices = panel["devices"].astype(float).sort_values()
        axes.plot(devices, devices / devices.min(), "--", color=style.IDEAL, label=_("ideal"))
        _annotate_efficiency(axes, panel)
    ends = (axes.dataLim.y0 / style.HEADROOM, axes.dataLim.y1 * style.HEADROOM)
    axes.set(yscale="log", ylabel=_("speed-up"), ylim=ends)
    is_wide = ends[1] > 2 * ends[0]
    axes.yaxis.set_major_locator(LogLocator(2, subs=(1, 1.5)) if is_wide else MaxNLocator(4))
    axes.yaxis.set(major_formatter="{x:g}", minor_locator=NullLocator())


def _annotate_efficiency(axes: Axes, panel: pd.DataFrame) -> None:
    """Write the share of the ideal speed-up below each measured point."""
    has_gain = (panel["source"] == "") & (panel["devices"] > panel["devices"].min())
    for row in records(panel[has_gain].sort_values("devices")):
        axes.annotate(
            percent(row["efficiency"], 2),
            xy=(row["devices"], row["speedup"]),
            xytext=(4, -9 * (row["order"] + 1)),
            textcoords="offset points",
            color=style.COLOURS[row["name"]],
            size=7,
        )
