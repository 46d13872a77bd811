"""Sections of the fleet's page."""

from collections.abc import Iterator, Sequence
from math import ceil

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle

from perfkit.analysis.fleet.stored import Fleet, FleetColumn, FleetNode, NodeCell, name_order
from perfkit.core.format import interval, number, percent, plain
from perfkit.report.elements import (
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
    ADVICE,
    DOUBTS,
    METHOD,
    VERDICTS,
    column_letter,
    lowest_cell,
    needed_repeats,
    past_text,
)
from perfkit.report.links import Site
from perfkit.report.section import Section, folded, picture
from perfkit.report.style import FAINT, INK, new_figure
from perfkit.report.summary import Summary
from perfkit.report.text.language import gettext as _
from perfkit.report.text.statements import sentence

MOST_ROWS = 600
"""Nodes in the table, at most."""
NODES_PER_LINE = 64
"""Nodes beside each other in the chart; further ones stand below."""
MOST_NAMED = 16
"""Nodes of a line whose names are all shown; of more, those that are slow."""
LEAST_RANGE, MOST_RANGE = 0.05, 0.1
"""Least and greatest distance from 1 at which the colours end: a very slow node must not make
the others look alike."""
WITHOUT = "0.85"
"""Grey of a node without a number in a column."""
NEAR = 4
"""Names of nodes this close to each other would overlap, if a line has NODES_PER_LINE."""
MARKS = {"slow": "error", "undecided": "undecided", "ok": None}
"""Verdict -> severity of its mark."""


def fleet_overview(summary: Summary) -> Section:
    """The slow nodes with what distinguishes them, a chart of all nodes, and the columns."""
    fleet = summary.fleet
    section = paragraph(strong(_headline(fleet)))
    section += _slow_nodes(fleet) + _gaps(fleet)
    if fleet.columns:
        section += picture(lambda: heat_map(fleet), _("Ratio of each node to the median"))
        section += _columns(fleet) + _advice(fleet) + _method(fleet)
    section += table([[reason] for reason in fleet.not_judged], [_("Not judged")])
    return section.on_page_in(summary.outputs / "fleet")


def _headline(fleet: Fleet) -> str:
    count, counts = len(fleet.nodes), fleet.counts
    if not fleet.columns:
        return _("No workload was measured on at least three nodes.")
    slow = counts["slow"]
    answer = _("Slow nodes: %(slow)s of %(count)s.") % {"slow": slow, "count": count}
    if counts["undecided"]:
        undecided = _("Can't tell for %(count)s.") % {"count": counts["undecided"]}
        answer = f"{answer} {undecided}"
    return answer


def _slow_nodes(fleet: Fleet) -> Section:
    """Return a table of the slow nodes with what distinguishes them."""
    rows = []
    for node in fleet.nodes:
        if node.verdict == "slow":
            name = joined([severity_mark("error"), strong(plain(node.node))])
            rows.append([name, number(node.lowest, 3), _differences(node, fleet.columns)])
    return table(rows, [_("Node"), _("Lowest ratio"), _("Differs from good nodes in")])


def _differences(node: FleetNode, columns: Sequence[FleetColumn]) -> str:
    """Return in what a slow node differs from good ones and from what it was earlier."""
    sentences = [plain(sentence(statement)) for statement in node.explanations]
    differences = sentences or [_("nothing that is stored")]
    earlier = past_text(lowest_cell(columns, node))
    if earlier:
        differences.append(_("earlier ratios: %(ratios)s") % {"ratios": earlier})
    return "; ".join(differences)


def _gaps(fleet: Fleet) -> Section:
    """Return a table of the nodes that lack a workload, with the reasons."""
    rows = []
    for node in fleet.nodes:
        if node.gaps:
            sentences = [plain(sentence(gap)) for gap in node.gaps]
            rows.append([strong(plain(node.node)), "; ".join(sentences)])
    return table(rows[:MOST_ROWS], [_("Node"), _("No number that counts")])


def _columns(fleet: Fleet) -> Section:
    rows = []
    for index, column in enumerate(fleet.columns):
        verdicts = [cell.verdict for cell in column.cells]
        row = [
            strong(column_letter(index)),
            column.name,
            f"{number(column.median)} {column.unit}",
            len(column.cells),
            verdicts.count("slow"),
            verdicts.count("undecided"),
            percent(column.noise, 2),
            percent(column.spread, 2),
        ]
        rows.append(row)
    headings = ["", _("Workload or peak"), _("Median"), _("Nodes"), _("Slow"), _("Can't tell")]
    return table(rows, [*headings, _("Noise of repeats"), _("Spread between nodes")])


def _advice(fleet: Fleet) -> Section:
    repeats = needed_repeats(fleet.columns)
    if repeats is None:
        return Section()
    facts = {"repeats": repeats, "power": percent(fleet.power)}
    return paragraph(_(ADVICE) % facts)


def _method(fleet: Fleet) -> Section:
    facts = {"level": percent(fleet.level), "limit": number(1 - fleet.threshold, 2)}
    return note(_(METHOD) % facts)


# Each node.


