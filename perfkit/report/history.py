"""Sections of the history's page."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import pandas as pd
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from perfkit.analysis.comparison.history import Change, History, Point, Series
from perfkit.analysis.comparison.keys import Differences, contrasted
from perfkit.analysis.ratios import Ratio
from perfkit.measuring.format import minute, number, percent, plain, rate_text, shortened
from perfkit.measuring.units import GIB, GIGA, TERA
from perfkit.report.blocks import Inline, NumberHeading
from perfkit.report.elements import (
    bullets,
    code,
    heading,
    hint,
    joined,
    link,
    note,
    paragraph,
    strong,
    table,
    verdict_mark,
)
from perfkit.report.links import Site
from perfkit.report.rendering import page_warnings, warnings_mark
from perfkit.report.section import Section, folded, picture
from perfkit.report.style import COLOURS, FAINT, INK, NARROW, estimates, from_zero, new_figure
from perfkit.report.summarized import Summary
from perfkit.report.text.language import gettext as _
from perfkit.report.text.language import ngettext
from perfkit.report.text.names import configuration_name
from perfkit.report.text.wording import column_value
from perfkit.report.verdicts import ratio_words
from perfkit.report.words import machine_words

MOST_CHARTS = 20
"""Series whose charts are drawn; the table lists all series."""
MOST_TICKS = 12
MARK_WIDTH = 0.025
"""Width of a slanted name, as a share of the axis."""
SLANTED: dict[str, Any] = {"rotation": 45, "rotation_mode": "anchor"}
RATE_UNITS = {"matrix product": (TERA, "TFLOP/s"), "copy": (GIGA, "GB/s")}
"""Name of a rate of the machine -> its scale and unit."""
MOST_FACTS = 4
"""Most facts of a changed environment that a cell names; the others are in its title."""


def page(summary: Summary) -> Section:
    """Which series regressed, each series with its chart, and a table of all."""
    section = history_section(summary.history, summary.site)
    reasons = [[reason] for reason in summary.unreadable]
    section += table(reasons, [_("Left out")])
    return section.on_page_in(summary.folder)


def history_section(found: History, site: Site) -> Section:
    """Return the same without results that are left out."""
    section = _findings(found) if len(found.series) != 1 else Section()
    ordered = sorted(found.series, key=lambda series: not series.regressed)
    for place, series in enumerate(ordered[:MOST_CHARTS], 1):
        section += _series(series, found.threshold, f"series-{place}", site)
    if len(ordered) > 1:
        section += _all_series(ordered, site)
    if found.left_out:
        words = ngettext(
            "%(count)s measurement belongs to a series with fewer than three undisturbed ones.",
            "%(count)s measurements belong to series with fewer than three undisturbed ones.",
            found.left_out,
        )
        section += note(words % {"count": found.left_out})
    return section + _method(found)


def _findings(found: History) -> Section:
    """Return which series regressed."""
    count = len(found.series)
    if not count:
        words = _(
            "No configuration has three measurements that no other load disturbed. To measure "
            "one anew:"
        )
        return hint(words, "perfkit run resnet50 -p label NAME")
    regressed = [_name(series) for series in found.series if series.regressed]
    if not regressed:
        words = ngettext(
            "No drop over %(threshold)s found in %(count)s series.",
            "No drop over %(threshold)s found in %(count)s series.",
            count,
        )
        facts = {"threshold": percent(found.threshold), "count": count}
        return paragraph(strong(words % facts))
    words = ngettext(
        "%(count)s of %(all)s series regressed:",
        "%(count)s of %(all)s series regressed:",
        len(regressed),
    )
    finding = f"{words % {'count': len(regressed), 'all': count}} {'; '.join(regressed)}."
    return paragraph(verdict_mark("slower"), strong(finding))


def _all_series(every: Sequence[Series], site: Site) -> Section:
    rows = [_series_row(series, site) for series in every]
    headings: list[Inline] = ["", _("Series"), _("Measurements"), _("Newest"), _("Throughput")]
    headings += [_("Drop"), _("Last change"), _("Ratio of levels")]
    section = heading(_("All series"), "all-series")
    return section + table(rows, headings, as_cards=True)


def _series_row(series: Series, site: Site) -> list[Any]:
    newest, last_change, began = series.judged[-1], None, None
    if series.changes:
        last_change = ratio_words(series.changes[-1])
        began = _day(series.judged[series.changes[-1].start])
    return [
        _mark(series),
        _name(series),
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


def _mark(series: Series) -> Inline:
    return verdict_mark("slower") if series.regressed else ""


def _name(series: Series) -> str:
    return configuration_name(series.configuration)


def _day(point: Point) -> str:
    return point.created[:10]


def _method(found: History) -> Section:
    if not found.series:
        return Section()
    series = _(
        "A series is one configuration, measured at least three times. A level begins where "
        "the measurements change by more than they scatter. A regression is a newest level "
        "below the best accepted one by more than %(threshold)s; a label that begins with "
        "accepted accepts the level of its measurement."
    )
    ratios = _(
        "A ratio is the median of all ratios of a repeat to an earlier one (Hodges and "
        "Lehmann), not the ratio of the medians. The measurements were not interleaved: its "
        "interval does not cover drift of the machine between them."
    )
    items = [series % {"threshold": percent(found.threshold)}, ratios]
    return folded(_("Method"), bullets(items))


# Each series.


def _series(series: Series, threshold: float, address: str, site: Site) -> Section:
    """Return a series with its chart, its changes of level and its measurements."""
    texts: list[Inline] = [strong(_drop_words(series, threshold))]
    if series.drop:
        texts.append(_("To accept it: -p label accepted-NAME for the next measurement."))
    if series.accepted:
        accepted = _("The level of %(when)s was accepted.")
        texts.append(accepted % {"when": _when(series.accepted)})
    newest = series.judged[-1]
    words = _("Newest of %(count)d: %(throughput)s, %(day)s.")
    facts = {"count": len(series.judged), "day": _day(newest)}
    texts.append(Markup(words) % (facts | {"throughput": _throughput(newest, series, site)}))
    section = heading(joined([_mark(series), _name(series)]), address) + paragraph(*texts)
    section += _disturbed(series)
    narrow = partial(chart, series, narrow=True)
    section += picture(partial(chart, series), _name(series), narrow)
    section += _changes(series, site)
    words = _("From one measurement to the next, throughput scatters by %(scatter)s.")
    scatter = note(words % {"scatter": percent(series.scatter_share, 2)})
    return section + folded(_("All measurements"), _points(series, site) + scatter)


def _disturbed(series: Series) -> Section:
    """Return how many measurements are not judged; empty without any."""
    count = len(series.points) - len(series.judged)
    if not count:
        return Section()
    words = ngettext(
        "%(count)d measurement beside other load is shown in grey and not judged.",
        "%(count)d measurements beside other load are shown in grey and not judged.",
        count,
    )
    return note(words % {"count": count})


def _drop_words(series: Series, threshold: float) -> str:
    """Return by how much a series regressed, or that no drop was found."""
    drop = series.drop
    if drop is None:
        return _("No drop over %(threshold)s found.") % {"threshold": percent(threshold)}
    words = _("Regression: %(ratio)s × the best accepted level, since %(since)s.")
    return words % {"ratio": ratio_words(drop), "since": _when(series.judged[drop.start])}


def _changes(series: Series, site: Site) -> Section:
    """Return a table of the changes of level with the machine's rates beside them."""
    rows = [_change_row(change, series, site) for change in series.changes]
    headings: list[Inline] = [_("Level since"), NumberHeading(_("Training"))]
    headings += [NumberHeading(_("Matrix product")), NumberHeading(_("Copy"))]
    headings += [_("Changed environment"), _("Note")]
    return table(rows, headings, as_cards=True)


