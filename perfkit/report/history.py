"""Sections of the history's page."""

from typing import Any

import pandas as pd
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from perfkit.analysis.comparison.history import Change, History, Point, Series
from perfkit.analysis.comparison.keys import Differences, contrasted
from perfkit.analysis.wording import column_value
from perfkit.measuring.format import minute, number, percent, plain, rate_text, shortened
from perfkit.measuring.units import GIB
from perfkit.report.elements import (
    Text,
    code,
    hint,
    joined,
    link,
    markup,
    more,
    note,
    paragraph,
    strong,
    table,
    verdict_mark,
)
from perfkit.report.history_text import RATIO_NOTE, drop_words, ratio_words, when
from perfkit.report.links import Site
from perfkit.report.rendering import page_warnings, warnings_mark
from perfkit.report.section import Section, folded, picture
from perfkit.report.style import COLOURS, FAINT, INK, estimates, new_figure
from perfkit.report.summary import Summary
from perfkit.report.text.language import gettext as _
from perfkit.report.text.language import ngettext
from perfkit.report.words import machine_words

MOST_CHARTS = 20
"""Series whose charts are drawn; the table lists all series."""
MOST_TICKS = 12
MARK_WIDTH = 0.025
"""Width of a slanted name, as a share of the axis."""
SLANTED: dict[str, Any] = {"rotation": 45, "rotation_mode": "anchor"}
LEAST_HEIGHT = 0.02
"""Least margin above and below the points, in median throughputs."""
MOST_FACTS = 4
"""Most facts of a changed environment that a cell names; the others are in its title."""


def history_overview(summary: Summary) -> Section:
    """What was found, and a table of all series: newest throughput, drop, last change of level.
    Then why results are left out."""
    history = summary.history
    if history.series:
        section = _findings(history) + _all_series(history, summary.site) + _method(history)
    else:
        words = _("No configuration has been measured three times yet. To measure one anew:")
        section = hint(words, "perfkit run resnet50 -p label NAME")
    if history.left_out:
        words = ngettext(
            "%(count)s measurement belongs to a series with fewer than three.",
            "%(count)s measurements belong to series with fewer than three.",
            history.left_out,
        )
        section += note(words % {"count": history.left_out})
    reasons = [[reason] for reason in summary.unreadable]
    section += table(reasons, [_("Left out")])
    return section.on_page_in(summary.folder)


def _findings(history: History) -> Section:
    """Return which series regressed."""
    regressed = [series for series in history.series if series.regressed]
    count = len(history.series)
    if not regressed:
        words = ngettext(
            "No drop over %(threshold)s found in %(count)s series.",
            "No drop over %(threshold)s found in %(count)s series.",
            count,
        )
        facts = {"threshold": percent(history.threshold), "count": count}
        return paragraph(strong(words % facts))
    words = ngettext(
        "%(count)s of %(all)s series regressed:",
        "%(count)s of %(all)s series regressed:",
        len(regressed),
    )
    names = "; ".join(series.name for series in regressed)
    finding = f"{words % {'count': len(regressed), 'all': count}} {names}."
    return paragraph(verdict_mark("slower"), strong(finding))


def _all_series(history: History, site: Site) -> Section:
    rows = [_series_row(series, site) for series in history.series]
    headings: list[Text] = ["", _("Series"), _("Measurements"), _("Newest"), _("Throughput")]
    headings += [_("Drop"), _("Last change"), _("Ratio of levels")]
    return table(rows, headings, as_cards=True)


def _series_row(series: Series, site: Site) -> list[Any]:
    newest, last_change, began = series.points[-1], None, None
    if series.changes:
        last_change = ratio_words(series.changes[-1])
        began = _day(series.points[series.changes[-1].start])
    return [
        _mark(series),
        series.name,
        len(series.points),
        _day(newest),
        _throughput(newest, series, site),
        ratio_words(series.drop) if series.drop else _("none found"),
        began,
        last_change,
    ]


def _throughput(point: Point, series: Series, site: Site) -> Markup:
    """Return a measurement's throughput, after the mark of its warnings."""
    mark = warnings_mark(page_warnings(site.outputs / point.folder) or [])
    return joined([mark, rate_text(point.throughput, series.unit, *(point.interval or ()))])


def _mark(series: Series) -> Text:
    return verdict_mark("slower") if series.regressed else ""


def _day(point: Point) -> str:
    return point.created[:10]


def _method(history: History) -> Section:
    words = _(
        "A series is one configuration, measured at least three times. A level begins where "
        "the measurements change by more than they scatter. A regression is a newest level "
        "below the best accepted one by more than %(threshold)s; a label that begins with "
        "accepted accepts the level of its measurement."
    )
    return note(words % {"threshold": percent(history.threshold)}, _(RATIO_NOTE))


# Each series.


def history_series(summary: Summary) -> Section:
    """What each series shows, with a chart and its changes; series that regressed first."""
    section = Section()
    site, folder = summary.site, summary.folder
    ordered = sorted(summary.history.series, key=lambda series: not series.regressed)
    for place, series in enumerate(ordered[:MOST_CHARTS], 1):
        points = folded(_("All measurements"), _points(series, site))
        heading = _heading(series, summary.history.threshold, f"series-{place}")
        section += heading.on_page_in(folder)
        section += picture(chart(series), series.name)
        section += (_changes(series, site) + points).on_page_in(folder)
    return section + more(len(ordered) - MOST_CHARTS, _("in the table above"))


