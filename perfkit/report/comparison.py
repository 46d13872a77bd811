"""Sections of the history's page and of an interleaved comparison's page. The latter raise
ResultError for a folder without a comparison."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from perfkit.analysis.comparison.history import RECENT, Point, Series
from perfkit.analysis.comparison.interleaved import disagreements
from perfkit.analysis.comparison.keys import contrasted
from perfkit.analysis.comparison.stored import InterleavedComparison, read_comparison
from perfkit.core.format import minute, number, plain
from perfkit.core.models import model_named
from perfkit.core.paths import resolved_path
from perfkit.report.elements import more, table
from perfkit.report.history_text import RATIO_NOTE
from perfkit.report.links import Site
from perfkit.report.rendering import render
from perfkit.report.section import Section, folded, picture
from perfkit.report.style import COLOURS, FAINT, INK, estimates, forest, new_figure
from perfkit.report.summary import Summary
from perfkit.report.text import names
from perfkit.report.text.language import gettext as _


@dataclass(frozen=True)
class ComparisonPage:
    """A stored comparison, its folder, and the site that its page is part of."""

    folder: Path
    comparison: InterleavedComparison
    site: Site

    @classmethod
    def read(cls, folder: str | Path, site: Site | None = None) -> "ComparisonPage":
        """Read the comparison in a folder; a relative path starts at the checkout. Raises
        ResultError for a folder without a comparison."""
        place = resolved_path(str(folder))
        return cls(place, read_comparison(place), site or Site(place.parent.parent))


Shown = str | Path | ComparisonPage
"""What a section shows: a comparison that was read, or its folder."""


def _page(shown: Shown) -> ComparisonPage:
    return shown if isinstance(shown, ComparisonPage) else ComparisonPage.read(shown)


def _text(page: ComparisonPage, macro: str, *values: Any) -> Section:
    return render("comparison", macro, page.folder, *values)


def comparison_facts(page: ComparisonPage) -> tuple[str, str]:
    """Return the page's title, and the time of the comparison with its device if known."""
    c = page.comparison
    words, made = [model_named(c.model).short_name], [names.minute(c.created)]
    for keys in (pair.keys for pair in c.pairs[:1]):
        batch = _("batch %(size)s") % {"size": keys.get("batch_size", "–")}
        known = [keys.get(name) for name in ("precision", "topology", "input")]
        words += [str(word) for word in (known[0], batch, *known[1:]) if word is not None]
        facts = {f"environment.{name}": value for name, value in keys.items()}
        made += [names.device_name(facts | keys)] if "device" in keys else []
    variants = ", ".join(map(names.variant_name, c.variants))
    return f"{' · '.join(words)}: {variants}", " · ".join(made)


def comparison_headline(shown: Shown) -> Section:
    """The verdict on each variant, a forest plot of the ratios, and failures."""
    page = _page(shown)
    c = page.comparison
    text = _text(page, "headline", c, comparison_facts(page)[0])
    variants = [(c.variant_of(pair), pair) for pair in c.pairs]
    rows = [(names.variant_name(variant), variant, pair) for variant, pair in variants]
    base = _("throughput / throughput of %(base)s") % {"base": names.variant_name(c.base)}
    return text + picture(forest(rows, base), base) if rows else text


def comparison_variants(shown: Shown) -> Section:
    """Throughput, shares of the measured peaks and warnings per variant."""
    page = _page(shown)
    variants = page.comparison.variants
    linked = [variant.id for variant in variants if page.site.has_page(variant.id)]
    return _text(page, "variants", page.comparison, linked)


def comparison_pairs(shown: Shown) -> Section:
    """Work equivalence, agreement with the results, all pairs, differences, the command."""
    page = _page(shown)
    trouble = disagreements(page.comparison, page.site.outputs)
    return _text(page, "pairs", page.comparison, trouble)


MOST_CHARTS = 20
"""Series whose charts are drawn; the table lists all series."""
MOST_TICKS = 12
LEAST_HEIGHT = 0.02
"""Least margin above and below the points, in median throughputs."""


