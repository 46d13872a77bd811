"""Style of charts, in notebooks and on pages."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from importlib.metadata import distribution
from itertools import cycle
from pathlib import Path
from textwrap import shorten, wrap
from typing import Any, Literal, NamedTuple

import matplotlib.style
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, fontManager
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from perfkit.analysis.comparison.stored import PairResult, Variant
from perfkit.report.verdicts import ratio_words, verdict_name
from perfkit.training.frameworks import DISPLAY_NAMES

INK, FAINT = "#24292f", "#8c959f"  # as in chart.mplstyle
ACCENT, WAIT, IDEAL = "#1f5fbf", "#8a5a2b", "#57606a"
COLOURS = {
    "Paddle": "#1f5fbf",
    "PyTorch": "#d1495b",
    "JAX": "#2a9d6f",
    "TensorFlow": "#e08a00",
    "MXNet": "#7a5cc0",
    "OneFlow": "#3f8fa8",
}
"""Colour by the framework's name in texts, distinguishable in greyscale too; only published
tables have OneFlow."""
MARKERS = {
    "Paddle": "o",
    "PyTorch": "s",
    "JAX": "^",
    "TensorFlow": "D",
    "MXNet": "v",
    "OneFlow": "P",
}
SHADES = ["#86aee8", "#1f5fbf", "#0a2a5e"]
"""Light to dark, for ordered lines."""
STYLE = Path(__file__).parent / "chart.mplstyle"
LayoutName = Literal["constrained", "compressed", "tight"]
NARROW = 4.2
"""Inches of a chart that fits on a phone."""
NAME_WIDTH = 42
"""Most characters in a line of a row's name."""
HEADROOM = 1.1
"""Top of an axis relative to the highest value."""


@cache
def chinese_font() -> str:
    """Register zhplot's font with Latin and Chinese characters, and return its name."""
    path = str(distribution("zhplot").locate_file("zhplot/fonts/NotoSansSC-Regular.ttf"))
    fontManager.addfont(path)
    return str(FontProperties(fname=path).get_name())


@cache
def _settings() -> dict[str, Any]:
    # matplotlib's copy of seaborn's style avoids the slow import of seaborn and SciPy.
    seaborns = matplotlib.style.library["seaborn-v0_8-whitegrid"]
    own = matplotlib.rc_params_from_file(STYLE, use_default_template=False)
    # Viewers substitute fonts of their own; none is wider than DejaVu Sans.
    return {**seaborns, **own, "font.family": ["DejaVu Sans", chinese_font(), "sans-serif"]}


def chart_style() -> AbstractContextManager[None]:
    """Apply the suite's style within a block."""
    return matplotlib.rc_context(_settings())


@contextmanager
def new_figure(
    width: float,
    height: float,
    columns: int = 1,
    rows: int = 1,
    layout: LayoutName | None = "constrained",
    **grid: Any,
) -> Iterator[tuple[Figure, list[Axes]]]:
    """Yield an empty figure of `width` x `height` inches and its axes, row by row, in the
    suite's style. `layout` is matplotlib's; `grid` has arguments of Figure.subplots."""
    with chart_style():
        figure = Figure(figsize=(width, height), layout=layout)
        yield figure, [*figure.subplots(rows, columns, squeeze=False, **grid).flat]


def from_zero(axes: Axes, highest: float, axis: str = "y") -> None:
    """Start the axis at 0 and end it above the highest value."""
    getattr(axes, f"set_{axis}lim")(0, highest * HEADROOM or 1)


class ForestRow(NamedTuple):
    """A row of a forest plot: a name, a variant, its pair with the base, the level that an
    interval needs, and the smallest difference that matters, as a share."""

    name: str
    variant: Variant
    pair: PairResult
    level: float
    threshold: float

    @property
    def is_tested(self) -> bool:
        """Whether the pairs of repeats are enough for an interval of this level."""
        return self.pair.has_level(self.level)


