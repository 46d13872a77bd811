"""The summary's charts as SVG that takes its colours from the page: they fit dark and light.

Each draws one small picture, so that a page lays out as many as it has room for. Text is drawn
as outlines of a font that has Chinese too, since a reader's machine may lack one. Every repeat
is a dot; where a source prints no interval, none is drawn.
"""

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import distribution
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, fontManager
from matplotlib.ticker import NullLocator

from perfkit.tables.series import size
from perfkit.words.language import gettext as _

INK, GRID, IDEAL = "#010101", "#020202", "#030303"
LINES = ["#040404", "#050505", "#060606", "#070707", "#080808", "#090909"]
"""Colours as matplotlib writes them; `svg` has the page's own in their place."""
MARKERS = ["o", "s", "^", "D", "v", "P"]
DASHED = (0, (4, 3))
WIDTH = 4.6
"""Of a picture, inches."""
LETTER = 0.022
"""Of a tick's label, in widths of the plot: a little more than it takes."""

POINTS = ["line", "x", "value", "low", "high", "repeats"]
"""Columns of what charts draw: one row per number. `low` and `high` are its interval or None;
`repeats` are the numbers behind it."""


@cache
def font() -> str:
    """The name of a font with Latin and Chinese, brought by the zhplot package."""
    path = str(distribution("zhplot").locate_file("zhplot/fonts/NotoSansSC-Regular.ttf"))
    fontManager.addfont(path)
    return str(FontProperties(fname=path).get_name())


