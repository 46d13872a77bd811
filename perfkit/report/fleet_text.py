"""A judged fleet as text for a terminal, in lines of at most 80 columns."""

from collections.abc import Iterator, Sequence
from string import ascii_uppercase

from perfkit.analysis.fleet.stored import Difference, Fleet, FleetColumn, FleetNode, Missing
from perfkit.measuring.format import counted, number, percent, plain
from perfkit.measuring.statements import N_
from perfkit.report.text.language import gettext as _
from perfkit.report.text.names import fact_name
from perfkit.report.text.terminal import tabulated, wrapped

METHOD = N_(
    "A ratio is a node's mean / the median of the other nodes' means. A node is slow if its "
    "interval lies below %(limit)s and good nodes are not expected to be as far below the "
    "others; it is ok if its interval lies above %(limit)s. With a probability of %(level)s, "
    "no good node is called slow."
)
"""How nodes are judged."""
MOST_NODES = 8
"""Rows of the table, and names in the headline, at most."""
MOST_DIFFERENCES = 4
VERDICTS = {
    "slow": N_("slow"),
    "no measurement": N_("no measurement"),
    "undecided": N_("can't tell"),
    "ok": N_("ok"),
}
MARKS = {"slow": " slow", "undecided": " ?", "ok": ""}
"""Verdict -> mark behind a ratio."""
READINGS = {
    "clock_mhz": N_("lowest clock, MHz"),
    "celsius": N_("highest temperature, °C"),
    "throttled": N_("clocks lowered"),
}
"""What a node may differ in, besides facts of the environment."""


def fleet_text(fleet: Fleet) -> str:
    """Return what `perfkit fleet` prints."""
    lines = [wrapped(headline(fleet))]
    if fleet.columns:
        lines += ["", *_table(fleet), ""]
    for node in fleet.nodes[:MOST_NODES]:
        lines += _details(node)
    lines += [wrapped(f"on fewer than three nodes: {plain(name)}") for name in fleet.too_few]
    if fleet.columns:
        facts = {"level": percent(fleet.level), "limit": number(1 - fleet.threshold, 2)}
        lines.append(wrapped(METHOD % facts))
    return "\n".join(lines)


def headline(fleet: Fleet) -> str:
    """Return the verdict on the fleet in one sentence."""
    if not fleet.columns:
        return "No fleet: no workload was completed on at least three nodes."
    slow, counts = fleet.named("slow"), fleet.counts
    sentence = f"None of {len(fleet.nodes)} nodes is slow"
    if slow:
        verb = "is" if len(slow) == 1 else "are"
        sentence = f"{len(slow)} of {len(fleet.nodes)} nodes {verb} slow: {_listed(slow)}"
    for verdict in ("undecided", "no measurement"):
        if counts[verdict]:
            sentence += f"; {VERDICTS[verdict]}: {counts[verdict]}"
    return f"{sentence}."


def _listed(nodes: Sequence[str]) -> str:
    names = ", ".join(map(plain, nodes[:MOST_NODES]))
    more = len(nodes) - MOST_NODES
    return f"{names} and {more} more" if more > 0 else names


def _table(fleet: Fleet) -> Iterator[str]:
    """Yield the nodes that are not ok, and the slowest of the others, by column."""
    letters = [column_letter(index) for index, _column in enumerate(fleet.columns)]
    for letter, column in zip(letters, fleet.columns, strict=True):
        yield wrapped(f"{letter}  {_column_text(column)}", "  ")
    yield ""
    rows = []
    for node in fleet.nodes[:MOST_NODES]:
        cells = [_cell_text(column, node.node) for column in fleet.columns]
        rows.append([plain(node.node), VERDICTS[node.verdict], *cells])
    yield from tabulated(rows, ["node", "verdict", *letters], left=["verdict"])
    others = fleet.nodes[MOST_NODES:]
    if others:
        texts = counted(VERDICTS[node.verdict] for node in others)
        yield f"and {len(others)} more: {texts}"


def column_letter(index: int) -> str:
    """Return the short name of a column: A to Z, then 27, 28 …"""
    return ascii_uppercase[index] if index < len(ascii_uppercase) else str(index + 1)


def _column_text(column: FleetColumn) -> str:
    """Return what a column compares, and how much good nodes of this fleet differ."""
    value = f"{number(column.median)} {column.unit}"
    noise, limit = percent(column.noise, 2), number(column.limit, 3)
    return f"{plain(column.name)}: median {value}, noise {noise}, good nodes above {limit}"


def _cell_text(column: FleetColumn, node: str) -> str:
    for cell in column.cells:
        if cell.node == node:
            return f"{number(cell.ratio, 3)}{MARKS[cell.verdict]}"
    return "–"


def _details(node: FleetNode) -> Iterator[str]:
    """Yield in what a slow node differs, and of what a node has no measurement."""
    if node.verdict == "slow":
        texts = [difference_text(each) for each in node.differences[:MOST_DIFFERENCES]]
        text = "; ".join(texts) or "nothing stored differs from good nodes"
        yield wrapped(f"{plain(node.node)}: {plain(text)}")
    if node.missing:
        texts = [missing_text(each) for each in node.missing]
        yield wrapped(f"{plain(node.node)}: no measurement: {plain('; '.join(texts))}")


def difference_text(difference: Difference) -> str:
    """Return in what a node differs, in the current language."""
    reading = READINGS.get(difference.fact)
    facts = {
        "fact": _(reading) if reading else fact_name(difference.fact),
        "value": difference.value,
        "others": difference.others,
    }
    return _("%(fact)s: %(value)s (other nodes: %(others)s)") % facts


def missing_text(missing: Missing) -> str:
    """Return the name of a workload, with the failure if it failed."""
    return f"{missing.workload} ({missing.failure})" if missing.failure else missing.workload