def _change_row(change: Change, series: Series, site: Site) -> list[Inline | None]:
    first = series.judged[change.start]
    facts = _facts(first.changed_environment) or _("nothing stored has changed")
    since = link(site.address(first.folder), _when(first))
    training = _before_and_after(change.before, change.after, series.unit, change)
    rates = dict.fromkeys(RATE_UNITS, Markup())
    for rate in change.rates:
        scale, unit = RATE_UNITS[rate.name]
        rates[rate.name] = _before_and_after(
            rate.before / scale, rate.after / scale, unit, rate
        )
    return [since, training, *rates.values(), facts, machine_words(change.rates)]


def _before_and_after(before: float, after: float, unit: str, ratio: Ratio) -> Markup:
    """Return two rates, and below them their ratio."""
    words = Markup("%s → %s %s<br><small>× %s</small>")
    return words % (number(before, 3), number(after, 3), plain(unit), ratio_words(ratio))


def _when(point: Point) -> str:
    """Return the day of a measurement, and its label."""
    return f"{_day(point)} {plain(point.label)}".rstrip()


def _points(series: Series, site: Site) -> Section:
    rows = []
    for point in series.points:
        page = link(site.address(point.folder), minute(point.created))
        throughput = _throughput(point, series, site)
        memory = point.peak_memory_bytes and number(point.peak_memory_bytes / GIB, 3)
        first_step = point.first_step_seconds and number(point.first_step_seconds, 3)
        row = [page, throughput, point.n, memory, first_step]
        rows.append([*row, point.label, _facts(point.changed_environment)])
    headings = [_("Started (UTC)"), _("Throughput"), _("Repeats")]
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


