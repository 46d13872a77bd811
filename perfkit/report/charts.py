"""Charts as SVG that takes its colours from the page, so that they fit dark and light."""

import io
from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

if TYPE_CHECKING:
    import pandas

# Matplotlib writes these colours; the page's own replace them. Blue and orange of Okabe and
# Ito's palette stay apart for the colour-blind.
COLOURS = {
    "#010101": "var(--ink, currentColor)",
    "#020202": "var(--shade, #8884)",
    "#030303": "var(--work, #0072b2)",
    "#040404": "var(--wait, #d55e00)",
}
INK, SHADE, WORK, WAIT = COLOURS
STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "perfkit",
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def step_chart(steps: "pandas.DataFrame", warmup_steps: int, highest: float) -> str:
    """One repeat: seconds of each step (a line per rank), the part waiting for input filled.

    `steps` as results.load_steps gives them; `highest` seconds is the top of the axis, so
    that the charts of several repeats compare.
    """
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(4.6, 1.9), layout="constrained")
        axes = figure.subplots()
        for _rank, group in steps.groupby("rank"):
            edges = np.append(group["step"].to_numpy() - 0.5, group["step"].max() + 0.5)
            axes.stairs(group["seconds"], edges, baseline=None, color=WORK, linewidth=1.4)
            axes.stairs(group["data_wait_seconds"], edges, fill=True, color=WAIT)
        last = steps["step"].max() + 0.5
        if warmup_steps:
            axes.axvspan(0.5, warmup_steps + 0.5, color=SHADE, linewidth=0)
            axes.text(0.5, highest * 1.1, " warm-up", va="top", fontsize=8)
        axes.set(
            xlim=(0.5, last), ylim=(0, highest * 1.12 or 1), xlabel="step", ylabel="seconds"
        )
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        return svg(figure)


def svg(figure: Figure) -> str:
    """The figure as an SVG element to stand in HTML."""
    stream = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(stream, format="svg", transparent=True, metadata=nothing)
    text = stream.getvalue()
    text = text[text.index("<svg") :]
    for written, page_colour in COLOURS.items():
        text = text.replace(written, page_colour)
    return text
