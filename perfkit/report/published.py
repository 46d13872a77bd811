"""Sections of the page of published tables: tables in their sources' layout, and charts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import pandas as pd
from markupsafe import Markup, escape

from perfkit.analysis.published import published
from perfkit.analysis.published.cells import RUNS, PublishedCell, cells_of
from perfkit.analysis.published.layouts import LAYOUTS
from perfkit.analysis.published.matches import Match, match
from perfkit.measuring.format import number, percent, plus_minus
from perfkit.measuring.results.frames import records
from perfkit.report.blocks import Inline, NumberHeading
from perfkit.report.elements import heading, joined, link, note, paragraph, strong, table
from perfkit.report.links import Site
from perfkit.report.published_cells import CellLabels, difference_words, labels, stated
from perfkit.report.published_charts import CHARTS
from perfkit.report.section import Section, folded, picture
from perfkit.report.style import new_figure
from perfkit.report.summarized import Summary
from perfkit.report.text.language import enumerated, labelled
from perfkit.report.text.language import gettext as _

MOST_MATCHES = 3
"""Most measurements in a cell."""
LINE = Markup(" <br>")
SMALL = Markup('<small style="display: inline-block; max-width: 12em; white-space: normal">')


@dataclass(frozen=True)
class ShownCell:
    """A published cell with its place on the page and the measurements that match it."""

    cell: PublishedCell
    labels: CellLabels
    matches: list[Match] = field(default_factory=list)

    def row(self) -> dict[str, Any]:
        """Return the row of the charts' table."""
        return vars(self.cell) | self.labels._asdict() | {"matches": self.matches}


def page(summary: Summary) -> Section:
    """The tables of each source, with the summary's measurements in matching cells."""
    newest_first = summary.measurements.sort_values("created", ascending=False)
    cells = shown_cells(records(newest_first))
    section = _introduction()
    sources = [[*group] for _source, group in groupby(cells, lambda shown: shown.cell.source)]
    for of_source in sorted(sources, key=lambda group: not _are_measured(group)):
        section += _source(of_source, summary.site)
    return section.on_page_in(summary.folder)


def _are_measured(cells: Sequence[ShownCell]) -> bool:
    """Return whether a measurement matches one of these cells."""
    return any(shown.matches for shown in cells)


def shown_cells(measurements: Sequence[dict[str, Any]]) -> list[ShownCell]:
    """Return all published cells with the measurements that match them."""
    cells = cells_of(published())
    shown = [ShownCell(cell, labels(cell)) for cell in cells]
    by_cell = dict(zip(map(id, cells), shown, strict=True))
    for pair in match(cells, measurements):
        by_cell[id(pair.cell)].matches.append(pair)
    return shown


def _introduction() -> Section:
    return paragraph(
        _(
            "Cells have the published number and, below it, matching measurements with their "
            "ratios."
        ),
        _("Charts: published numbers, without intervals; dashed lines: ideal scaling;"),
        _(
            "small dots: single runs; hollow markers: measurements on that GPU, with interval "
            "and repeats."
        ),
    ) + note(
        _(
            "auto: Fleet chose the options of the strategy itself. –: the source prints a "
            "dash. Blank: the source has no number. Tables without a measurement are folded."
        )
    )


def _source(cells: list[ShownCell], site: Site) -> Section:
    """Return the tables of a source, those with measurements first, and the measurements that
    match their cells."""
    section = _source_heading(cells[0].cell.source, cells)
    frame = pd.DataFrame([shown.row() for shown in cells])
    runs = frame[frame["table"] == RUNS]
    parts: dict[tuple[str, str], list[ShownCell]] = {}
    for shown in cells:
        parts.setdefault((shown.cell.table, shown.labels.part), []).append(shown)
    for part_cells in sorted(parts.values(), key=lambda part: not _are_measured(part)):
        numbers, charts = _table(part_cells, site), _charts(part_cells, runs)
        if not _are_measured(part_cells):
            caption = _caption(part_cells)
            numbers = folded(caption, numbers)
            charts = folded(_("Chart: %(name)s") % {"name": caption}, charts)
        section += numbers + charts
    pairs = [pair for shown in cells for pair in shown.matches]
    if pairs:
        words = _("Measurements matching these numbers: %(count)d") % {"count": len(pairs)}
        section += folded(words, _matches_table(pairs, site))
    return section


def _source_heading(source: str, cells: list[ShownCell]) -> Section:
    """Return the source's name and address, and how many of its numbers were measured."""
    numbers = [shown for shown in cells if shown.cell.printed]
    not_measured = [shown for shown in numbers if not shown.matches]
    blank = [shown for shown in cells if shown.cell.status == "not_published"]
    counts = {"all": len(numbers), "not_run": len(not_measured), "blank": len(blank)}
    words = _(
        "Published numbers: %(all)d, of which not measured: %(not_run)d. Cells without a "
        "published number: %(blank)d."
    )
    address = cells[0].cell.url or LAYOUTS[cells[0].cell.table].url
    origin: Inline = link(address, _("Where it was published."))
    dates = sorted({shown.cell.date for shown in cells if shown.cell.date})
    if dates:
        days = " – ".join(dict.fromkeys([dates[0], dates[-1]]))
        origin = joined([origin, _("Date: %(days)s.") % {"days": days}])
    name = heading(source, source.replace(" ", "-"), level=2)
    return name + paragraph(origin, words % counts)


# Tables.


