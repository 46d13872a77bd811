"""The summary's section on which framework is fastest."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

import pandas as pd
from markupsafe import Markup, escape

from perfkit.analysis.comparison import blocks
from perfkit.analysis.comparison.rankings import Ranking, rankings
from perfkit.analysis.warning_types import severity
from perfkit.core.format import interval, number, percent
from perfkit.core.models import model_named
from perfkit.core.results.frames import records
from perfkit.core.statistics import Estimate
from perfkit.report.elements import (
    Text,
    bullets,
    hint,
    joined,
    link,
    more,
    note,
    paragraph,
    severity_mark,
    strong,
    table,
)
from perfkit.report.rendering import page_warnings
from perfkit.report.section import Section
from perfkit.report.summary import LIVE_COMPARISON, Summary
from perfkit.report.text import names
from perfkit.report.text.language import gettext as _
from perfkit.report.text.language import translations

MOST_ROWS = 200
"""Rows of the tables, at most."""
MOST_ANSWERS = 5
"""Rows whose fastest framework is stated above the tables, at most."""


@dataclass(frozen=True)
class Line:
    """A line below a cell's number, which is a column of its own in a CSV."""

    column: str
    text: Text

    def __html__(self) -> str:
        layout = Markup(' <br><small data-column="%s">%s</small>')
        return layout % (self.column, self.text)


@dataclass(frozen=True)
class NumberCell:
    """A framework's measurement in a row: its number, the codes of its warnings, and lines
    below the number. `is_separate`: its ratio to Paddle is that of separate runs."""

    number: Text
    codes: Sequence[str]
    lines: Sequence[Line]
    is_separate: bool

    def __html__(self) -> str:
        texts: list[Any] = []
        if self.codes:
            mark = Markup('<span data-column="%s" title="%s">%s</span> ')
            title = ", ".join(self.codes)
            texts.append(mark % (_("Warnings"), title, severity_mark(severity(self.codes))))
        return Markup().join([*texts, self.number, *self.lines])


@dataclass(frozen=True)
class FrameworkTable:
    """A table with a row per kind of work and a column per framework. A row begins with cells
    that name its work."""

    caption: Markup
    frameworks: Sequence[str]
    rows: Sequence[Sequence[Any]]

    @property
    def cells(self) -> list[NumberCell]:
        return [cell for row in self.rows for cell in row if isinstance(cell, NumberCell)]

    @property
    def section(self) -> Section:
        headings = [_("Model"), _("Precision"), _("Batch"), _("Topology"), _("Input")]
        return table(self.rows, [*headings, _("Unit"), *self.frameworks], self.caption)


def fastest(summary: Summary) -> Section:
    """The fastest framework of each row covered by an interleaved comparison; then a table per
    hardware, protocol and set of versions: throughputs with intervals and ratios to Paddle."""
    cells = summary.cells
    if cells.empty:
        return hint(_("There are no measurements yet. To measure:"), "perfkit run resnet50")
    by_row = rankings(cells, [comparison for _name, comparison in summary.newest])
    section = _answers(answers(cells, by_row))
    first_rows = cells["row"].unique()[:MOST_ROWS]
    tables = _tables(summary, cells[cells["row"].isin(first_rows)], by_row)
    for framework_table in tables:
        section += framework_table.section
    section += note(*_legend(cells, by_row, tables))
    section += more(cells["row"].nunique() - len(first_rows))
    return section.on_page_in(summary.folder)


def answers(cells: pd.DataFrame, by_row: Mapping[int, Ranking]) -> dict[str, Ranking]:
    """Return rankings by row title, which has topology, input, setup and device only where
    rows differ in nothing else. Of rankings with the same title, the first block's is kept."""
    frame = cells[cells["row"].isin(by_row)].drop_duplicates("row")
    frame = frame.assign(on=[names.device_name(row) for row in records(frame)])
    always, if_needed = blocks.ROW[1:4], [*blocks.ROW[4:], "on"]
    alike = frame.groupby(always)
    differing = [key for key in if_needed if alike[key].nunique().max() > 1]
    by_title: dict[str, Ranking] = {}
    for row in records(frame.sort_values(always, kind="stable")):
        title = blocks.title(row, [*always, *differing], " ", translations())
        by_title.setdefault(title, by_row[row["row"]])
    return by_title


def _answers(by_title: Mapping[str, Ranking]) -> Section:
    if not by_title:
        words = _("No interleaved comparison shows which framework is fastest. To run one:")
        return hint(words, LIVE_COMPARISON)
    sentences = [strong(answer(title, ranking)) for title, ranking in by_title.items()]
    section = paragraph(strong(_("Fastest:"))) + bullets(sentences[:MOST_ANSWERS])
    return section + more(len(sentences) - MOST_ANSWERS, _("in the tables below"))


def answer(title: str, ranking: Ranking) -> str:
    """Return a sentence on which framework is fastest in the row with this title."""
    base, (name, ratio) = ranking.base, next(iter(ranking.ratios.items()))
    facts = {"title": title, "base": base, "name": name, "ratio": _times(ratio, base)}
    if ranking.leader == base:
        return _("%(title)s: %(base)s, %(name)s is %(ratio)s") % facts
    if ranking.leader:
        return _("%(title)s: %(name)s, %(ratio)s") % facts
    if len(ranking.fastest) == 1 or base in ranking.fastest:
        return _("%(title)s: undecided, %(name)s is %(ratio)s") % facts
    undecided = f" {_('or')} ".join(ranking.fastest)
    words = _("%(title)s: %(undecided)s (undecided between them)")
    sentence = words % {"title": title, "undecided": undecided}
    if ranking.slower:
        sentence += _(", faster than %(slower)s") % {"slower": ", ".join(ranking.slower)}
    return sentence


