"""Sections of the history's page."""

from typing import Any

import pandas as pd
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from perfkit.analysis.comparison.history import Change, History, Newest, Point, Series
from perfkit.analysis.comparison.keys import Differences, contrasted
from perfkit.analysis.ratios import Ratio
from perfkit.analysis.wording import column_value
from perfkit.core.format import interval, minute, number, percent, plain, shortened
from perfkit.core.units import GIB
from perfkit.report.elements import (
    NumberHeading,
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
from perfkit.report.history_text import RATIO_NOTE, drop_words, missed, when
from perfkit.report.links import Site
from perfkit.report.section import Section, folded, picture
from perfkit.report.style import COLOURS, FAINT, INK, estimates, new_figure
from perfkit.report.summary import Summary
from perfkit.report.text.language import gettext as _
from perfkit.report.text.language import labelled, ngettext
from perfkit.report.text.names import TOO_FEW, verdict_name
from perfkit.report.text.statements import sentence

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
    """What was found, and a table of all series: newest throughput, drop, detectable drop,
    ratio to the previous measurement, last change of level. Then why results are left out."""
    history = summary.history
    if history.series:
        section = _findings(history) + _all_series(history) + _method(history)
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
    """Return which series regressed, and whether drops would have been found in the others."""
    regressed = [series for series in history.series if series.regressed]
    count = len(history.series)
    section = Section()
    if regressed:
        words = ngettext(
            "%(count)s of %(all)s series regressed:",
            "%(count)s of %(all)s series regressed:",
            len(regressed),
        )
        names = "; ".join(series.name for series in regressed)
        finding = f"{words % {'count': len(regressed), 'all': count}} {names}."
        section += paragraph(verdict_mark("slower"), strong(finding))
    if any(series.verdict == "undecided" for series in history.series):
        section += paragraph(verdict_mark("undecided"), strong(missed(history)))
    elif not regressed:
        words = ngettext(
            "No drop over %(threshold)s in %(count)s series.",
            "No drop over %(threshold)s in %(count)s series.",
            count,
        )
        facts = {"threshold": percent(history.threshold), "count": count}
        section += paragraph(verdict_mark("no difference"), strong(words % facts))
    return section


def _all_series(history: History) -> Section:
    rows = [_series_row(series, history.threshold) for series in history.series]
    headings: list[Text] = ["", _("Series"), _("Measurements"), _("Newest"), _("Throughput")]
    headings += [_("Drop"), NumberHeading(_("Detectable drop")), _("Ratio to the previous")]
    return table(rows, [*headings, _("Last change"), _("Ratio of levels")], as_cards=True)


def _series_row(series: Series, threshold: float) -> list[Any]:
    newest, last_change, began = series.points[-1], None, None
    if series.changes:
        last_change = _ratio(series.changes[-1])
        began = _day(series.points[series.changes[-1].start])
    return [
        verdict_mark(series.verdict),
        series.name,
        len(series.points),
        _day(newest),
        f"{number(newest.throughput)} {series.unit}",
        drop_words(series.verdict, threshold),
        None if series.regressed else _detectable(series.detectable_drop),
        series.compared and _compared(series.compared, threshold),
        began,
        last_change,
    ]


def _detectable(drop: float | None) -> str:
    return _("none") if drop is None else percent(drop, 2)


def _compared(newest: Newest, threshold: float) -> str:
    """Return the verdict on the newest measurement and its ratio to the previous one."""
    if not newest.is_tested:
        return labelled(_(TOO_FEW), number(newest.ratio))
    return labelled(verdict_name(newest.verdict, threshold), _ratio(newest))


def _day(point: Point) -> str:
    return point.created[:10]


def _ratio(ratio: Ratio) -> str:
    return f"{number(ratio.ratio)} ({interval(*ratio.interval)})"


def _method(history: History) -> Section:
    words = _(
        "A series is one configuration, measured at least three times. A change of level is "
        "accepted by an exact test of the repeats on both sides; a series without any change "
        "has a false one with a probability of at most %(level)s. A regression is a newest "
        "level below the best accepted one by more than %(threshold)s; a label that begins "
        "with accepted accepts the level of its measurement. The detectable drop would have "
        "been found at any measurement of the newest level, whose own repeats and scatter it "
        "includes; a smaller one that lasts is found later."
    )
    facts = {"level": percent(history.level), "threshold": percent(history.threshold)}
    return note(words % facts, _(RATIO_NOTE))


# Each series.


def history_series(summary: Summary) -> Section:
    """What each series shows, with a chart and its changes; series that regressed first."""
    section = Section()
    site, folder = summary.site, summary.folder
    ordered = sorted(summary.history.series, key=lambda series: not series.regressed)
    for place, series in enumerate(ordered[:MOST_CHARTS], 1):
        points = folded(_("All measurements"), _points(series, site))
        section += _heading(series, f"series-{place}").on_page_in(folder)
        section += picture(chart(series), series.name)
        section += (_changes(series, site) + points).on_page_in(folder)
    return section + more(len(ordered) - MOST_CHARTS, _("in the table above"))


def _heading(series: Series, address: str) -> Section:
    name = joined([verdict_mark(series.verdict), series.name])
    texts: list[Text] = [strong(sentence(series.outcome))]
    if series.untested:
        texts.append(sentence(series.untested))
    if series.accepted:
        accepted = _("The level of %(when)s was accepted.")
        texts.append(accepted % {"when": when(series.accepted)})
    count = len(series.changes)
    changes = _("No change of level.")
    if count:
        words = ngettext("%(count)s change of level.", "%(count)s changes of level.", count)
        changes = words % {"count": count}
    words = _(
        "From one measurement to the next, throughput scatters by %(scatter)s. A single test "
        "has the level %(test)s."
    )
    facts = {
        "scatter": percent(series.scatter_share, 2),
        "test": percent(series.test_level, 2),
    }
    heading = markup(Markup('<h3 id="%s">%s</h3>') % (address, name))
    return heading + paragraph(*texts) + paragraph(changes, words % facts)


def _changes(series: Series, site: Site) -> Section:
    """Return a table of the changes of level; a single one in words."""
    if len(series.changes) == 1:
        (change,) = series.changes
        return _change(change, series.points[change.start], site)
    rows = [_change_row(change, series.points[change.start], site) for change in series.changes]
    headings = [_("First measurement of the level"), _("Ratio of levels")]
    headings += [_("Level of the interval"), _("p-value"), _("Changed environment")]
    return table(rows, [*headings, _("Machine or software")], as_cards=True)


def _change(change: Change, first: Point, site: Site) -> Section:
    """Return a change of level in words; `first` is the first measurement of the new level."""
    words = Markup(
        _(
            "From %(first)s on, the level is × %(ratio)s (%(interval)s, %(level)s) of the one "
            "before; p-value %(p_value)s."
        )
    )
    figures = {
        "first": _start(first, site),
        "ratio": number(change.ratio),
        "interval": interval(*change.interval),
        "level": percent(change.interval_level, 4),
        "p_value": f"{change.p_value:.2g}",
    }
    texts: list[Text] = [words % figures, _changed(first)]
    if change.attribution:
        texts.append(sentence(change.attribution.statement))
    return paragraph(*texts)


def _changed(first: Point) -> Text:
    """Return what changed at the first measurement of a level."""
    facts = _facts(first.changed_environment)
    if not facts:
        return _("Nothing has changed in the stored environment, interpreter and threads.")
    return Markup(_("Changed environment: %(facts)s.")) % {"facts": facts}


def _change_row(change: Change, first: Point, site: Site) -> list[str | None]:
    page = _start(first, site)
    level, p_value = percent(change.interval_level, 4), f"{change.p_value:.2g}"
    facts = _facts(first.changed_environment) or _("none stored")
    attribution = sentence(change.attribution.statement) if change.attribution else None
    return [page, _ratio(change), level, p_value, facts, attribution]


def _start(point: Point, site: Site) -> Text:
    """Return when a measurement started, with its label, as a link to its page."""
    words = f"{minute(point.created)} {plain(point.label)}".rstrip()
    return link(site.address(point.folder), words)


def _points(series: Series, site: Site) -> Section:
    rows = []
    for point in series.points:
        page = link(site.address(point.folder), minute(point.created))
        low, high = point.interval or (None, None)
        throughput = f"{number(point.throughput)} {series.unit}"
        memory = point.peak_memory_bytes and number(point.peak_memory_bytes / GIB, 3)
        first_step = point.first_step_seconds and number(point.first_step_seconds, 3)
        row = [page, throughput, interval(low, high), point.n, memory, first_step]
        rows.append([*row, point.label, _facts(point.changed_environment)])
    headings = [_("Started (UTC)"), _("Throughput"), _("Interval"), _("Number of repeats")]
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
