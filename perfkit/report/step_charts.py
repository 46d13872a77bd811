"""Charts of a measurement's raw steps. Their texts are translated when they are shown, so that
a chart is drawn once for all languages."""

from functools import partial

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from perfkit.measuring.format import number
from perfkit.measuring.statements import N_
from perfkit.report.section import Section, folded, picture
from perfkit.report.style import FAINT, HEADROOM, NARROW, WAIT, from_zero, new_figure

MOST_RANKS = 8
"""With more ranks, only the fastest and the slowest rank are drawn."""
MOST_ROWS = 50
"""With more repeats, they are drawn overlaid only."""
HIDDEN = 0.002
"""Share of a chart's scale that is less than half a pixel high."""
MARGINS = {"left": 0.07, "right": 0.99, "top": 0.86, "bottom": 0.17}
NARROW_MARGINS = {"left": 0.15, "right": 0.95, "top": 0.78, "bottom": 0.17}
"""Margins as shares of the figure: computing them would take longer than drawing."""
ROW_HEIGHT, AROUND = 0.55, 0.8
"""Inches of a repeat's row, and of the margins above and below all rows."""


def step_charts(steps: pd.DataFrame, colour: str) -> Section:
    """Return the charts of a measurement's steps, as `perfkit.load_steps` gives them."""
    steps = steps.assign(seconds=steps["seconds"] / steps["steps"])
    charts = picture(
        partial(overlaid, steps, colour),
        N_("Time of each step, all repeats overlaid"),
        partial(overlaid, steps, colour, narrow=True),
    )
    lines = steps[["repeat", "rank"]].drop_duplicates()
    # A single line is in the first chart already.
    if len(lines) > 1 and steps["repeat"].nunique() <= MOST_ROWS:
        rows = picture(
            partial(each_repeat, steps, colour),
            N_("Time of each step, one repeat below another, on one scale"),
        )
        charts += folded(N_("Each repeat"), rows)
    return charts


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
        _shade_wait(axes, wait, seconds.max(axis=None), label=N_("data wait"))
        spans = _shade_warm_up(axes, steps)
        for span in spans[:1]:
            span.set_label(N_("warm-up"))
        _scale(axes, steps)
        axes.yaxis.set_major_locator(MaxNLocator(3))
        axes.set_ylabel(N_("step time (s)"))
        axes.grid(visible=False, axis="x")
        axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=columns)
    return figure


def each_repeat(steps: pd.DataFrame, colour: str) -> Figure:
    """Draw a row for each repeat, on one scale: a line for each rank, and the longest wait for
    data."""
    if steps["rank"].nunique() > MOST_RANKS:
        steps = _fastest_and_slowest(steps)
    repeats = list(steps.groupby("repeat"))
    longest = float(steps["seconds"].max())
    row_height = HEADROOM * longest
    height = ROW_HEIGHT * len(repeats) + AROUND
    margins = MARGINS | {"top": 1 - 0.25 / height, "bottom": 0.5 / height}
    with new_figure(9, height, layout=None, gridspec_kw=margins) as (figure, (axes,)):
        beside = axes.get_yaxis_transform()
        for row, (repeat, of_repeat) in enumerate(repeats, 1):
            zero = -row * row_height
            seconds = of_repeat.pivot(index="step", columns="rank", values="seconds")
            axes.plot(seconds.index, zero + seconds, color=colour, linewidth=0.8)
            wait = of_repeat.groupby("step")["data_wait_seconds"].max()
            _shade_wait(axes, wait, longest, zero=zero)
            _shade_warm_up(axes, of_repeat, row=(1 - row / len(repeats), 1 / len(repeats)))
            axes.axhline(zero, color=FAINT, linewidth=0.5)
            axes.text(-0.04, zero + row_height / 2, str(repeat), transform=beside, va="center")
        _scale(axes, steps)
        # The last row has the scale of all.
        axes.set_yticks([zero, zero + longest], ["0", number(longest, 2)])
        axes.set_ylim(zero, 0)
        axes.grid(visible=False)
        figure.text(0.005, 0.99, N_("repeat"), va="top")
        figure.text(0.07, 0.99, N_("step time (s)"), va="top")
    return figure


def _fastest_and_slowest(steps: pd.DataFrame) -> pd.DataFrame:
    """Return two ranks for each repeat: the least and the greatest values of each step."""
    by_step = steps.groupby(["repeat", "step"], as_index=False)
    return pd.concat([by_step.min().assign(rank=0), by_step.max().assign(rank=1)])


def _shade_wait(
    axes: Axes,
    wait: pd.Series,
    longest: float,
    label: str | None = None,
    zero: float = 0.0,
) -> None:
    """Shade the wait for data in each step above the line at `zero`, unless it is too short to
    be seen on a scale with the longest step: an area of a thousand steps takes as much of a
    page as all its lines."""
    if wait.max() > HIDDEN * longest:
        top = zero + wait
        axes.fill_between(wait.index, zero, top, color=WAIT, linewidth=0, label=label)


def _shade_warm_up(
    axes: Axes, steps: pd.DataFrame, row: tuple[float, float] = (0, 1)
) -> list[Rectangle]:
    """Shade the warm-up and return its shades: a step is the darker the more repeats have it in
    their warm-up. `row` is the lower end and the height, as shares of the axes."""
    low, height = row
    first = steps["step"].min()
    lasts = steps[~steps["measured"]].groupby("repeat")["step"].max()
    shares = lasts.value_counts(normalize=True)
    return [
        axes.axvspan(
            first - 0.5,
            last + 0.5,
            low,
            low + height,
            color=FAINT,
            alpha=0.2 * share,
            linewidth=0,
        )
        for last, share in shares.items()
    ]


def _scale(axes: Axes, steps: pd.DataFrame) -> None:
    """Show all steps, and times from 0."""
    axes.set(xlim=(steps["step"].min() - 0.5, steps["step"].max() + 0.5), xlabel=N_("step"))
    from_zero(axes, float(steps["seconds"].max()))
    axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
