"""A picture of runs: a dot for each, with their median and its interval."""

from collections.abc import Sequence

from markupsafe import Markup

from perfkit.report.rendering import TEMPLATES

LEFT, WIDTH, TOP, HEIGHT = 8, 224, 6, 30
"""The dots' place within a picture of 240 x 56 units."""


def strip(
    runs: Sequence[float],
    median: float,
    interval: tuple[float, float] | None,
    *,
    ratios: bool = False,
) -> Markup:
    """The runs as a small SVG, the first run at the top; median, interval and, of ratios, 1
    where it is not far from the dots."""
    low, high = min(runs), max(runs)
    reach = high - low or abs(low) or 1.0
    if ratios and low - reach <= 1 <= high + reach:
        low, high = min(low, 1.0), max(high, 1.0)
    span = high - low or 1.0

    def x(value: float) -> float:
        return round(LEFT + (value - low) / span * WIDTH, 1)

    return Markup(
        TEMPLATES.get_template("strip.svg.j2").render(
            dots=[
                (x(value), round(TOP + (k + 0.5) / len(runs) * HEIGHT, 1))
                for k, value in enumerate(runs)
            ],
            median=x(median),
            interval=interval and [x(end) for end in interval],
            one=x(1.0) if ratios and low <= 1 <= high else None,
            ends=[(x(low), low, "start"), (x(high), high, "end")],
            top=TOP,
            bottom=TOP + HEIGHT,
        )
    )