def _heading(series: Series, threshold: float, address: str) -> Section:
    name = joined([_mark(series), series.name])
    texts: list[Text] = [strong(drop_words(series.drop, threshold))]
    if series.accepted:
        accepted = _("The level of %(when)s was accepted.")
        texts.append(accepted % {"when": when(series.accepted)})
    count = len(series.changes)
    changes = _("No change of level.")
    if count:
        words = ngettext("%(count)s change of level.", "%(count)s changes of level.", count)
        changes = words % {"count": count}
    words = _("From one measurement to the next, throughput scatters by %(scatter)s.")
    scatter = words % {"scatter": percent(series.scatter_share, 2)}
    heading = markup(Markup('<h3 id="%s">%s</h3>') % (address, name))
    return heading + paragraph(*texts) + paragraph(changes, scatter)


def _changes(series: Series, site: Site) -> Section:
    """Return a table of the changes of level with the machine's rates beside them."""
    rows = [_change_row(change, series.points[change.start], site) for change in series.changes]
    headings: list[Text] = [_("First measurement of the level"), _("Training")]
    headings += [_("Matrix product"), _("Copy"), _("Changed environment"), _("Note")]
    return table(rows, headings, as_cards=True)


def _change_row(change: Change, first: Point, site: Site) -> list[Text | None]:
    """Return the cells of a change; `first` is the first measurement of the new level."""
    ratios = {rate.name: ratio_words(rate) for rate in change.rates}
    facts = _facts(first.changed_environment) or _("none stored")
    page = _start(first, site)
    rates = [ratios.get("matrix product", ""), ratios.get("copy", "")]
    return [page, ratio_words(change), *rates, facts, machine_words(change.rates)]


def _start(point: Point, site: Site) -> Text:
    """Return when a measurement started, with its label, as a link to its page."""
    words = f"{minute(point.created)} {plain(point.label)}".rstrip()
    return link(site.address(point.folder), words)


def _points(series: Series, site: Site) -> Section:
    rows = []
    for point in series.points:
        page = link(site.address(point.folder), minute(point.created))
        throughput = _throughput(point, series, site)
        memory = point.peak_memory_bytes and number(point.peak_memory_bytes / GIB, 3)
        first_step = point.first_step_seconds and number(point.first_step_seconds, 3)
        row = [page, throughput, point.n, memory, first_step]
        rows.append([*row, point.label, _facts(point.changed_environment)])
    headings = [_("Started (UTC)"), _("Throughput"), _("Number of repeats")]
    headings += [_("Peak memory (GiB)"), _("To first step (s)"), _("Label")]
    return table(rows, [*headings, _("Changed environment")], as_cards=True)


def _facts(changes: Differences) -> Markup:
    """Return the first changes of the environment, and the number of others."""
    texts = []
    for name, values in [*changes.items()][:MOST_FACTS]:
        before, after = contrasted(name, *values, width=24)
        texts.append(Markup("%s %s → %s") % (code(name), before, after))
    facts = joined(texts, "; ")
    others = [*changes][MOST_FACTS:]
    if others:
        count = Markup(' <span title="%s">+%s</span>') % (", ".join(others), len(others))
        facts += count
    return facts


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
    with new_figure(8, 3.6) as (figure, (axes,)):
        estimates(axes, points, "x", "throughput", series.framework)
        _mark_changes(axes, series)
        _draw_levels(axes, series, points)
        count, names = len(points), _point_names(series)
        ticks = range(0, count, -(-count // MOST_TICKS))
        axes.set_xticks(ticks, [names[x] for x in ticks], **SLANTED, ha="right")
        axes.set(ylabel=series.unit, xlim=(-0.7, count - 0.3))
        axes.grid(visible=False, axis="x")
    return figure


def _point_names(series: Series) -> list[str]:
    """Return the dates of the measurements; their labels or times if a date occurs twice."""
    dates = [point.created[:10] for point in series.points]
    if len({*dates}) == len(dates):
        return dates
    return [
        shortened(plain(point.label) or minute(point.created), 24) for point in series.points
    ]


def _mark_changes(axes: Axes, series: Series) -> None:
    """Draw a dotted line before each measurement whose environment changed, and name the first
    change above the axes. Of changes so near each other that their names would overlap, the
    first is named."""
    least_distance = MARK_WIDTH * len(series.points)
    last_named = -least_distance
    above = axes.get_xaxis_transform()
    for x, point in enumerate(series.points):
        facts = [*point.changed_environment]
        if not facts:
            continue
        axes.axvline(x - 0.5, color=FAINT, linestyle=":", linewidth=1)
        if x - last_named >= least_distance:
            name = _change_name(facts[0], point)
            axes.text(x - 0.5, 1.01, name, transform=above, color=INK, size=7, **SLANTED)
            last_named = x


def _change_name(fact: str, point: Point) -> str:
    _before, after = contrasted(fact, *point.changes[fact], width=16)
    if fact == "script_sha256":
        return column_value(fact, after)
    return f"{plain(fact)} {shortened(after, 20)}"


def _draw_levels(axes: Axes, series: Series, points: pd.DataFrame) -> None:
    """Draw a line at each level's median, and name each change's ratio beside the first point
    of the new level. The axis does not start at 0: a change of a few percent must be visible.
    The least margin keeps noise from filling the chart."""
    colour, throughputs = COLOURS[series.framework], points["throughput"]
    for first, last in series.levels:
        level = throughputs[first : last + 1].median()
        axes.hlines(level, first - 0.4, last + 0.4, color=colour, linewidth=1.5, alpha=0.6)
    low, high = axes.dataLim.y0, axes.dataLim.y1
    margin = max(0.25 * (high - low), LEAST_HEIGHT * throughputs.median())
    axes.set_ylim(max(0.0, low - margin), high + margin)
    tops = points["throughput_high"].astype(float).fillna(throughputs)
    for change in series.changes:
        beside = (change.start, tops[change.start])
        axes.annotate(
            f"× {number(change.ratio, 3)}",
            beside,
            (3, 5),
            textcoords="offset points",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
        )
