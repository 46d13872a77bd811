"""Sections of the fleet's page."""

from collections.abc import Sequence
from functools import partial
from string import ascii_uppercase
from typing import Any

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from perfkit.analysis.fleet.stored import (
    Difference,
    Fleet,
    FleetColumn,
    FleetNode,
    NodeCell,
    NodeVerdict,
    Quantity,
    Verdict,
)
from perfkit.measuring.format import number, percent, plain
from perfkit.measuring.statements import N_
from perfkit.report.blocks import NumberHeading
from perfkit.report.elements import (
    SEVERITY_MARKS,
    grey,
    joined,
    link,
    more,
    paragraph,
    severity_mark,
    strong,
    table,
)
from perfkit.report.links import Site
from perfkit.report.rendering import page_warnings, warnings_mark
from perfkit.report.section import Section, folded, picture
from perfkit.report.style import INK, NARROW, new_figure
from perfkit.report.summarized import Summary
from perfkit.report.text.language import enumerated
from perfkit.report.text.language import gettext as _
from perfkit.report.text.names import configuration_name
from perfkit.report.text.wording import fact_name

MOST_NAMES = 8
"""Slow nodes named in the first sentence, at most; a table has all."""
QUANTITIES: dict[Quantity, str] = {
    "throughput": N_("training"),
    "matmul": N_("matrix product"),
    "copy": N_("copy"),
}
"""What a column compares -> its short name."""
MOST_ROWS = 600
"""Nodes in a table, at most."""
VERDICTS: dict[NodeVerdict, str] = {
    "slow": N_("slow"),
    "no measurement": N_("no measurement"),
    "undecided": N_("can't tell"),
    "ok": N_("ok"),
}
READINGS = {
    "clock_mhz": N_("lowest clock, MHz"),
    "celsius": N_("highest temperature, °C"),
    "throttled": N_("clocks lowered"),
}
"""What a node may differ in, besides facts of the environment."""
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


def page(summary: Summary) -> Section:
    """The slow nodes with what distinguishes them, a chart of all nodes, and their table."""
    section = fleet_section(summary.fleet, summary.site)
    return section.on_page_in(summary.outputs / "fleet")


def fleet_section(found: Fleet, site: Site, most: int = MOST_ROWS) -> Section:
    """Return the same with `most` nodes in the table."""
    section = paragraph(strong(_headline(found))) + _slow_nodes(found) + _missing(found)
    if found.columns:
        name = _("Ratio of each node to the others")
        narrow = partial(ratio_chart, found, NARROW)
        section += picture(partial(ratio_chart, found), name, narrow)
        section += _nodes(found, site, most) + _columns(found)
    few = [[plain(configuration_name(workload))] for workload in found.too_few]
    return section + table(few, [_("Completed on fewer than three nodes")]) + _method(found)


def _headline(found: Fleet) -> str:
    if not found.columns:
        return _("No workload was completed on at least three nodes.")
    facts = {"slow": found.counts["slow"], "count": len(found.nodes)}
    slow = [plain(name) for name in found.named("slow")]
    sentences = [_("Slow nodes: %(slow)s of %(count)s.") % facts]
    if slow:
        listed = enumerated([*slow[:MOST_NAMES], *(["…"] if slow[MOST_NAMES:] else [])])
        words = _("Slow nodes: %(slow)s of %(count)s (%(names)s).")
        sentences = [words % (facts | {"names": listed})]
    if found.counts["undecided"]:
        sentences.append(_("Can't tell: %(count)s.") % {"count": found.counts["undecided"]})
    if found.counts["no measurement"]:
        facts = {"count": found.counts["no measurement"]}
        sentences.append(_("No measurement: %(count)s.") % facts)
    return " ".join(sentences)


def _slow_nodes(found: Fleet) -> Section:
    rows = []
    for node in found.nodes:
        if node.verdict == "slow":
            name = joined([severity_mark("error"), strong(plain(node.node))])
            texts = [plain(_difference(each)) for each in node.differences]
            differences = "; ".join(texts) or _("nothing that is stored")
            rows.append([name, _slow_ratios(found, node), differences])
    headings = [_("Node"), _("Ratio"), _("Differs from other nodes in")]
    return table(rows, headings, as_cards=True)


def _slow_ratios(found: Fleet, node: FleetNode) -> str:
    """Return the ratios by which a node is slow, with the letters of their columns."""
    ratios = []
    for index, column in enumerate(found.columns):
        for cell in column.cells:
            if cell.node == node.node and cell.verdict == "slow":
                ratios.append(f"{_short_name(index, column)} {number(cell.ratio, 3)}")
    return ", ".join(ratios)