@contextmanager
def drawn(points: pd.DataFrame, height: float = 2.5) -> Iterator[tuple[Figure, Axes]]:
    """An empty picture in the style of all charts: 4.6 inches wide, `height` and room for a
    legend with the lines of `points`."""
    style = {
        "font.family": font(),
        "font.size": 9,
        "text.color": INK,
        "text.parse_math": False,
        "axes.edgecolor": INK,
        "axes.labelcolor": INK,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "grid.color": GRID,
        "xtick.color": INK,
        "ytick.color": INK,
        "legend.frameon": False,
        "svg.hashsalt": "perfkit",
    }
    with matplotlib.rc_context(style):
        lines = list(points["line"].unique())
        room = 0.2 * (2 + -(-len(lines) // _columns(lines)))
        figure = Figure(figsize=(WIDTH, height + room), layout="constrained")
        yield figure, figure.subplots()


def throughput_by_batch(points: pd.DataFrame, unit: str) -> Markup:
    """Throughput (axis from 0, in `unit`) against batch size per device, a line for each
    topology. `points` has the columns POINTS."""
    with drawn(points) as (figure, axes):
        axes.set_xscale("log", base=2)
        _lines(axes, points)
        axes.set(xlabel=_("batch per device"), ylabel=unit)
        axes.set_ylim(bottom=0)
        _ticks(axes, {size: str(size) for size in sorted(points["x"].unique())})
        return _finished(figure, axes, _("topology"))


def efficiency_by_topology(points: pd.DataFrame, legend: str) -> Markup:
    """How much of an ideal scaling each topology reaches, percent: throughput over that of the
    line's first point in proportion to the devices. The ideal is the dashed line at 100.
    `points` has the columns POINTS, `x` is the topology; `legend` says what a line is."""
    order = sorted(points["x"].unique(), key=size)
    with drawn(points) as (figure, axes):
        axes.axhline(100, color=IDEAL, linestyle=DASHED, linewidth=1, label=_("ideal"))
        shares = pd.concat([_share(group) for _, group in points.groupby("line", sort=False)])
        _lines(axes, shares.assign(x=[order.index(topology) for topology in shares["x"]]))
        axes.set(xlabel=_("nodes x devices"), ylabel=_("share of ideal, %"))
        axes.set_ylim(bottom=0)
        _ticks(axes, dict(enumerate(order)))
        return _finished(figure, axes, legend)


def _share(line: pd.DataFrame) -> pd.DataFrame:
    """A line's numbers in percent of what its first one makes of as many devices."""
    devices = pd.Series([size(topology)[0] for topology in line["x"]], index=line.index)
    scale = 100 * devices.iloc[0] / line["value"].iloc[0] / devices
    return line.assign(
        value=line["value"] * scale,
        low=line["low"] * scale,
        high=line["high"] * scale,
        repeats=[
            tuple(value * factor for value in values)
            for values, factor in zip(line["repeats"], scale, strict=True)
        ],
    )


def dots(points: pd.DataFrame, label: str, reference: float | None = None) -> Markup:
    """Values (`label` with its unit) in rows named by `x`, a colour and marker for each `line`;
    a dashed line at `reference`. `points` has the columns POINTS."""
    rows = list(dict.fromkeys(points["x"]))
    lines = list(dict.fromkeys(points["line"]))
    height = 0.6 + len(rows) * (0.14 + 0.11 * len(lines))
    with drawn(points, height) as (figure, axes):
        if reference is not None:
            axes.axvline(reference, color=IDEAL, linestyle=DASHED, linewidth=1)
        for number, (line, group, colour, marker) in enumerate(_looks(points)):
            beside = 0.7 * ((number + 0.5) / len(lines) - 0.5)
            for row in group.itertuples():
                y = rows.index(row.x) + beside
                if pd.notna(row.low):
                    axes.plot([row.low, row.high], [y, y], color=colour, linewidth=1.4)
                axes.plot(row.repeats, [y] * len(row.repeats), ".", color=colour, markersize=3)
            heights = [rows.index(x) + beside for x in group["x"]]
            look: dict[str, Any] = {
                "color": colour,
                "marker": marker,
                "s": 30,
                "linewidth": 0,
                "zorder": 3,
            }
            axes.scatter(group["value"], heights, label=line, **look)
        axes.set(xlabel=label, ylabel="")
        axes.set_yticks(range(len(rows)), rows)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        for between in range(1, len(rows)):
            axes.axhline(between - 0.5, color=GRID, linewidth=0.8)
        axes.grid(visible=False, axis="y")
        return _finished(figure, axes, "")


def _lines(axes: Axes, points: pd.DataFrame) -> None:
    """Each line with its numbers, their intervals, and a dot for every repeat. Lines stand a
    little beside each other, and dots beside intervals, so that none hides another."""
    across = np.log2 if axes.get_xscale() == "log" else np.asarray
    back = np.exp2 if axes.get_xscale() == "log" else np.asarray
    span = np.ptp(across(points["x"].to_numpy(float))) or 1.0
    step = span * min(0.03, 0.2 / points["line"].nunique())
    for number, (line, group, colour, marker) in enumerate(_looks(points)):
        beside = step * (number - (points["line"].nunique() - 1) / 2)
        x = back(across(group["x"].to_numpy(float)) + beside)
        known = group["low"].notna().to_numpy()
        axes.vlines(
            x[known], group["low"][known], group["high"][known], color=colour, linewidth=1
        )
        spread = group.assign(x=back(across(x) + step / 3))[["x", "repeats"]]
        spread = spread.explode("repeats").dropna().astype(float)
        axes.scatter(spread["x"], spread["repeats"], color=colour, s=8, linewidth=0)
        look: dict[str, Any] = {"color": colour, "marker": marker, "markersize": 5}
        axes.plot(x, group["value"], linewidth=1.2, markeredgewidth=0, label=line, **look)


def _looks(points: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame, str, str]]:
    """Each line with its points, colour and marker; beyond six, colours meet other markers."""
    for number, (line, group) in enumerate(points.groupby("line", sort=False)):
        again, colour = divmod(number, len(LINES))
        yield line, group, LINES[colour], MARKERS[(colour + again) % len(MARKERS)]


def _columns(labels: list[str]) -> int:
    """Columns of a legend with these labels, by the longest."""
    longest = max(map(len, labels))
    return 3 if longest <= 12 else 2 if longest <= 22 else 1


def _ticks(axes: Axes, labels: dict[Any, str]) -> None:
    """Ticks where there are numbers, but none whose label would run into the one before."""
    places = sorted(labels)
    axes.set_xticks([])
    if len(places) == 1 and places[0]:
        axes.set_xlim(places[0] / 2, places[0] * 2)
    where = axes.transData.transform([(place, 0) for place in places])[:, 0]
    left, right = axes.transAxes.transform([(0, 0), (1, 0)])[:, 0]
    kept = [0]
    for i in range(1, len(places)):
        letters = (len(labels[places[i]]) + len(labels[places[kept[-1]]])) / 2 + 1
        if (where[i] - where[kept[-1]]) / (right - left) > letters * LETTER:
            kept.append(i)
    shown = [places[i] for i in kept]
    axes.set_xticks(shown, [labels[place] for place in shown])
    axes.xaxis.set_minor_locator(NullLocator())


def _finished(figure: Figure, axes: Axes, legend: str) -> Markup:
    """The picture with its legend below, where it covers nothing."""
    handles, labels = axes.get_legend_handles_labels()
    if legend_inside := axes.get_legend():
        legend_inside.remove()
    columns = {"loc": "outside lower center", "ncols": _columns(labels)}
    figure.legend(handles, labels, title=legend or None, **columns)
    return svg(figure)


def svg(figure: Figure) -> Markup:
    """The figure as an SVG element to stand in HTML, in the page's colours."""
    stream = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(stream, format="svg", transparent=True, metadata=nothing)
    text = stream.getvalue()
    # Comments repeat the text that is drawn as outlines.
    text = re.sub(r"<!--.*?-->", "", text[text.index("<svg") :], flags=re.DOTALL)
    page_colours = {INK: "currentColor", GRID: "var(--line)", IDEAL: "var(--faint)"}
    page_colours |= {colour: f"var(--c{n})" for n, colour in enumerate(LINES, 1)}
    text = re.sub(r"\s*\n\s*", " ", text)
    # Groups are numbered anew in each picture, and a page has many.
    text = re.sub(r'<g id="[a-zA-Z0-9]+_\d+"', "<g", text)
    for written, page_colour in page_colours.items():
        text = text.replace(written, page_colour)
    return Markup(text)


def with_shapes_once(html: str) -> str:
    """HTML of several pictures with the letters and marks that they share defined by the first
    of them only: matplotlib names them by what they are, and repeats them in each picture."""
    seen: set[str] = set()

    def once(shape: re.Match[str]) -> str:
        known = shape[1] in seen
        seen.add(shape[1])
        return "" if known else shape[0]

    return re.sub(r'<path id="([^"]+)"[^>]*/>', once, html)
