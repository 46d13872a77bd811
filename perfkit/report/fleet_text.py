"""A judged fleet as text for a terminal, in lines of at most 80 columns."""

from collections.abc import Iterator, Sequence
from string import ascii_uppercase

from perfkit.analysis.fleet.stored import Fleet, FleetColumn, FleetNode, NodeCell
from perfkit.core.format import counted, interval, number, percent, plain
from perfkit.core.statements import N_
from perfkit.report.text.terminal import tabulated, wrapped

METHOD = N_(
    "A ratio is a node's mean / that of the fleet's median node. All intervals hold "
    "at the same time, at %(level)s over all columns. A node is slow if its interval lies "
    "below %(limit)s and no good node of such a fleet would be as far below the median."
)
"""How nodes are judged."""
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
        lines += _advice(fleet)
        facts = {"level": percent(fleet.level), "limit": number(1 - fleet.threshold, 2)}
        lines.append(wrapped(METHOD % facts))
    lines += [wrapped(f"not judged: {reason}") for reason in fleet.not_judged]
    return "\n".join(lines)


def headline(fleet: Fleet) -> str:
    """Return the verdict on the fleet in one sentence."""
    if not fleet.nodes:
        return "No fleet: no workload was measured on at least three nodes."
    slow, counts = fleet.named("slow"), fleet.counts
    names = ", ".join(map(plain, slow[:MOST_NODES]))
    if len(slow) > MOST_NODES:
        names += f" and {len(slow) - MOST_NODES} more"
    if slow:
        verb = "is" if len(slow) == 1 else "are"
        sentence = f"{len(slow)} of {len(fleet.nodes)} nodes {verb} slow: {names}"
    else:
        sentence = f"None of {len(fleet.nodes)} nodes is slow"
    if counts["undecided"]:
        sentence += f"; can't tell for {counts['undecided']}"
    return f"{sentence}."


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
        sentences.append(f"{len(node.explanations) - MOST_EXPLANATIONS} more differences")
    text = "; ".join(sentences) or "nothing stored differs from the other nodes"
    yield wrapped(plain(text), "  ")


def _advice(fleet: Fleet) -> Iterator[str]:
    """Yield what would decide the undecided nodes."""
    repeats = needed_repeats(fleet.columns)
    if repeats:
        text = f"{repeats} repeats would decide all nodes that the noise leaves undecided"
        yield wrapped(f"{text}, with a power of {percent(fleet.power)}.")
    spread = sorted({cell.node for column in fleet.columns for cell in _by_spread(column)})
    if spread:
        nodes = ", ".join(map(plain, spread[:MOST_NODES]))
        yield wrapped(f"No number of repeats decides {nodes}: good nodes differ as much.")


def _by_spread(column: FleetColumn) -> list[NodeCell]:
    return [cell for cell in column.cells if cell.doubt == "spread"]


def needed_repeats(columns: Sequence[FleetColumn]) -> int | None:
    """Return the number of repeats that would decide every node that the noise leaves
    undecided; None if there is none, or if no number would."""
    needed = []
    for column in columns:
        for cell in column.cells:
            if cell.doubt == "noise":
                needed.append(cell.repeats)
    if not needed or None in needed:
        return None
    return max(repeats for repeats in needed if repeats)
