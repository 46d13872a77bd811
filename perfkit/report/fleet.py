"""Sections of the fleet's page."""

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from perfkit.analysis.fleet.stored import (
    Fleet,
    FleetColumn,
    FleetNode,
    NodeCell,
    NodeVerdict,
    Verdict,
)
from perfkit.measuring.format import interval, number, percent, plain
from perfkit.report.elements import (
    SEVERITY_MARKS,
    joined,
    link,
    more,
    note,
    paragraph,
    severity_mark,
    strong,
    table,
)
from perfkit.report.fleet_text import (
    METHOD,
    VERDICTS,
    column_letter,
    difference_text,
    missing_text,
)
from perfkit.report.links import Site
from perfkit.report.rendering import page_warnings, warnings_mark
from perfkit.report.section import Section, picture
from perfkit.report.style import INK, new_figure
from perfkit.report.summary import Summary
from perfkit.report.text.language import gettext as _

MOST_ROWS = 600
"""Nodes in a table, at most."""
SEVERITIES: dict[NodeVerdict, str | None] = {
    "slow": "error",
    "no measurement": "caution",
    "undecided": "undecided",
    "ok": None,
}
"""Verdict -> severity of its mark."""
MARKERS: dict[Verdict, dict[str, Any]] = {
    "ok": {"marker": "o"},
    "undecided": {"marker": "o", "markerfacecolor": "none"},
    "slow": {"marker": "s"},
}
"""Verdict -> its mark in the chart."""


def fleet_overview(summary: Summary) -> Section:
    """The slow nodes with what distinguishes them, a chart of all nodes, and the columns."""
    fleet = summary.fleet
    section = paragraph(strong(_headline(fleet))) + _slow_nodes(fleet) + _missing(fleet)
    if fleet.columns:
        section += picture(lambda: ratio_chart(fleet), _("Ratio of each node to the others"))
        section += _columns(fleet) + _method(fleet)
    few = [[plain(name)] for name in fleet.too_few]
    section += table(few, [_("Completed on fewer than three nodes")])
    return section.on_page_in(summary.outputs / "fleet")


def _headline(fleet: Fleet) -> str:
    if not fleet.columns:
        return _("No workload was completed on at least three nodes.")
    facts = {"slow": fleet.counts["slow"], "count": len(fleet.nodes)}
    sentences = [_("Slow nodes: %(slow)s of %(count)s.") % facts]
    if fleet.counts["undecided"]:
        sentences.append(_("Can't tell: %(count)s.") % {"count": fleet.counts["undecided"]})
    if fleet.counts["no measurement"]:
        facts = {"count": fleet.counts["no measurement"]}
        sentences.append(_("No measurement: %(count)s.") % facts)
    return " ".join(sentences)


def _slow_nodes(fleet: Fleet) -> Section:
    rows = []
    for node in fleet.nodes:
        if node.verdict == "slow":
            name = joined([severity_mark("error"), strong(plain(node.node))])
            texts = [plain(difference_text(each)) for each in node.differences]
            differences = "; ".join(texts) or _("nothing that is stored")
            rows.append([name, _slow_ratios(fleet, node), differences])
    return table(rows, [_("Node"), _("Ratio"), _("Differs from good nodes in")])


def _slow_ratios(fleet: Fleet, node: FleetNode) -> str:
    """Return the ratios by which a node is slow, with the letters of their columns."""
    ratios = []
    for index, column in enumerate(fleet.columns):
        for cell in column.cells:
            if cell.node == node.node and cell.verdict == "slow":
                ratios.append(f"{column_letter(index)} {number(cell.ratio, 3)}")
    return ", ".join(ratios)


def _missing(fleet: Fleet) -> Section:
    rows = []
    for node in fleet.nodes:
        if node.missing:
            texts = [plain(missing_text(each)) for each in node.missing]
            rows.append([strong(plain(node.node)), "; ".join(texts)])
    return table(rows[:MOST_ROWS], [_("Node"), _("No measurement")])


def _columns(fleet: Fleet) -> Section:
    rows = []
    for index, column in enumerate(fleet.columns):
        row = [
            strong(column_letter(index)),
            plain(column.name),
            f"{number(column.median)} {column.unit}",
            len(column.cells),
            percent(column.noise, 2),
            number(column.limit, 3),
        ]
        rows.append(row)
    headings = ["", _("Workload or peak"), _("Median"), _("Nodes")]
    return table(rows, [*headings, _("Noise of repeats"), _("Good nodes above")])


def _method(fleet: Fleet) -> Section:
    facts = {"level": percent(fleet.level), "limit": number(1 - fleet.threshold, 2)}
    return note(_(METHOD) % facts)


def fleet_nodes(summary: Summary) -> Section:
    """A table of all nodes: the verdict, and the ratio in each column."""
    fleet, site = summary.fleet, summary.site
    rows = [_node_row(node, fleet.columns, site) for node in fleet.nodes[:MOST_ROWS]]
    letters = [column_letter(index) for index, _column in enumerate(fleet.columns)]
    section = table(rows, ["", _("Node"), _("Verdict"), *letters])
    section += more(len(fleet.nodes) - MOST_ROWS)
    return section.on_page_in(summary.outputs / "fleet")


def _node_row(node: FleetNode, columns: Sequence[FleetColumn], site: Site) -> list[object]:
    row: list[object] = [severity_mark(SEVERITIES[node.verdict]), plain(node.node)]
    row.append(_(VERDICTS[node.verdict]))
    for column in columns:
        cells = [cell for cell in column.cells if cell.node == node.node]
        row.append(_cell(cells[0], site) if cells else None)
    return row


def _cell(cell: NodeCell, site: Site) -> Markup:
    ratio = link(site.address(cell.folder), number(cell.ratio, 3))
    slow = severity_mark("error") if cell.verdict == "slow" else ""
    ends = Markup("<small>(%s)</small>") % interval(cell.low, cell.high, digits=3)
    warnings = warnings_mark(page_warnings(site.outputs / cell.folder) or [])
    return joined([slow, ratio, ends, warnings])


def ratio_chart(fleet: Fleet) -> Figure:
    """Return a chart with a row for each column and a dot for each node, at its ratio to the
    others; the lowest slow node of a row is named."""
    with new_figure(8, 0.8 + 0.45 * len(fleet.columns)) as (figure, (axes,)):
        for y, column in enumerate(fleet.columns):
            _draw_column(axes, y, column)
        axes.axvline(1, color=INK, linewidth=1)
        axes.axvline(1 - fleet.threshold, color=INK, linewidth=1, linestyle=":")
        letters = [column_letter(index) for index, _column in enumerate(fleet.columns)]
        axes.set_yticks(range(len(letters)), letters)
        axes.set(ylim=(len(letters) - 0.4, -0.6), xlabel=_("ratio to the other nodes' median"))
        axes.grid(visible=False, axis="y")
    return figure


def _draw_column(axes: Axes, y: int, column: FleetColumn) -> None:
    for verdict, look in MARKERS.items():
        _shape, colour = SEVERITY_MARKS[SEVERITIES[verdict]]
        ratios = [cell.ratio for cell in column.cells if cell.verdict == verdict]
        axes.plot(ratios, [y] * len(ratios), linestyle="", color=colour, alpha=0.6, **look)
    slow = [cell for cell in column.cells if cell.verdict == "slow"]
    if slow:
        lowest = min(slow, key=lambda cell: cell.ratio)
        axes.annotate(
            plain(lowest.node),
            (lowest.ratio, y),
            xytext=(0, 7),
            textcoords="offset points",
            ha="center",
            size=8,
        )