def _table(cells: list[ShownCell], site: Site) -> Section:
    """Return a part of a table in its source's layout, with the facts that the source
    states."""
    lines: dict[str, dict[str, Inline]] = {}
    columns: dict[str, None] = {}
    for shown in cells:
        texts = _texts(shown, site)
        lines.setdefault(shown.labels.row, {}).update(texts)
        columns |= dict.fromkeys(texts)
    rows = []
    for name, texts in lines.items():
        rows.append([name, *(texts.get(column) or " " for column in columns)])
    headings = [_(LAYOUTS[cells[0].cell.table].corner), *columns]
    return table(rows, headings, _caption(cells), as_cards=True) + _stated_facts(cells)


def _caption(cells: list[ShownCell]) -> str:
    """Return the name of a part of a table, with its unit."""
    first = cells[0]
    unit = _(first.cell.printed_unit)
    name = _("Single runs") if first.cell.table == RUNS else first.cell.title
    return enumerated([name, first.labels.part, unit])


def _stated_facts(cells: list[ShownCell]) -> Section:
    frame = pd.DataFrame([shown.row() for shown in cells])
    facts = [
        labelled("GPU", stated(frame, "gpu")),
        *_sequence_lengths(cells),
        labelled(_("input"), stated(frame, "input")),
        labelled(_("statistic"), stated(frame, "statistic")),
    ]
    name = cells[0].cell.table
    if name != RUNS:
        facts.append(_("for perfkit compare: %(name)s") % {"name": name})
    return note(" · ".join(facts))


def _sequence_lengths(cells: list[ShownCell]) -> Iterator[str]:
    """Yield the tokens of a sequence, if the source states them outside the table."""
    lengths = {shown.cell.sequence_length for shown in cells}
    if len(lengths) == 1 and None not in lengths:
        yield _("%(count)d tokens a sequence") % {"count": lengths.pop()}


def _texts(shown: ShownCell, site: Site) -> dict[str, Inline]:
    """Return the texts of a cell by the headings of its columns: the number and, if the source
    has it, speed-up and efficiency."""
    cell, column = shown.cell, shown.labels.column
    texts: dict[str, Inline] = {column: _number_text(shown, site)}
    if cell.scaling:
        texts[labelled(column, _("speed-up"))] = _speedup_text(cell, cell.scaling)
        texts[labelled(column, _("efficiency"))] = percent(cell.scaling / cell.gpus)
    return texts


def _number_text(shown: ShownCell, site: Site) -> Inline:
    """Return the published number, the source's remarks, and the newest measurements."""
    cell = shown.cell
    blank = "–" if cell.status == "dash" else ""
    text = escape(cell.printed or blank)
    if cell.url:
        text = escape(link(cell.url, text))
    if shown.labels.marks:
        text += _small(shown.labels.marks)
    for pair in shown.matches[:MOST_MATCHES]:
        text += LINE + _measured(pair, site)
    rest = len(shown.matches) - MOST_MATCHES
    if rest > 0:
        text += LINE + _("and %(count)d more") % {"count": rest}
    return text


def _speedup_text(cell: PublishedCell, scaling: float) -> Inline:
    """Return a speed-up, and the printed one if it differs."""
    text = escape(f"{scaling:.2f}")
    if cell.speedup and float(cell.speedup) != round(scaling, 2):
        text += _small(_("printed: %(printed)s") % {"printed": cell.speedup})
    return text


def _small(text: str) -> Markup:
    return Markup(" <br>%s%s</small>") % (SMALL, text)


def _measured(pair: Match, site: Site) -> Markup:
    """Return a measurement's number with a link to its page, and its ratio to the published
    number."""
    row = pair.row
    if pair.measured:
        ends = (row["throughput_low"], row["throughput_high"])
        text = f"{number(pair.measured)} {plus_minus(row['throughput'], *ends)}".rstrip()
    elif row["failure"]:
        text = _("failed: %(code)s") % {"code": row["failure"]}
    else:
        text = _("not finished")
    ratio = f"({number(pair.ratio, 3)}×)" if pair.ratio else ""
    return joined([link(site.address(row["folder"]), text), ratio])


def _matches_table(pairs: list[Match], site: Site) -> Section:
    """Return the measurements in published cells, with all differences."""
    headings = [
        *(_("Cell"), _("Published"), NumberHeading(_("Measured"))),
        *(_("Status"), _("Differences")),
    ]
    rows = []
    for pair in pairs:
        row = pair.row
        rows.append(
            [
                f"{pair.cell.table} · {labels(pair.cell).place}",
                pair.cell.printed or "",
                _measured(pair, site),
                _(row["status"]),
                difference_words(pair),
            ]
        )
    return table(rows, headings, as_cards=True)


# Charts.


def _charts(cells: list[ShownCell], runs: pd.DataFrame) -> Section:
    """Return charts and findings of a part of a table, with the source's single `runs`."""
    charts = CHARTS.get(LAYOUTS[cells[0].cell.table].chart, ())
    if not charts:
        return Section()
    points = pd.DataFrame([shown.row() for shown in cells if shown.cell.printed])
    height = 1.4 + 0.3 * len({shown.labels.row for shown in cells})
    findings = []
    with new_figure(3 + 3 * len(charts), height, len(charts)) as (figure, panels):
        for axes, draw in zip(panels, charts, strict=True):
            findings.append(draw(axes, points, runs))
    sentences = Markup("<br>").join(strong(finding) for finding in findings)
    return paragraph(sentences) + picture(figure, ". ".join(findings))