def fleet_nodes(summary: Summary) -> Section:
    """A table of all nodes: verdict and ratio in each column; earlier ratios."""
    fleet, site = summary.fleet, summary.site
    rows = [_node_row(node, fleet.columns, site) for node in fleet.nodes[:MOST_ROWS]]
    letters = [column_letter(index) for index, _column in enumerate(fleet.columns)]
    headings = ["", _("Node"), _("Verdict"), *letters]
    section = table(rows, headings) + more(len(fleet.nodes) - MOST_ROWS)
    past = [row for column in fleet.columns for row in _past_rows(column)]
    headings = [_("Node"), _("Workload"), _("Ratios, oldest first")]
    section += folded(_("Earlier measurements"), table(past, headings))
    return section.on_page_in(summary.outputs / "fleet")


def _node_row(node: FleetNode, columns: Sequence[FleetColumn], site: Site) -> list[object]:
    row: list[object] = [severity_mark(MARKS[node.verdict]), plain(node.node)]
    row.append(_(VERDICTS[node.verdict]))
    for column in columns:
        cells = [cell for cell in column.cells if cell.node == node.node]
        row.append(_cell(cells[0], site) if cells else None)
    return row


def _cell(cell: NodeCell, site: Site) -> Markup:
    ratio = link(site.address(cell.folder), number(cell.ratio, 3))
    ends = interval(cell.low, cell.high, digits=3)
    doubt = _(DOUBTS[cell.doubt]) if cell.doubt else ""
    return Markup('%s <small title="%s">(%s)</small>') % (ratio, doubt, ends)


def _past_rows(column: FleetColumn) -> Iterator[list[str]]:
    for cell in column.cells:
        if cell.past:
            newest = _("%(ratio)s (newest)") % {"ratio": number(cell.ratio, 3)}
            yield [plain(cell.node), column.name, f"{past_text(cell)}, {newest}"]


# The chart.


def heat_map(fleet: Fleet) -> Figure:
    """Return a chart with a cell for each node and column, coloured by the ratio to the
    median; slow nodes have a frame. Nodes are in the order of their names, NODES_PER_LINE
    beside each other."""
    names = sorted((node.node for node in fleet.nodes), key=name_order)
    lines = ceil(len(names) / NODES_PER_LINE)
    height = 0.9 + lines * (0.6 + 0.22 * len(fleet.columns))
    norm = TwoSlopeNorm(1.0, *_ends(fleet))
    with new_figure(8, height, rows=lines) as (figure, every):
        for line, axes in enumerate(every):
            of_line = names[line * NODES_PER_LINE : (line + 1) * NODES_PER_LINE]
            image = _draw_line(axes, fleet, of_line, norm)
        bar = figure.colorbar(
            image, ax=every, extend="both", shrink=0.8, aspect=30, fraction=0.03
        )
        bar.outline.set_visible(False)
    return figure


def _ends(fleet: Fleet) -> tuple[float, float]:
    """Return the ratios at which the colours end, at equal distances from 1. Ratios beyond
    them have the colours of the ends."""
    farthest = LEAST_RANGE
    for column in fleet.columns:
        for cell in column.cells:
            farthest = max(farthest, abs(cell.ratio - 1))
    distance = min(farthest, MOST_RANGE)
    return 1 - distance, 1 + distance


def _draw_line(axes: Axes, fleet: Fleet, names: Sequence[str], norm: TwoSlopeNorm) -> AxesImage:
    """Draw the cells of these nodes, and frames around slow ones."""
    position = {name: x for x, name in enumerate(names)}
    ratios = np.full((len(fleet.columns), NODES_PER_LINE), np.nan)
    if len(fleet.nodes) < NODES_PER_LINE:
        ratios = ratios[:, : len(fleet.nodes)]
    slow = set()
    for y, column in enumerate(fleet.columns):
        for cell in column.cells:
            x = position.get(cell.node)
            if x is None:
                continue
            ratios[y, x] = cell.ratio
            if cell.verdict == "slow":
                slow.add(cell.node)
                corner = (x - 0.5, y - 0.5)
                frame = Rectangle(corner, 1, 1, fill=False, edgecolor=INK, linewidth=1.5)
                axes.add_patch(frame)
    image = axes.imshow(ratios, cmap="RdBu", norm=norm, aspect="auto", interpolation="nearest")
    ticks = _named_positions(names, slow)
    axes.set_xticks(ticks, [plain(names[x]) for x in ticks], rotation=30, ha="right", size=7)
    letters = [column_letter(index) for index, _column in enumerate(fleet.columns)]
    axes.set_yticks(range(len(letters)), letters, size=8)
    axes.set_facecolor(WITHOUT)
    axes.grid(visible=False)
    axes.tick_params(length=0, colors=INK)
    for spine in axes.spines.values():
        spine.set_color(FAINT)
    return image


def _named_positions(names: Sequence[str], slow: set[str]) -> list[int]:
    """Return the positions of the nodes of a line whose names are shown: all of a few; of more,
    the slow ones, and the first and the last unless a slow one is near."""
    if len(names) <= MOST_NAMED:
        return [*range(len(names))]
    named = {position for position, name in enumerate(names) if name in slow}
    for end in (0, len(names) - 1):
        if all(abs(end - position) > NEAR for position in named):
            named.add(end)
    return sorted(named)
