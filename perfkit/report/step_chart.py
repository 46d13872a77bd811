"""The step times of one repeat as a small SVG.

Drawn by a template, not by matplotlib as the summary's charts are: a site has thousands of
these, and the page's own font and colours serve them.
"""

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup
from matplotlib.ticker import MaxNLocator

from perfkit.report.rendering import TEMPLATES

if TYPE_CHECKING:
    import pandas

LEFT, TOP, WIDTH, HEIGHT = 46, 8, 404, 134
"""The plot's place within the picture of 460 x 190 units."""


def step_chart(steps: "pandas.DataFrame", warmup_steps: int, highest: float) -> Markup:
    """One repeat: seconds of each step (a line per rank), the part waiting for input filled.

    `steps` as frames.load_steps gives them; `highest` seconds is the top of the axis, so that
    the charts of several repeats compare.
    """
    first, last = int(steps["step"].min()), int(steps["step"].max())
    top = highest * 1.08 or 1.0

    def x(step: Any) -> Any:
        return np.round(LEFT + (step - first + 0.5) / (last - first + 1) * WIDTH, 1)

    def y(seconds: Any) -> Any:
        return np.round(TOP + HEIGHT * (1 - seconds / top), 1)

    lines, waits = [], []
    for _rank, group in steps.groupby("rank"):
        numbers = group["step"].to_numpy()
        edges = x(np.append(numbers - 0.5, numbers[-1] + 0.5)).tolist()
        lines.append(_stairs(edges, y(group["seconds"].to_numpy()).tolist()))
        wait = _stairs(edges, y(group["data_wait_seconds"].to_numpy()).tolist())
        waits.append(f"{edges[0]},{y(0)} {wait} {edges[-1]},{y(0)}")
    seconds = [t for t in MaxNLocator(3, steps=[1, 2, 5, 10]).tick_values(0, top) if t <= top]
    ticks = MaxNLocator(5, integer=True, steps=[1, 2, 5, 10]).tick_values(first, last)
    return Markup(
        TEMPLATES.get_template("step_chart.svg.j2").render(
            lines=lines,
            waits=waits,
            warmup=x(min(warmup_steps, last) + 0.5) if warmup_steps else None,
            seconds=[(y(value), f"{value:g}") for value in seconds],
            steps=[(x(value), f"{value:g}") for value in ticks if first <= value <= last],
            left=LEFT,
            top=TOP,
            right=LEFT + WIDTH,
            bottom=TOP + HEIGHT,
        )
    )


def _stairs(edges: list[float], heights: list[float]) -> str:
    """A line of steps as SVG points: each height from one edge to the next."""
    return " ".join(
        f"{a},{height} {b},{height}"
        for (a, b), height in zip(pairwise(edges), heights, strict=True)
    )
