"""A judged fleet as text for a terminal, in lines of at most 80 columns."""

from collections.abc import Iterator, Sequence
from string import ascii_uppercase

from perfkit.analysis.fleet.stored import Fleet, FleetColumn, FleetNode, NodeCell, name_order
from perfkit.core.format import amount, counted, interval, minute, number, percent, plain
from perfkit.core.statements import N_
from perfkit.report.text.terminal import tabulated, wrapped

METHOD = N_(
    "A ratio is a node's mean / that of the fleet's median node. All intervals hold "
    "at the same time, at %(level)s over all columns, if repeats vary alike on all nodes. "
    "A node is slow if its interval lies below %(limit)s and no good node of such a fleet "
    "would be as far below the median."
)
"""How nodes are judged."""
ADVICE = N_(
    "%(repeats)s repeats on every node would decide each node that the noise leaves undecided, "
    "with a power of %(power)s."
)
MOST_NODES = 8
"""Rows of the table, at most."""
MOST_EXPLANATIONS = 4
VERDICTS = {"slow": N_("slow"), "undecided": N_("can't tell"), "ok": N_("ok")}
MARKS = {"slow": " slow", "undecided": " ?", "ok": ""}
"""Verdict -> mark behind a ratio."""
DOUBTS = {
    "": "",
    "noise": N_("too few repeats for this noise"),
    "spread": N_("good nodes differ as much"),
}


def fleet_text(fleet: Fleet) -> str:
    """Return what `perfkit fleet` prints."""
    lines = [wrapped(headline(fleet))]
    if fleet.columns:
        lines += ["", *_table(fleet), ""]
    for node in fleet.nodes[:MOST_NODES]:
        lines += _details(node, fleet.columns)
        lines += _gaps(node)
    if fleet.columns:
        lines += _advice(fleet)
        facts = {"level": percent(fleet.level), "limit": number(1 - fleet.threshold, 2)}
        lines.append(wrapped(METHOD % facts))
    lines += [wrapped(f"not judged: {reason}") for reason in fleet.not_judged]
    return "\n".join(lines)


def headline(fleet: Fleet) -> str:
    """Return the verdict on the fleet in one sentence."""
    if not fleet.columns:
        return "No fleet: no workload was measured on at least three nodes."
    slow, counts = fleet.named("slow"), fleet.counts
    if slow:
        names = _listed(slow)
        verb = "is" if len(slow) == 1 else "are"
        sentence = f"{len(slow)} of {len(fleet.nodes)} nodes {verb} slow: {names}"
    else:
        sentence = f"None of {len(fleet.nodes)} nodes is slow"
    if counts["undecided"]:
        sentence += f"; can't tell for {counts['undecided']}"
    return f"{sentence}."


def _listed(nodes: Sequence[str]) -> str:
    names = ", ".join(map(plain, nodes[:MOST_NODES]))
    more = len(nodes) - MOST_NODES
    return f"{names} and {more} more" if more > 0 else names


def _table(fleet: Fleet) -> Iterator[str]:
    """Yield the nodes that are not ok, and the slowest of the others, by column."""
    letters = [column_letter(index) for index, _column in enumerate(fleet.columns)]
    for letter, column in zip(letters, fleet.columns, strict=True):
        yield wrapped(f"{letter}  {column_text(column)}", "  ")
    yield ""
    rows = []
    for node in fleet.nodes[:MOST_NODES]:
        cells = [_cell_text(_cell(column, node.node)) for column in fleet.columns]
        rows.append([plain(node.node), VERDICTS[node.verdict], *cells])
    yield from tabulated(rows, ["node", "verdict", *letters], left=["verdict"])
    others = fleet.nodes[MOST_NODES:]
    if others:
        texts = counted(VERDICTS[node.verdict] for node in others)
        yield f"and {len(others)} more: {texts}"


def column_letter(index: int) -> str:
    """Return the short name of a column: A to Z, then 27, 28 …"""
    return ascii_uppercase[index] if index < len(ascii_uppercase) else str(index + 1)


def column_text(column: FleetColumn) -> str:
    """Return what a column compares, and the spread of its fleet."""
    value = f"{number(column.median)} {column.unit}"
    return (
        f"{column.name}: median {value}, noise {percent(column.noise, 2)}, "
        f"between nodes {percent(column.spread, 2)}"
    )


def _cell(column: FleetColumn, node: str) -> NodeCell | None:
    for cell in column.cells:
        if cell.node == node:
            return cell
    return None


def _cell_text(cell: NodeCell | None) -> str:
    if cell is None:
        return "–"
    return f"{number(cell.ratio, 3)}{MARKS[cell.verdict]}"


def _details(node: FleetNode, columns: Sequence[FleetColumn]) -> Iterator[str]:
    """Yield the intervals of a slow node, and what distinguishes it."""
    if node.verdict != "slow":
        return
    ratios = []
    for index, column in enumerate(columns):
        cell = _cell(column, node.node)
        if cell and cell.verdict == "slow":
            ends = interval(cell.low, cell.high, digits=3)
            ratios.append(f"{column_letter(index)} {number(cell.ratio, 3)} ({ends})")
    yield wrapped(f"{plain(node.node)}: {', '.join(ratios)}")
    sentences = [statement.text() for statement in node.explanations[:MOST_EXPLANATIONS]]
    if len(node.explanations) > MOST_EXPLANATIONS:
        sentences.append(amount(len(node.explanations) - MOST_EXPLANATIONS, "more difference"))
    text = "; ".join(sentences) or "nothing stored differs from good nodes"
    yield wrapped(plain(text), "  ")
    past = past_text(lowest_cell(columns, node))
    if past:
        yield wrapped(f"earlier: {past}", "  ")


def _gaps(node: FleetNode) -> Iterator[str]:
    """Yield for which workloads a node has no number that counts."""
    if node.gaps:
        sentences = "; ".join(gap.text() for gap in node.gaps)
        yield wrapped(f"{plain(node.node)}: {plain(sentences)}", "  ")


def lowest_cell(columns: Sequence[FleetColumn], node: FleetNode) -> NodeCell:
    """Return the cell of a node's lowest ratio, if possible one with earlier ratios."""
    cells = [_cell(column, node.node) for column in columns]
    return min(filter(None, cells), key=lambda cell: (not cell.past, cell.ratio))


def past_text(cell: NodeCell) -> str:
    """Return a node's earlier ratios, oldest first; empty without any."""
    ratios = []
    for past in cell.past:
        when = plain(past.label) or minute(past.created)
        ratios.append(f"{number(past.ratio, 3)} ({when})")
    return ", ".join(ratios)


def _advice(fleet: Fleet) -> Iterator[str]:
    """Yield what would decide the undecided nodes."""
    repeats = needed_repeats(fleet.columns)
    if repeats:
        facts = {"repeats": repeats, "power": percent(fleet.power)}
        yield wrapped(ADVICE % facts)
    undecidable: set[str] = set()
    for column in fleet.columns:
        undecidable |= {cell.node for cell in column.cells if cell.doubt and not cell.repeats}
    if undecidable:
        nodes = _listed(sorted(undecidable, key=name_order))
        yield wrapped(f"No number of repeats decides {nodes}: good nodes differ as much.")


def needed_repeats(columns: Sequence[FleetColumn]) -> int | None:
    """Return the number of repeats that would decide every node that a number of repeats can
    decide; None if there is none."""
    needed = []
    for column in columns:
        needed += [cell.repeats for cell in column.cells if cell.repeats]
    return max(needed, default=None)
