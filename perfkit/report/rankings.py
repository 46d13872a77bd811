"""The summary's section on which framework is fastest."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from markupsafe import Markup

from perfkit.analysis.comparison import blocks
from perfkit.analysis.comparison.rankings import Ranking, rankings
from perfkit.analysis.comparison.table_rows import Cell, TableRow, table_rows
from perfkit.measuring.format import number, percent, plain, plus_minus
from perfkit.measuring.statistics import Estimate
from perfkit.report.blocks import Inline, NumberHeading
from perfkit.report.elements import (
    bullets,
    hint,
    joined,
    link,
    more,
    note,
    paragraph,
    strong,
    table,
)
from perfkit.report.rendering import page_warnings, warnings_mark
from perfkit.report.section import Section, folded
from perfkit.report.summarized import Summary
from perfkit.report.text.language import gettext as _
from perfkit.report.text.language import ngettext
from perfkit.report.text.wording import (
    device_name,
    fact_words,
    hardware_words,
    protocol_words,
    row_title,
)
from perfkit.report.verdicts import digits_of, verdict_name

LIVE_COMPARISON = "perfkit compare --live resnet50 framework=paddle framework=torch"
"""The command of a comparison of two frameworks."""
MOST_ROWS = 200
"""Rows of the tables, at most."""
WORK_KEYS = ["used", "batch_size", "topology", "input", "setup"]
"""Fields of a row's work besides the model."""
MOST_ANSWERS = 5
"""Rows whose fastest framework is stated above the tables, at most."""


@dataclass(frozen=True)
class Line:
    """A line below a cell's number, which is a column of its own in a CSV."""

    column: str
    text: Inline

    def __html__(self) -> str:
        layout = Markup(' <br><small data-column="%s">%s</small>')
        return layout % (self.column, self.text)


@dataclass(frozen=True)
class FrameworkTable:
    """The rows of a table with a column per framework, and what is shown of them: in what rows
    differ stands in each, in what all agree above the table."""

    rows: Sequence[TableRow]
    own_facts: Mapping[int, Sequence[str]]
    """Number of a row's block -> machine and protocol, as far as blocks differ in them"""
    shared: str
    """in what all rows agree"""
    keys: Sequence[str]
    """fields of the work in which rows differ"""
    versions: Mapping[str, Sequence[str]]
    """framework's name -> its versions, the newest first"""

    @property
    def headings(self) -> list[Inline]:
        """Headings of the frameworks: "Paddle 3.3.1 / 2.6.2"."""
        headings: list[Inline] = []
        for name, versions in self.versions.items():
            short = " / ".join(version.partition("+")[0] for version in versions)
            headings.append(NumberHeading(f"{name} {short}".strip()))
        return headings

    def name(self, row: TableRow) -> Markup:
        """Return a row's work, and below it machine and protocol, as far as rows differ."""
        values = row.work._asdict()
        title = row_title(values, self.keys)
        facts = " · ".join(self.own_facts[row.block])
        line = Line(_("Measured with"), facts).__html__() if facts else ""
        return strong(title) + line


def fastest(summary: Summary) -> Section:
    """The fastest framework of each row covered by an interleaved comparison; then a table of
    all configurations by framework."""
    cells = summary.cells
    if cells.empty:
        return hint(_("There are no measurements yet. To measure:"), "perfkit run resnet50")
    by_row = rankings(cells, [comparison for _name, comparison in summary.newest])
    rows = table_rows(cells)
    section = _answers(answers(rows, by_row))
    several = [row for row in rows if len(row.cells) > 1]
    single = [row for row in rows if len(row.cells) == 1]
    for group, is_open in ((several, True), (single, not several)):
        if not group:
            continue
        shown = _table(group[:MOST_ROWS], cells)
        numbers = _numbers(summary, shown, by_row) + more(len(group) - MOST_ROWS)
        section += numbers if is_open else folded(_("Measured in one framework"), numbers)
    return section + note(*_legend(rows, by_row))


def _numbers(summary: Summary, shown: FrameworkTable, by_row: Mapping[int, Ranking]) -> Section:
    """Return the table with the number of each framework in each row."""
    rows = []
    for row in shown.rows:
        numbers = [
            _number_cell(summary, shown, by_row.get(row.number), row, framework)
            for framework in shown.versions
        ]
        rows.append([shown.name(row), *numbers])
    headings = [_("Configuration"), *shown.headings]
    return table(rows, headings, shown.shared, as_cards=True)


def _table(rows: Sequence[TableRow], cells: pd.DataFrame) -> FrameworkTable:
    """Return what is shown of these rows, whose measurements are among the cells."""
    shown = cells[cells["row"].isin([row.number for row in rows])]
    facts: dict[int, list[str]] = {}
    for block in blocks.blocks_of(shown):
        number = int(block.measurements["block"].iloc[0])
        facts[number] = [
            hardware_words(block),
            *fact_words(block),
            protocol_words(block.protocol),
        ]
    first, *others = facts.values()
    shared = [fact for fact in first if all(fact in of_block for of_block in others)]
    own = {}
    for number, of_block in facts.items():
        own[number] = [fact for fact in of_block if fact not in shared]
    differing = [key for key in WORK_KEYS if _differ(rows, key)]
    agreeing = [key for key in WORK_KEYS if key not in differing]
    if len(rows) == 1:
        # A single row tells its work itself.
        differing, agreeing = WORK_KEYS, []
    work = row_title(rows[0].work._asdict(), agreeing)
    return FrameworkTable(
        rows=rows,
        own_facts=own,
        shared=" · ".join(filter(None, [*shared, work])),
        keys=["model", "model_size", *differing],
        versions=_versions(rows),
    )