def chart(series: Series, *, narrow: bool = False) -> Figure:
    """Chart of a series in chronological order: throughputs with intervals, a line per level
    with its ratio to the previous level, a dotted line at changes of the environment; what is
    not judged is grey."""
    judged, places = _frame(series, disturbed=False), _places(series)
    width, most_ticks = (NARROW, MOST_TICKS // 2) if narrow else (8, MOST_TICKS)
    with new_figure(width, 3.6) as (figure, (axes,)):
        estimates(axes, judged, "x", "throughput", series.framework)
        grey = _frame(series, disturbed=True)
        axes.plot(grey["x"], grey["throughput"], "x", color=FAINT)
        _mark_changes(axes, series)
        _draw_levels(axes, series, judged, places)
        count, names = len(series.points), _point_names(series)
        ticks = range(0, count, -(-count // most_ticks))
        axes.set_xticks(ticks, [names[x] for x in ticks], **SLANTED, ha="right")
        axes.set(ylabel=series.unit, xlim=(-0.7, count - 0.3))
        axes.grid(visible=False, axis="x")
    return figure


def _places(series: Series) -> list[int]:
    """Return the place on the chart of each judged measurement."""
    return [x for x, point in enumerate(series.points) if not point.disturbed]


def _frame(series: Series, *, disturbed: bool) -> pd.DataFrame:
    """Return the judged measurements, or the disturbed ones, with their places on the chart."""
    rows = [
        {
            "x": x,
            "name": series.framework,
            "throughput": point.throughput,
            "throughput_low": point.interval and point.interval[0],
            "throughput_high": point.interval and point.interval[1],
            "repeat_throughputs": point.repeat_throughputs,
        }
        for x, point in enumerate(series.points)
        if point.disturbed == disturbed
    ]
    return pd.DataFrame(rows, columns=["x", "throughput"] if not rows else None)


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


def _draw_levels(
    axes: Axes, series: Series, judged: pd.DataFrame, places: Sequence[int]
) -> None:
    """Draw a line at each level's median, and name each change's ratio beside the first point
    of the new level."""
    colour, throughputs = COLOURS[series.framework], judged["throughput"]
    for first, last in series.levels:
        level = throughputs[first : last + 1].median()
        ends = places[first] - 0.4, places[last] + 0.4
        axes.hlines(level, *ends, color=colour, linewidth=1.5, alpha=0.6)
    from_zero(axes, axes.dataLim.y1)
    tops = judged["throughput_high"].astype(float).fillna(throughputs)
    for change in series.changes:
        beside = (places[change.start], tops[change.start])
        axes.annotate(
            f"× {number(change.ratio, 3)}",
            beside,
            (3, 5),
            textcoords="offset points",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
        )
