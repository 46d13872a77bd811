"""The summary's section on which framework is fastest."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from markupsafe import Markup, escape

from perfkit.analysis.comparison import blocks
from perfkit.analysis.comparison.rankings import Ranking, rankings
from perfkit.analysis.comparison.table_rows import Cell, TableRow, table_rows
from perfkit.analysis.wording import work_title
from perfkit.measuring.format import interval, number, percent, plus_minus
from perfkit.measuring.statistics import Estimate
from perfkit.measuring.units import GIB
from perfkit.report.elements import (
    NumberHeading,
    Text,
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
from perfkit.report.section import Section
from perfkit.report.summary import LIVE_COMPARISON, Summary
from perfkit.report.text.language import gettext as _
from perfkit.report.text.language import ngettext, translations
from perfkit.report.text.names import verdict_name

MOST_ROWS = 200
"""Rows of the tables, at most."""
FEWEST_JOINED = 2
"""Blocks of a single row from which they share a table."""
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
        marked = joined([warnings_mark(self.codes), self.number])
        return Markup().join([marked, *self.lines])


@dataclass(frozen=True)
class FrameworkTable:
    """A table with a row per kind of work and a column per framework. A row begins with cells
    that name its work, and one on what it was measured with, if the caption doesn't tell."""

    caption: Markup
    frameworks: Sequence[str]
    rows: Sequence[Sequence[Any]]

    @property
    def cells(self) -> list[NumberCell]:
        return [cell for row in self.rows for cell in row if isinstance(cell, NumberCell)]

    @property
    def section(self) -> Section:
        headings = [_("Model"), _("Precision"), _("Batch"), _("Topology"), _("Input")]
        headings += [_("Unit"), _("Measured with"), *map(NumberHeading, self.frameworks)]
        return table(self.rows, headings, self.caption, as_cards=True)


@dataclass(frozen=True)
class TableBlock:
    """A block of measurements and its rows."""

    block: blocks.Block
    rows: Sequence[TableRow]

    @property
    def facts(self) -> list[str]:
        """Hardware, versions, protocol, and other facts of the block."""
        return [*self.block.parts, *self.block.other_facts]


def fastest(summary: Summary) -> Section:
    """The fastest framework of each row covered by an interleaved comparison; then a table per
    hardware, protocol and set of versions: throughputs with intervals and ratios to Paddle."""
    cells = summary.cells
    if cells.empty:
        return hint(_("There are no measurements yet. To measure:"), "perfkit run resnet50")
    by_row = rankings(cells, [comparison for _name, comparison in summary.newest])
    rows = table_rows(cells, translations())
    section = _answers(answers(rows, by_row))
    first_numbers = [row.number for row in rows[:MOST_ROWS]]
    tables = _tables(summary, cells[cells["row"].isin(first_numbers)], by_row)
    for framework_table in tables:
        section += framework_table.section
    section += note(*_legend(rows, by_row, tables))
    section += more(len(rows) - MOST_ROWS)
    return section.on_page_in(summary.folder)


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
            title = blocks.title(_title_values(row), keys, " ", translations())
            by_title.setdefault(title, by_row[row.number])
    return by_title


def _differ(rows: Iterable[TableRow], key: str) -> bool:
    values = {_title_values(row)[key] for row in rows}
    return len(values) > 1


def _title_values(row: TableRow) -> dict[str, Any]:
    return row.work._asdict() | {"device": row.device}


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
    ends = interval(ratio.low, ratio.high, 3)
    return f"{number(ratio.value, 3)} × {base} ({ends})"


def _tables(
    summary: Summary, cells: pd.DataFrame, by_row: Mapping[int, Ranking]
) -> list[FrameworkTable]:
    """Return a table per block of measurements; blocks of a single row share one."""
    every = []
    for block in blocks.captioned(cells, translations()):
        rows = table_rows(block.measurements, translations())
        every.append(TableBlock(block, rows))
    single = [block for block in every if len(block.rows) == 1]
    if len(single) < FEWEST_JOINED:
        return [_block_table(summary, block, by_row) for block in every]
    several = [block for block in every if len(block.rows) > 1]
    tables = [_block_table(summary, block, by_row) for block in several]
    return [*tables, _joined_table(summary, single, by_row)]


def _block_table(
    summary: Summary, block: TableBlock, by_row: Mapping[int, Ranking]
) -> FrameworkTable:
    """Return the table of a block."""
    caption = strong(block.block.caption)
    if block.block.facts:
        caption += Markup("<br><small>%s</small>") % block.block.facts
    frameworks = _frameworks(block.rows)
    rows = []
    for row in block.rows:
        numbers = _number_cells(summary, row, frameworks, by_row)
        rows.append([*_work_cells(row), "", *numbers])
    return FrameworkTable(caption, frameworks, rows)


def _joined_table(
    summary: Summary, single: Sequence[TableBlock], by_row: Mapping[int, Ranking]
) -> FrameworkTable:
    """Return a table with a row for each of these blocks, which have one each. A row tells in
    what its block differs, the caption in what all agree."""
    first, *others = (block.facts for block in single)
    shared = [fact for fact in first if all(fact in facts for facts in others)]
    caption = strong(_("A row for each machine, set of versions and protocol"))
    if shared:
        caption += Markup("<br><small>%s</small>") % " · ".join(shared)
    frameworks = _frameworks([block.rows[0] for block in single])
    rows = []
    for block in single:
        (row,) = block.rows
        own = [fact for fact in block.facts if fact not in shared]
        numbers = _number_cells(summary, row, frameworks, by_row)
        rows.append([*_work_cells(row), " · ".join(own), *numbers])
    return FrameworkTable(caption, frameworks, rows)


