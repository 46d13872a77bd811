"""The raw steps of a measurement as charts, with the warnings that follow from them."""

from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import Affine2D

from perfkit.analysis.warnings import Checks, check
from perfkit.report import style
from perfkit.report.section import Section, folded, picture
from perfkit.results.store import Measurement
from perfkit.text.format import FRAMEWORK_NAMES
from perfkit.text.language import gettext_noop as later

MARGINS = {"left": 0.07, "right": 0.99, "top": 0.86, "bottom": 0.17}
"""Of a chart: to compute them takes longer than to draw it."""
MOST_RANKS = 8
"""Of more ranks, the fastest and the slowest are drawn."""
SHADE: dict[str, Any] = {"color": style.FAINT, "alpha": 0.2, "linewidth": 0}


class Steps(NamedTuple):
    """The charts of the raw steps, empty without any, and what was checked."""

    charts: Section
    checks: Checks


def read_steps(measurement: Measurement) -> Steps:
    """The raw steps, read once for all sections and languages of a page."""
    paths = [measurement.result_file, *measurement.raw_files()]
    files = [path.stat() for path in paths]
    stamps = tuple((file.st_mtime_ns, file.st_size) for file in files)
    return _read_steps(measurement.folder, stamps)


@lru_cache(maxsize=1)
def _read_steps(folder: Path, _stamps: tuple[Any, ...]) -> Steps:
    measurement = Measurement.read(folder)
    found = check(measurement)
    if found.steps.empty:
        return Steps(Section(), found)
    colour = style.COLOURS[FRAMEWORK_NAMES[measurement.result.config.framework]]
    return Steps(_overlaid(found.steps, colour) + _each(found.steps, colour), found)


def _warmups(steps: pd.DataFrame) -> "pd.Series[int]":
    """The last step of each repeat's warm-up; only of repeats that have one."""
    return steps[~steps["measured"]].groupby("repeat")["step"].max()


def _overlaid(steps: pd.DataFrame, colour: str) -> Section:
    """All repeats overlaid: the slowest rank's seconds by step, and their median. A step is
    shaded the more, the more repeats have it in their warm-up."""
    slowest = steps.groupby(["step", "repeat"])[["seconds", "data_wait_seconds"]].max()
    seconds, waits = slowest["seconds"].unstack(), slowest["data_wait_seconds"].unstack()
    x = seconds.index.to_numpy()
    lines = [np.column_stack([x, seconds[repeat]]) for repeat in seconds]
    look: dict[str, Any] = {"colors": style.FAINT, "linewidths": 0.7}
    with style.new_figure(9, 2.7, layout=None) as (figure, (axes,)):
        axes.add_collection(LineCollection(lines, label=later("a repeat"), **look))
        middle = seconds.median(axis=1)
        axes.plot(x, middle, color=colour, label=later("median of the repeats"))
        wait: dict[str, Any] = {"color": style.WAIT, "linewidth": 0}
        axes.fill_between(x, waits.median(axis=1), label=later("data wait"), **wait)
        warmups = _warmups(steps).value_counts(normalize=True)
        for warmup, share in warmups.items():
            shade = SHADE | {"alpha": SHADE["alpha"] * share}
            axes.axvspan(x[0] - 0.5, warmup + 0.5, **shade)
        if not warmups.empty:
            axes.fill_between([], [], label=later("warm-up"), **SHADE)
        axes.set(xlim=(x[0] - 0.5, x[-1] + 0.5), xlabel=later("step"))
        axes.set_ylabel(later("step time (s)"))
        axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(3))
        style.from_zero(axes, float(steps["seconds"].max()))
        axes.grid(visible=False, axis="x")
        axes.legend(loc="lower right", bbox_to_anchor=(1, 0.98), ncols=4, borderaxespad=0)
        figure.subplots_adjust(**MARGINS)
    return picture(figure, later("Time of each step, all repeats overlaid"))


def _each(steps: pd.DataFrame, colour: str) -> Section:
    """A row for each repeat, on one scale: a line per rank or, of many, of the fastest and the
    slowest; data wait; warm-up shaded. Drawn without axes, since a site has thousands of
    these."""
    if steps["rank"].nunique() > MOST_RANKS:
        by_step = steps.groupby(["repeat", "step"], as_index=False)
        steps = pd.concat([by_step.max(), by_step.min().assign(rank=-1)])
    first, last, highest = steps["step"].min(), steps["step"].max(), steps["seconds"].max()
    repeats = sorted(steps["repeat"].unique(), reverse=True)
    lines, waits = [], []
    for (repeat, _rank), group in steps.groupby(["repeat", "rank"]):
        row, x = repeats.index(repeat), group["step"].to_numpy()
        lines.append(np.column_stack([x, row + 0.9 * group["seconds"] / highest]))
        wait = row + 0.9 * group["data_wait_seconds"].to_numpy() / highest
        waits.append(np.column_stack([[x[0], *x, x[-1]], [row, *wait, row]]))
    rows = [[(first, row), (last, row)] for row in range(len(repeats))]
    with style.chart_style():
        figure = Figure(figsize=(9, 0.5 * (len(repeats) + 1)))
        # Steps and rows to shares of the figure, whose margins have the labels.
        scale = Affine2D().translate(-first, 0.6)
        scale.scale(0.86 / max(last - first, 1), 1 / (len(repeats) + 1)).translate(0.07, 0)
        place: dict[str, Any] = {"transform": scale + figure.transFigure}
        for repeat, warmup in _warmups(steps).items():
            corner, width = (first, repeats.index(repeat)), max(warmup + 0.5 - first, 0)
            figure.add_artist(Rectangle(corner, width, height=1, **SHADE, **place))
        figure.add_artist(LineCollection(rows, colors="#d8dee4", linewidths=0.8, **place))
        figure.add_artist(PolyCollection(waits, facecolors=style.WAIT, **place))
        figure.add_artist(LineCollection(lines, colors=colour, linewidths=0.8, **place))
        for row, repeat in enumerate(repeats):
            figure.text(0.055, scale.transform((0, row))[1], str(repeat), ha="right")
        figure.text(0.005, 0.99, later("repeat"), va="top")
        figure.text(0.935, scale.transform((0, len(repeats) - 0.1))[1], f"{highest:.3g} s")
        figure.text(0.935, scale.transform((0, len(repeats) - 1))[1], "0 s")
        figure.text(0.07, 0.02, str(first))
        figure.text(0.5, 0.02, later("step"), ha="center")
        figure.text(0.93, 0.02, str(last), ha="right")
    alt = later("Time of each step, one repeat below another, on one scale")
    return folded(later("Each repeat"), picture(figure, alt))