def _versions(rows: Iterable[TableRow]) -> dict[str, list[str]]:
    """Return the versions of each framework of the rows, the newest first."""
    of_names: dict[str, set[str]] = {}
    for row in rows:
        for name, cell in row.cells.items():
            of_names.setdefault(name, set()).add(cell.version)
    versions = {}
    for name in blocks.NAMES:
        if name in of_names:
            known = filter(None, of_names[name])
            versions[name] = sorted(known, key=_numbers_of, reverse=True)
    return versions


def _numbers_of(version: str) -> list[int]:
    return [*map(int, re.findall(r"\d+", version))]


def answers(rows: Iterable[TableRow], by_row: Mapping[int, Ranking]) -> dict[str, Ranking]:
    """Return rankings by row title, which has topology, input, setup and device only where
    rows differ in nothing else. Of rankings with the same title, the first block's is kept."""
    alike: dict[tuple[str, str, int], list[TableRow]] = {}
    for row in rows:
        if row.number in by_row:
            work = row.work
            alike.setdefault((work.model, work.used, work.batch_size), []).append(row)
    keys = ["model", "used", "batch_size"]
    for key in ("topology", "input", "setup", "device"):
        if any(_differ(group, key) for group in alike.values()):
            keys.append(key)
    by_title: dict[str, Ranking] = {}
    for _work, group in sorted(alike.items()):
        for row in group:
            title = row_title(_title_values(row), keys, " ")
            by_title.setdefault(title, by_row[row.number])
    return by_title


def _differ(rows: Iterable[TableRow], key: str) -> bool:
    values = {_title_values(row)[key] for row in rows}
    return len(values) > 1


def _title_values(row: TableRow) -> dict[str, Any]:
    return row.work._asdict() | {"device": device_name(row.measurement)}


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
        are_alike = {*ranking.fastest} == {base, name}
        judged = ranking.verdicts[name] if are_alike else "undecided"
        facts["verdict"] = verdict_name(judged, ranking.threshold)
        return _("%(title)s: %(verdict)s, %(name)s is %(ratio)s") % facts
    undecided = f" {_('or')} ".join(ranking.fastest)
    words = _("%(title)s: %(undecided)s (can't tell which of them)")
    sentence = words % {"title": title, "undecided": undecided}
    if ranking.slower:
        sentence += _(", faster than %(slower)s") % {"slower": ", ".join(ranking.slower)}
    return sentence


def _times(ratio: Estimate, base: str) -> str:
    """Return a ratio to a base with its interval: "1.30 × Paddle (1.29 – 1.31)"."""
    value, low, high = digits_of(ratio.value, ratio.low, ratio.high)
    return f"{value} × {base} ({low} – {high})"


def _number_cell(
    summary: Summary,
    shown: FrameworkTable,
    ranking: Ranking | None,
    row: TableRow,
    framework: str,
) -> Inline | None:
    """Return a framework's number in a row with its ratio below it; None without a
    measurement there."""
    cell = row.cells.get(framework)
    if cell is None:
        return None
    value: Inline = f"{number(cell.throughput)} {plain(row.unit)}"
    if cell.failure and not cell.n:
        value = _("failed: %(failure)s") % {"failure": cell.failure}
    if ranking and ranking.leader == framework:
        value = strong(value)
    codes = page_warnings(summary.outputs / cell.folder) or []
    page = link(summary.site.address(cell.folder), value)
    marked = joined([warnings_mark(codes), page, _plus_minus(cell)])
    lines = []
    if ranking and framework in ranking.ratios:
        words = _times(ranking.ratios[framework], ranking.base)
        lines.append(Line(_("Ratio"), words))
    newest, *_older = shown.versions[framework] or [""]
    if cell.version != newest:
        lines.append(Line(_("Version"), cell.version.partition("+")[0]))
    lines += [Line(_("Note"), text) for text in _remarks(cell)]
    return Markup().join([marked, *lines])


def _plus_minus(cell: Cell) -> Markup:
    """Return the width of a number's interval, which is a column of its own in a CSV."""
    width = plus_minus(cell.throughput or 0.0, cell.low, cell.high)
    return Markup('<small data-column="±">%s</small>') % width if width else Markup()


def _remarks(cell: Cell) -> list[str]:
    """Return what is unusual about a measurement."""
    remarks = []
    if cell.status == "partial":
        counts = {"state": _("partial"), "n": cell.n, "repeats": cell.repeats}
        words = ngettext(
            "%(state)s: %(n)s of %(repeats)s repeat",
            "%(state)s: %(n)s of %(repeats)s repeats",
            1 if cell.repeats == 1 else 2,
        )
        state = words % counts
        remarks.append(f"{state}, {cell.failure}" if cell.failure else state)
    if cell.passed_over:
        remarks.append(_("a newer one beside other load is left out"))
    return remarks


def _legend(rows: Iterable[TableRow], by_row: Mapping[int, Ranking]) -> list[str]:
    """Return what the numbers and marks of the table mean."""
    texts = [_("Median of the repeats.")]
    levels = []
    for row in rows:
        for cell in row.cells.values():
            if cell.interval_level is not None:
                levels.append(cell.interval_level)
    if levels:
        words = _(
            "Median of the repeats ± half the width of its interval, whose level is %(levels)s."
        )
        ends = dict.fromkeys(percent(level, 4) for level in (min(levels), max(levels)))
        texts = [words % {"levels": " – ".join(ends)}]
    if by_row:
        texts.append(_("×: ratio within an interleaved comparison, with its interval."))
    if any(ranking.leader for ranking in by_row.values()):
        texts.append(_("Bold: faster than all others in an interleaved comparison."))
    texts.append(_("◆ ▲ ■: notice, caution or error; the measurement's page has its warnings."))
    return texts