def history_overview(summary: Summary) -> Section:
    """The series that regressed, and a table of all series: newest throughput, ratio to the
    previous measurement, last change of level. Then the reasons why results are left out."""
    overview = render(
        "history", "overview", summary.folder, summary.history, RECENT, RATIO_NOTE
    )
    return overview + table([[reason] for reason in summary.unreadable], [_("Left out")])


def history_series(summary: Summary) -> Section:
    """A chart and the changes of each series, series that regressed first."""
    section, text = Section(), partial(render, "history")
    site, folder = summary.site, summary.folder
    ordered = sorted(summary.history.series, key=lambda series: not series.regressed)
    for series in ordered[:MOST_CHARTS]:
        points = folded(_("All measurements"), text("points", folder, series, site))
        section += text("series", folder, series) + picture(chart(series), series.name)
        section += text("changes", folder, series, site) + points
    rest = len(ordered) - MOST_CHARTS
    return section + more(rest, _("in the table above"))


def chart(series: Series) -> Figure:
    """Chart of a series in chronological order: throughputs with intervals, a line per level
    with its ratio to the previous level, a dotted line at changes of the environment."""
    points = pd.DataFrame(
        {
            "x": x,
            "name": series.framework,
            "throughput": point.throughput,
            "throughput_low": point.interval and point.interval[0],
            "throughput_high": point.interval and point.interval[1],
            "repeat_throughputs": point.repeat_throughputs,
        }
        for x, point in enumerate(series.points)
    )
    with new_figure(8, 3.2) as (figure, (axes,)):
        estimates(axes, points, "x", "throughput", series.framework)
        for x, point in enumerate(series.points):
            _mark_change(axes, x, point)
        _draw_levels(axes, series, points["throughput"])
        count, names = len(points), _point_names(series)
        ticks = range(0, count, -(-count // MOST_TICKS))
        axes.set_xticks(ticks, [names[x] for x in ticks], rotation=20)
        axes.set(ylabel=series.unit, xlim=(-0.7, count - 0.3))
        axes.grid(visible=False, axis="x")
    return figure


def _point_names(series: Series) -> list[str]:
    """Return the dates of the measurements; their labels or times if a date occurs twice."""
    dates = [point.created[:10] for point in series.points]
    if len({*dates}) == len(dates):
        return dates
    return [plain(point.label) or minute(point.created) for point in series.points]


def _mark_change(axes: Axes, x: int, point: Point) -> None:
    """Draw a dotted line, with the first change, before a measurement whose environment
    changed."""
    facts = [name for name in point.changes if name != "label"]
    if not facts:
        return
    axes.axvline(x - 0.5, color=FAINT, linestyle=":", linewidth=1)
    _before, after = contrasted(facts[0], *point.changes[facts[0]], width=16)
    text = f"{plain(facts[0])} {names.shortened(after, 18)}"
    at_bottom = axes.get_xaxis_transform()
    axes.text(x - 0.45, 0.02, text, transform=at_bottom, color=INK, rotation=90, size=7)


def _draw_levels(axes: Axes, series: Series, throughputs: "pd.Series[float]") -> None:
    """Draw a line at each level's median, and name each change's ratio. The axis does not start
    at 0: a change of a few percent must be visible. The least margin keeps noise from filling
    the chart."""
    colour = COLOURS[series.framework]
    for first, last in series.levels:
        level = throughputs[first : last + 1].median()
        axes.hlines(level, first - 0.4, last + 0.4, color=colour, linewidth=1.5, alpha=0.6)
    low, high = axes.dataLim.y0, axes.dataLim.y1
    margin = max(0.25 * (high - low), LEAST_HEIGHT * throughputs.median())
    axes.set_ylim(low - margin, high + margin)
    for change in series.changes:
        text, at = f"× {number(change.ratio, 3)}", (change.start, throughputs[change.start])
        axes.annotate(text, at, (0, 14), textcoords="offset points", ha="center")
