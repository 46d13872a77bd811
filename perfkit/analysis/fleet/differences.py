"""In what a slow node differs from the others, from what their measurements store."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from perfkit.analysis.fleet.stored import Difference
from perfkit.measuring.format import number
from perfkit.measuring.results.schema import Result, present
from perfkit.measuring.statements import value_text

CLOCK_SHARE = 0.97
"""A clock below this share of the lowest of the other nodes is lower."""
DEGREES = 5.0
"""A temperature that exceeds the highest of the other nodes by this is higher."""
NOT_COMPARED = ("suite_commit", "suite_modified", "variables")
"""Facts in which nodes may differ without another cause."""


@dataclass(frozen=True)
class NodeState:
    """The lowest clock and the highest temperature of a node's devices, None if unknown; its
    label, the reasons for lowered clocks and the facts of its environment as text."""

    clock_mhz: float | None
    celsius: float | None
    facts: dict[str, str]


def state_of(results: Sequence[Result]) -> NodeState:
    """Return the state of a node during these measurements, at least one."""
    telemetry = [summary for result in results for summary in result.telemetry]
    clocks = [low for each in telemetry for low, _high in each.clock_mhz.values()]
    temperatures = [value for each in telemetry for value in each.temperature_celsius.values()]
    newest = results[-1]
    facts = {"label": newest.config.label or "–"}
    if telemetry:
        reasons = {name for each in telemetry for of in each.throttled.values() for name in of}
        facts["throttled"] = ", ".join(sorted(reasons)) or "–"
    for name, reading in newest.environment.items():
        if name not in NOT_COMPARED:
            facts[name] = value_text(reading.value)
    return NodeState(min(clocks, default=None), max(temperatures, default=None), facts)


def differences(node: NodeState, others: Sequence[NodeState]) -> Iterator[Difference]:
    """Yield in what a node differs from these other nodes, at least one."""
    clock = min(present(other.clock_mhz for other in others), default=None)
    if node.clock_mhz and clock and node.clock_mhz < CLOCK_SHARE * clock:
        yield Difference(fact="clock_mhz", value=number(node.clock_mhz), others=number(clock))
    celsius = max(present(other.celsius for other in others), default=None)
    if node.celsius and celsius and node.celsius >= celsius + DEGREES:
        yield Difference(fact="celsius", value=number(node.celsius), others=number(celsius))
    for name, value in node.facts.items():
        counts = Counter(other.facts[name] for other in others if name in other.facts)
        usual, count = next(iter(counts.most_common(1)), (value, 0))
        if usual != value and 2 * count > len(others):
            yield Difference(fact=name, value=value, others=usual)