def _frameworks(rows: Iterable[TableRow]) -> list[str]:
    """Return the names of the rows' frameworks in the order of columns."""
    measured = {name for row in rows for name in row.cells}
    return [name for name in blocks.NAMES if name in measured]


def _number_cells(
    summary: Summary,
    row: TableRow,
    frameworks: Iterable[str],
    by_row: Mapping[int, Ranking],
) -> list[NumberCell | None]:
    ranking = by_row.get(row.number)
    return [_number_cell(summary, row, name, ranking) for name in frameworks]


def _work_cells(row: TableRow) -> list[Any]:
    """Return the cells that name a row's work, and the unit of its numbers."""
    work = row.work
    model = work_title(work.model, work.model_size)
    way = joined([work.input, work.setup], " · ")
    return [model, work.used, work.batch_size, work.topology, way, row.unit]


def _number_cell(
    summary: Summary, row: TableRow, framework: str, ranking: Ranking | None
) -> NumberCell | None:
    """Return a framework's cell in a row; None if it has no measurement there."""
    cell = row.cells.get(framework)
    if cell is None:
        return None
    value: Text = number(cell.throughput)
    if cell.failure and not cell.n:
        value = _("failed: %(failure)s") % {"failure": cell.failure}
    if ranking and ranking.leader == framework:
        value = strong(value)
    lines: list[Line] = []
    separate_ratio = None
    if ranking and framework in ranking.ratios:
        lines.append(_ranked_ratio(ranking.ratios[framework], ranking.base))
    elif ranking is None or ranking.base != framework:
        separate_ratio = _separate_ratio(cell, row.cells.get("Paddle"))
    if separate_ratio is not None:
        lines.append(Line(_("Ratio"), f"≈ {number(separate_ratio, 3)} × Paddle"))
    lines += _start_lines(cell)
    lines += [Line(_("Note"), text) for text in _remarks(cell)]
    codes = page_warnings(summary.outputs / cell.folder) or []
    page = link(summary.site.address(cell.folder), value)
    return NumberCell(joined([page, _plus_minus(cell)]), codes, lines, bool(separate_ratio))


def _plus_minus(cell: Cell) -> Markup:
    """Return the width of a number's interval, which is a column of its own in a CSV."""
    width = plus_minus(cell.throughput or 0.0, cell.low, cell.high)
    return Markup('<small data-column="±">%s</small>') % width if width else Markup()


def _start_lines(cell: Cell) -> Iterator[Line]:
    """Yield the peak memory of a device and the time to the first step."""
    if cell.peak_memory_bytes:
        yield Line(_("Peak memory"), f"{number(cell.peak_memory_bytes / GIB, 3)} GiB")
    if cell.first_step_seconds:
        seconds = {"seconds": number(cell.first_step_seconds, 3)}
        yield Line(_("To first step"), _("first step after %(seconds)s s") % seconds)


def _ranked_ratio(ratio: Estimate, base: str) -> Line:
    """Return the ratio within an interleaved comparison, with its interval on a line."""
    text = escape(_times(ratio, base))
    return Line(_("Ratio"), text.replace(" (", Markup(" <br>(")))


def _separate_ratio(cell: Cell, paddle: Cell | None) -> float | None:
    """Return the ratio of separate runs to Paddle; None for Paddle itself, or if one of the two
    has no throughput."""
    if paddle is None or cell.framework == paddle.framework:
        return None
    if not cell.throughput or not paddle.throughput:
        return None
    return cell.throughput / paddle.throughput


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
    if cell.count > 1:
        remarks.append(_("1 of %(count)d measurements") % {"count": cell.count})
    if cell.execution == "static":
        remarks.append("static")
    return remarks


def _legend(
    rows: Iterable[TableRow],
    by_row: Mapping[int, Ranking],
    tables: Sequence[FrameworkTable],
) -> list[str]:
    """Return what the numbers and marks of the tables mean."""
    texts = [_("Median of the repeats.")]
    levels = []
    for row in rows:
        for cell in row.cells.values():
            if cell.interval_level is not None:
                levels.append(cell.interval_level)
    if levels:
        words = _(
            "Median of the repeats ± half the width of its interval, whose level is %(min)s to "
            "%(max)s."
        )
        ends = {"min": percent(min(levels), 4), "max": percent(max(levels), 4)}
        texts = [words % ends]
    if by_row:
        texts.append(_("×: ratio within an interleaved comparison, with its interval."))
    if any(ranking.leader for ranking in by_row.values()):
        texts.append(_("Bold: faster than all others in an interleaved comparison."))
    number_cells = [cell for framework_table in tables for cell in framework_table.cells]
    if any(number_cell.codes for number_cell in number_cells):
        texts.append(
            _("◆ ▲ ■: notice, caution or error; the measurement's page has its warnings.")
        )
    if any(number_cell.is_separate for number_cell in number_cells):
        texts.append(_("≈: ratio of the medians of separate runs."))
    return texts
