"""How charts look, wherever they are shown."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.style
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, fontManager
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from perfkit.comparison.stored import PairResult, Variant
from perfkit.text.format import FRAMEWORK_NAMES, interval, number
from perfkit.text.language import gettext

INK, FAINT = "#24292f", "#8c959f"  # as in chart.mplstyle
ACCENT, WAIT, IDEAL = "#1f5fbf", "#8a5a2b", "#57606a"
LOOKS = {
    "Paddle": ("#1f5fbf", "o"),
    "PyTorch": ("#d1495b", "s"),
    "JAX": ("#2a9d6f", "^"),
    "TensorFlow": ("#e08a00", "D"),
    "MXNet": ("#7a5cc0", "v"),
    "OneFlow": ("#3f8fa8", "P"),
}
"""The colour and the marker of each framework; they stay apart in greyscale too."""
COLOURS = {name: colour for name, (colour, _marker) in LOOKS.items()}
MARKERS = {name: marker for name, (_colour, marker) in LOOKS.items()}
SHADES = ["#86aee8", "#1f5fbf", "#0a2a5e"]
"""From light to dark, for lines that are in an order."""
STYLE = Path(__file__).parent / "chart.mplstyle"
HEADROOM = 1.1
"""The top of an axis, in highest values."""


@cache
def _font() -> str:
    """The name of a font with Latin and Chinese, brought by the zhplot package."""
    path = str(distribution("zhplot").locate_file("zhplot/fonts/NotoSansSC-Regular.ttf"))
    fontManager.addfont(path)
    return str(FontProperties(fname=path).get_name())


@cache
def _settings() -> dict[str, Any]:
    # seaborn's style of this name, without the time that it takes to import seaborn and SciPy.
    seaborns = matplotlib.style.library["seaborn-v0_8-whitegrid"]
    own = matplotlib.rc_params_from_file(STYLE, use_default_template=False)
    # Viewers draw the texts in a font of theirs, none of which is wider than the first.
    return {**seaborns, **own, "font.family": ["DejaVu Sans", _font(), "sans-serif"]}


def chart_style() -> AbstractContextManager[None]:
    """The suite's style, within a block."""
    return matplotlib.rc_context(_settings())


@contextmanager
def new_figure(
    width: float, height: float, columns: int = 1, rows: int = 1, layout: Any = "constrained"
) -> Iterator[tuple[Figure, list[Axes]]]:
    """An empty figure of these inches and its axes, row by row, in the suite's style. `layout`
    is matplotlib's."""
    with chart_style():
        figure = Figure(figsize=(width, height), layout=layout)
        yield figure, [*figure.subplots(rows, columns, squeeze=False).flat]


def from_zero(axes: Axes, highest: float, axis: str = "y") -> None:
    """Let the axis begin at 0 and end above the highest value."""
    getattr(axes, f"set_{axis}lim")(0, highest * HEADROOM or 1)


class Dots(NamedTuple):
    """A row of a dot plot: a dot for each run, their middle and its interval, and words at the
    right."""

    label: str
    runs: Sequence[float]
    middle: float
    interval: tuple[float, float] | None
    words: str
    framework: str = ""


def dot_plot(rows: Sequence[Dots], label: str) -> Figure:
    """Runs on a logarithmic axis of this label with a line at 1, the first run of a row at the
    top."""
    with new_figure(8, 0.7 + 0.5 * len(rows)) as (figure, (axes,)):
        for y, row in enumerate(rows):
            colour, marker = LOOKS.get(row.framework, (ACCENT, "o"))
            n, height = len(row.runs), (y - 0.25, y + 0.25)
            if row.interval and n > 1:
                axes.fill_betweenx(height, *row.interval, color=colour, alpha=0.25)
            axes.plot(row.middle, y, "|", color=colour, markersize=16, markeredgewidth=2.5)
            heights = [y + (k + 0.5) / n * 0.4 - 0.2 for k in range(n)]
            axes.plot(row.runs, heights, marker, color=colour, markersize=3.5)
            axes.text(1.02, y, row.words, transform=axes.get_yaxis_transform(), va="center")
        axes.axvline(1, color=INK, linewidth=1)
        axes.set(xscale="log", xlabel=label, ylim=(len(rows) - 0.4, -0.6))
        axes.set_yticks(range(len(rows)), [row.label for row in rows])
        axes.grid(visible=False, axis="y")
        low, high = axes.get_xlim()
        close, far = MaxNLocator(6, steps=[1, 2, 5, 10]), LogLocator(subs=(1, 2, 5))
        axes.xaxis.set_major_locator(close if high < 4 * low else far)
        axes.xaxis.set(major_formatter="{x:g}", minor_locator=NullLocator())
    return figure


def forest(rows: Sequence[tuple[str, Variant, PairResult]], label: str) -> Figure:
    """The ratios of an interleaved comparison as a dot plot: of each row's name, variant and
    pair with the base the ratio, its interval, the pairs of repeats and the verdict."""
    found = []
    for name, side, pair in rows:
        sure = interval(*pair.interval) if len(pair.ratios) > 1 else "–"
        words = f"{number(pair.ratio)}  ({sure})\n{gettext(pair.verdict)}"
        framework = FRAMEWORK_NAMES.get(str(side.values.get("framework")), "")
        found.append(Dots(name, pair.ratios, pair.ratio, pair.interval, words, framework))
    return dot_plot(found, label)


def lines(axes: Axes, points: pd.DataFrame, hue: str, legend: str, **look: Any) -> None:
    """A line through `points` for each value of `hue`, ordered as those are first met: in the
    framework's colour and marker or, for other values, in shades. `look` is that of
    seaborn.lineplot, x and y at least. The legend is at the right."""
    import seaborn

    names = list(points[hue].astype(str).unique())
    looks: dict[str, Any] = {"palette": COLOURS, "markers": MARKERS}
    if not {*names} <= {*COLOURS}:
        looks["palette"] = seaborn.blend_palette(SHADES, len(names))
        looks["markers"] = (list(MARKERS.values()) * len(names))[: len(names)]
    looks |= {"hue": hue, "style": hue, "dashes": False, "estimator": None}
    seaborn.lineplot(points.astype({hue: str}), ax=axes, **looks, **look)
    axes.legend(title=legend, loc="center left", bbox_to_anchor=(1, 0.5))


def estimates(
    axes: Axes, points: pd.DataFrame, place: str, value: str, label: str, axis: str = "y"
) -> None:
    """Values of a framework with their intervals and repeats along the axis: the columns
    `value`, `value`_low, `value`_high and repeat_`value`s over `place`. Where the label is not
    the framework's `name`, they are hollow, and dotted lines join them along y alone."""
    name, other = points["name"].iloc[0], "x" if axis == "y" else "y"
    middle, *ends = points[[value, f"{value}_low", f"{value}_high"]].astype(float).to_numpy().T
    known = axes.get_legend_handles_labels()[1]
    look: dict[str, Any] = {"color": COLOURS[name], "marker": MARKERS[name], "capsize": 3}
    if label != name:
        look |= {"markerfacecolor": "white", "linestyle": ":" if axis == "y" else "none"}
    # The median of all ratios lies in its interval, the ratio of the medians nearly always.
    bars = [(middle - ends[0]).clip(0), (ends[1] - middle).clip(0)]
    at = {other: points[place], axis: middle, f"{axis}err": bars}
    axes.errorbar(**at, label=None if label in known else label, **look)
    dots = points.explode(f"repeat_{value}s")
    at = {other: dots[place], axis: dots[f"repeat_{value}s"]}
    axes.scatter(**at, s=5, alpha=0.5, color=COLOURS[name])
