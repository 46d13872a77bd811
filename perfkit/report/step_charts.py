"""The chart of a measurement's raw steps. Its texts are translated when they are shown, so that
it is drawn once for all languages."""

from functools import partial

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from perfkit.measuring.statements import N_
from perfkit.report.section import Section, picture
from perfkit.report.style import FAINT, NARROW, WAIT, from_zero, new_figure

HIDDEN = 0.002
"""Share of a chart's scale that is less than half a pixel high."""
MARGINS = {"left": 0.07, "right": 0.99, "top": 0.86, "bottom": 0.17}
NARROW_MARGINS = {"left": 0.15, "right": 0.95, "top": 0.78, "bottom": 0.17}
"""Margins as shares of the figure: computing them would take longer than drawing."""


def step_chart(steps: pd.DataFrame, colour: str) -> Section:
    """Return the chart of a measurement's steps, as `perfkit.load_steps` gives them."""
    steps = steps.assign(seconds=steps["seconds"] / steps["steps"])
    return picture(
        partial(overlaid, steps, colour),
        N_("Time of each step, all repeats overlaid"),
        partial(overlaid, steps, colour, narrow=True),
    )


def overlaid(steps: pd.DataFrame, colour: str, *, narrow: bool = False) -> Figure:
    """Draw all repeats overlaid: the slowest rank's time of each step, the median of the
    repeats, and the median wait for data, if a script tells it."""
    slowest = steps.groupby(["step", "repeat"])[["seconds", "data_wait_seconds"]].max()
    seconds = slowest["seconds"].unstack("repeat")
    wait = slowest["data_wait_seconds"].groupby("step").median()
    width, margins, columns = (NARROW, NARROW_MARGINS, 2) if narrow else (9, MARGINS, 4)
    with new_figure(width, 2.7, layout=None, gridspec_kw=margins) as (figure, (axes,)):
        repeats = axes.plot(seconds.index, seconds, color=FAINT, linewidth=0.7)
        repeats[0].set_label(N_("a repeat"))
        median = seconds.median(axis="columns")
        axes.plot(median.index, median, color=colour, label=N_("median of the repeats"))
        _shade_wait(axes, wait, seconds.max(axis=None))
        _shade_warm_up(axes, steps)
        _scale(axes, steps)
        axes.yaxis.set_major_locator(MaxNLocator(3))
        axes.set_ylabel(N_("step time (s)"))
        axes.grid(visible=False, axis="x")
        axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=columns)
    return figure


def _shade_wait(axes: Axes, wait: pd.Series, longest: float) -> None:
    """Shade the wait for data in each step, unless it is too short to be seen on a scale with
    the longest step: an area of a thousand steps takes as much of a page as all its lines."""
    if wait.max() > HIDDEN * longest:
        axes.fill_between(wait.index, wait, color=WAIT, linewidth=0, label=N_("data wait"))


def _shade_warm_up(axes: Axes, steps: pd.DataFrame) -> None:
    """Shade the warm-up: a step is the darker the more repeats have it in their warm-up."""
    first = steps["step"].min()
    lasts = steps[~steps["measured"]].groupby("repeat")["step"].max()
    shares = lasts.value_counts(normalize=True)
    spans = []
    for last, share in shares.items():
        alpha = 0.2 * share
        ends = first - 0.5, last + 0.5
        spans.append(axes.axvspan(*ends, color=FAINT, alpha=alpha, linewidth=0))
    for span in spans[:1]:
        span.set_label(N_("warm-up"))


def _scale(axes: Axes, steps: pd.DataFrame) -> None:
    """Show all steps, and times from 0."""
    axes.set(xlim=(steps["step"].min() - 0.5, steps["step"].max() + 0.5), xlabel=N_("step"))
    from_zero(axes, float(steps["seconds"].max()))
    axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