def _times(ratio: Estimate, base: str) -> str:
    """Return a ratio to a base with its interval: "1.30 × Paddle (1.29 – 1.31)"."""
    ends = interval(ratio.low, ratio.high, 3)
    return f"{number(ratio.value, 3)} × {base} ({ends})"


def _tables(
    summary: Summary, cells: pd.DataFrame, by_row: Mapping[int, Ranking]
) -> list[FrameworkTable]:
    """Return a table per block of measurements."""
    tables = []
    for caption, facts, block in blocks.captioned(cells, translations()):
        text = strong(caption)
        if facts:
            text += Markup("<br><small>%s</small>") % facts
        frameworks = [name for name in blocks.NAMES if name in {*block["name"]}]
        rows = []
        for row_number, measurements in groupby(records(block), itemgetter("row")):
            by_name = {row["name"]: row for row in measurements}
            ranking = by_row.get(row_number)
            row_cells = [_cell(summary, by_name, name, ranking) for name in frameworks]
            rows.append([*_work(next(iter(by_name.values()))), *row_cells])
        tables.append(FrameworkTable(text, frameworks, rows))
    return tables


def _work(row: Mapping[str, Any]) -> list[Any]:
    """Return the cells that name a row's work, and the unit of its numbers."""
    model = model_named(row["model"]).short_name
    way = joined([row["input"], row["setup"]], " · ")
    return [model, row["used"], row["batch_size"], row["topology"], way, row["unit"]]


def _cell(
    summary: Summary, by_name: Mapping[str, Any], name: str, ranking: Ranking | None
) -> NumberCell | None:
    """Return a framework's cell in a row with measurements by framework; None without one."""
    row = by_name.get(name)
    if row is None:
        return None
    value: Text = number(row["throughput"])
    if row["failure"] and not row["n"]:
        value = _("failed: %(failure)s") % {"failure": row["failure"]}
    if ranking and ranking.leader == name:
        value = strong(value)
    lines = _interval_lines(row)
    is_separate = False
    if ranking and name in ranking.ratios:
        lines.append(_ranked_ratio(ranking.ratios[name], ranking.base))
    elif _has_separate_ratio(row, by_name.get("Paddle"), ranking):
        is_separate = True
        ratio = row["throughput"] / by_name["Paddle"]["throughput"]
        lines.append(Line(_("Ratio"), f"≈ {number(ratio, 3)} × Paddle"))
    lines += [Line(_("Note"), text) for text in _remarks(row)]
    codes = page_warnings(summary.outputs / row["folder"] / "report.html") or []
    page = summary.site.address(row["folder"])
    return NumberCell(link(page, value), codes, lines, is_separate)


def _interval_lines(row: Mapping[str, Any]) -> list[Line]:
    if not row["n"]:
        return []
    if row["n"] == 1:
        return [Line(_("Interval"), _("no interval (n=1)"))]
    ends = interval(row["throughput_low"], row["throughput_high"])
    return [Line(_("Interval"), f"{ends} (n={row['n']})")]


def _ranked_ratio(ratio: Estimate, base: str) -> Line:
    """Return the ratio within an interleaved comparison, with its interval on a line."""
    text = escape(_times(ratio, base))
    return Line(_("Ratio"), text.replace(" (", Markup(" <br>(")))


def _has_separate_ratio(
    row: Mapping[str, Any], paddle: Mapping[str, Any] | None, ranking: Ranking | None
) -> bool:
    """Whether the ratio of separate runs to Paddle is shown."""
    is_base = row["name"] == "Paddle" or (ranking is not None and ranking.base == row["name"])
    return bool(row["n"] and paddle and paddle["n"]) and not is_base


def _remarks(row: Mapping[str, Any]) -> list[str]:
    """Return what is unusual about a measurement."""
    remarks = []
    if row["status"] == "partial":
        counts = {"state": _("partial"), "n": row["n"] or 0, "repeats": row["repeats"]}
        state = _("%(state)s: %(n)s of %(repeats)s repeats") % counts
        remarks.append(f"{state}, {row['failure']}" if row["failure"] else state)
    if row["count"] > 1:
        remarks.append(_("1 of %(count)d measurements") % {"count": row["count"]})
    if row["execution"] == "static":
        remarks.append("static")
    return remarks


def _legend(
    cells: pd.DataFrame, by_row: Mapping[int, Ranking], tables: Sequence[FrameworkTable]
) -> list[str]:
    """Return what the numbers and marks of the tables mean."""
    texts = [_("Median of n repeats.")]
    levels = [*cells["interval_level"].quantile([0, 1]).dropna()]
    if levels:
        words = _("Median of n repeats, with its interval below (%(min)s to %(max)s).")
        least, greatest = (percent(level, 4) for level in levels)
        texts = [words % {"min": least, "max": greatest}]
    if by_row:
        texts.append(_("×: ratio within an interleaved comparison, with its interval."))
    if any(ranking.leader for ranking in by_row.values()):
        texts.append(_("Bold: faster than all others in an interleaved comparison."))
    shown = [cell for framework_table in tables for cell in framework_table.cells]
    if any(cell.codes for cell in shown):
        texts.append(_("▲ ■: caution or error; the measurement's page has its warnings."))
    if any(cell.is_separate for cell in shown):
        texts.append(_("≈: ratio of the medians of separate runs."))
    return texts