def forest(rows: Sequence[ForestRow], label: str, *, narrow: bool = False) -> Figure:
    """Return a chart of ratios of interleaved comparisons on a logarithmic axis with a line at
    1. A narrow one has the rows' names and verdicts above them, not beside them."""
    width, height = (NARROW, 0.8) if narrow else (8, 0.5)
    with new_figure(width, 0.7 + height * len(rows)) as (figure, (axes,)):
        for y, row in enumerate(rows):
            _draw_ratio(axes, y, row)
            _write_ratio(axes, y, row, narrow=narrow)
        axes.axvline(1, color=INK, linewidth=1)
        axes.set(xscale="log", xlabel=label, ylim=(len(rows) - 0.4, -0.6))
        names = [wrap(row.name, NAME_WIDTH, max_lines=2, placeholder=" …") for row in rows]
        labels = [""] * len(rows) if narrow else map("\n".join, names)
        axes.set_yticks(range(len(rows)), labels)
        axes.grid(visible=False, axis="y")
        low, high = axes.get_xlim()
        is_near_1 = high < 4 * low
        most = 4 if narrow else 6
        linear = MaxNLocator(most, steps=[1, 2, 5, 10])
        ticks = linear if is_near_1 else LogLocator(subs=(1, 2, 5))
        axes.xaxis.set(
            major_locator=ticks, major_formatter="{x:g}", minor_locator=NullLocator()
        )
    return figure


def _draw_ratio(axes: Axes, y: int, row: ForestRow) -> None:
    """Draw a row of a forest plot: a dot per pair of repeats, the first at the top, and the
    median with its interval; without one and in grey if the pairs are too few for it."""
    pair = row.pair
    framework = DISPLAY_NAMES.get(str(row.variant.values.get("framework")), "")
    colour, marker = COLOURS.get(framework, ACCENT), MARKERS.get(framework, "o")
    if not row.is_tested:
        colour = FAINT
    else:
        axes.fill_betweenx((y - 0.25, y + 0.25), *pair.interval, color=colour, alpha=0.25)
    axes.plot(pair.ratio, y, "|", color=colour, markersize=16, markeredgewidth=2.5)
    heights = np.linspace(y - 0.2, y + 0.2, 2 * len(pair.ratios) + 1)[1::2]
    axes.plot(pair.ratios, heights, marker, color=colour, markersize=3.5)


def _write_ratio(axes: Axes, y: int, row: ForestRow, *, narrow: bool) -> None:
    """Write a row's ratio with its interval and the verdict at its right; on a narrow chart,
    with its name above it."""
    ratio = ratio_words(row.pair, row.level)
    verdict = verdict_name(row.pair.verdict, row.threshold)
    if not narrow:
        beside = axes.get_yaxis_transform()
        axes.text(1.02, y, f"{ratio}\n{verdict}", transform=beside, va="center")
        return
    name = shorten(row.name, NAME_WIDTH, placeholder=" …")
    above = axes.get_yaxis_transform()
    box = {"facecolor": "white", "edgecolor": "none", "pad": 1}
    axes.text(0, y - 0.32, f"{name}: {ratio}, {verdict}", transform=above, size=7, bbox=box)


def lines(axes: Axes, points: pd.DataFrame, hue: str, legend: str, **look: Any) -> None:
    """Draw a line through `points` for each value of `hue`, in order of first appearance: with
    colour and marker of a framework, or in shades for other values. `look` has arguments of
    seaborn.lineplot, at least x and y. The legend is at the right."""
    import seaborn

    points = points.astype({hue: str})
    names = list(points[hue].unique())
    palette, markers = COLOURS, MARKERS
    if not {*names} <= {*COLOURS}:
        palette = dict(zip(names, seaborn.blend_palette(SHADES, len(names)), strict=True))
        markers = dict(zip(names, cycle(MARKERS.values()), strict=False))
    look |= {"hue": hue, "palette": palette, "style": hue, "markers": markers}
    seaborn.lineplot(points, **look, dashes=False, estimator=None, ax=axes)
    axes.legend(title=legend, loc="center left", bbox_to_anchor=(1, 0.5))


def estimates(axes: Axes, points: pd.DataFrame, x: str, y: str, label: str) -> None:
    """Draw a framework's values of the column `y` over `x`, with their intervals (`y`_low,
    `y`_high) and repeats (repeat_`y`s). If the label is not the framework's `name`, markers are
    hollow, joined by dotted lines."""
    name = points["name"].iloc[0]
    columns = points[[f"{y}_low", y, f"{y}_high"]].astype(float)
    low, middle, high = columns.to_numpy().T
    # The median ratio always lies in its interval, the ratio of medians nearly always.
    ends = [(middle - low).clip(0), (high - middle).clip(0)]
    look: dict[str, Any] = {"color": COLOURS[name], "marker": MARKERS[name], "capsize": 3}
    if label != name:
        look |= {"markerfacecolor": "white", "linestyle": ":"}
    axes.errorbar(points[x], middle, yerr=ends, label=label, **look)
    repeats = points.explode(f"repeat_{y}s")
    axes.scatter(repeats[x], repeats[f"repeat_{y}s"], s=5, alpha=0.5, color=COLOURS[name])