def _difference(difference: Difference) -> str:
    """Return in what a node differs."""
    reading = READINGS.get(difference.fact)
    facts = {
        "fact": _(reading) if reading else fact_name(difference.fact),
        "value": difference.value,
        "others": difference.others,
    }
    return _("%(fact)s: %(value)s (other nodes: %(others)s)") % facts


def _missing(found: Fleet) -> Section:
    rows = []
    for node in found.nodes:
        texts = []
        for missing in node.missing:
            failure = f" ({missing.failure})" if missing.failure else ""
            texts.append(plain(f"{configuration_name(missing.workload)}{failure}"))
        if texts:
            rows.append([strong(plain(node.node)), "; ".join(texts)])
    return table(rows[:MOST_ROWS], [_("Node"), _("No measurement")], as_cards=True)


def _nodes(found: Fleet, site: Site, most: int) -> Section:
    """Return a table of the nodes, the worst first, with their ratios."""
    rows = [_node_row(node, found.columns, site) for node in found.nodes[:most]]
    names = [_short_name(index, column) for index, column in enumerate(found.columns)]
    headings = ["", _("Node"), _("Verdict"), *map(NumberHeading, names)]
    nodes = table(rows, headings, as_cards=True)
    return nodes + more(len(found.nodes) - most, _("on the page, or in the index"))


def _node_row(node: FleetNode, columns: Sequence[FleetColumn], site: Site) -> list[object]:
    row: list[object] = [severity_mark(SEVERITIES[node.verdict]), plain(node.node)]
    row.append(_(VERDICTS[node.verdict]))
    for column in columns:
        cells = [cell for cell in column.cells if cell.node == node.node]
        row.append(_cell(cells[0], site) if cells else None)
    return row


def _cell(cell: NodeCell, site: Site) -> Markup:
    """Return the ratio of a node: with a mark if it is slow, grey if that can't be told."""
    ratio = link(site.address(cell.folder), number(cell.ratio, 3))
    warnings = warnings_mark(page_warnings(site.outputs / cell.folder) or [])
    if cell.verdict == "undecided":
        ratio = joined([severity_mark("undecided"), grey(ratio)])
    slow = severity_mark("error") if cell.verdict == "slow" else ""
    return joined([slow, ratio, warnings])


def _columns(found: Fleet) -> Section:
    rows = []
    for index, column in enumerate(found.columns):
        row = [
            strong(_letter(index)),
            plain(_column_name(column)),
            f"{number(column.median)} {column.unit}",
            len(column.cells),
            percent(column.noise, 2),
            number(column.limit, 3),
        ]
        rows.append(row)
    headings = ["", _("Workload or peak"), _("Median"), _("Nodes")]
    headings += [_("Noise of repeats"), _("Good nodes above")]
    return table(rows, headings, as_cards=True)


def _column_name(column: FleetColumn) -> str:
    """Return the workload, or the peak with what it was measured in."""
    if column.quantity == "throughput":
        return configuration_name(column.workload)
    traits = [column.workload.values[key] for key in ("name", "used", "topology")]
    return " · ".join([_(QUANTITIES[column.quantity]), *(str(each or "") for each in traits)])


def _letter(index: int) -> str:
    """Return the short name of a column: A to Z, then 27, 28 …"""
    return ascii_uppercase[index] if index < len(ascii_uppercase) else str(index + 1)


def _short_name(index: int, column: FleetColumn) -> str:
    """Return the letter of a column, and what it compares: "B matrix product"."""
    return f"{_letter(index)} {_(QUANTITIES[column.quantity])}"


def _method(found: Fleet) -> Section:
    words = _(
        "A ratio is a node's mean / the median of the other nodes' means. A node is slow if "
        "its interval lies below %(limit)s and good nodes are not expected to be as far below "
        "the others; it is ok if its interval lies above %(limit)s. With a probability of "
        "%(level)s, no good node is called slow."
    )
    facts = {"level": percent(found.level), "limit": number(1 - found.threshold, 2)}
    return folded(_("Method"), paragraph(words % facts)) if found.columns else Section()


def ratio_chart(found: Fleet, width: float = 8) -> Figure:
    """Return a chart with a row for each column and a dot for each node, at its ratio to the
    others; the lowest slow node of a row is named."""
    with new_figure(width, 0.8 + 0.45 * len(found.columns)) as (figure, (axes,)):
        for y, column in enumerate(found.columns):
            _draw_column(axes, y, column)
        axes.axvline(1, color=INK, linewidth=1)
        axes.axvline(1 - found.threshold, color=INK, linewidth=1, linestyle=":")
        names = [_short_name(index, column) for index, column in enumerate(found.columns)]
        axes.set_yticks(range(len(names)), names)
        axes.set(ylim=(len(names) - 0.4, -0.6), xlabel=_("ratio to the other nodes' median"))
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
