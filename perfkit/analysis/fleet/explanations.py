"""What distinguishes a node from the others of its fleet, from what its measurements store."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, ClassVar

from perfkit.core.results.repeat import TelemetrySummary
from perfkit.core.results.schema import Result, present
from perfkit.core.statements import N_, Digits2, Digits3, Share, Statement

CLOCK_SHARE = 0.97
"""A clock below this share of the lowest of the other nodes is lower."""
POWER_SHARE = 0.9
"""Power below this share of the lowest of the other nodes is lower."""
DEGREES = 5.0
"""A temperature that exceeds the highest of the other nodes by this is higher."""
LOAD_CORES = 0.1
STEAL_SHARE = 0.01
"""Other load and steal time below these do not explain a slow node."""
NOT_COMPARED = ("suite_commit", "suite_modified", "variables")
"""Facts in which nodes may differ without another cause."""


class Explanation(Statement):
    """A difference between a node and the others of its kind that may explain its speed."""

    classes: ClassVar = {}


class ClockLower(Explanation):
    """The lowest clock in the window is below 97 % of the lowest of the other nodes."""

    code = "clock_lower"
    sentence = N_("clock of %(mhz)s MHz; other nodes at least %(others)s MHz")
    mhz: Digits3
    others: Digits3


class Throttled(Explanation):
    """The node's devices lowered their clocks for reasons that fewer than half of the other
    nodes had."""

    code = "throttled"
    sentence = N_("clocks lowered: %(reasons)s")
    reasons: list[str]


class Hotter(Explanation):
    """The highest temperature exceeds that of all other nodes by at least 5 degrees."""

    code = "hotter"
    sentence = N_("%(celsius)s °C; other nodes at most %(others)s °C")
    celsius: Digits3
    others: Digits3


class PowerLower(Explanation):
    """The devices' power in the window is below 90 % of the lowest of the other nodes."""

    code = "power_lower"
    sentence = N_("power of %(watts)s W; other nodes at least %(others)s W")
    watts: Digits3
    others: Digits3


class MoreOtherLoad(Explanation):
    """Other programs used more CPU time than on any other node, and at least 0.1 cores."""

    code = "more_other_load"
    sentence = N_("other programs use %(cores)s cores; on other nodes at most %(others)s")
    cores: Digits2
    others: Digits2


class MoreSteal(Explanation):
    """The hypervisor gave more time to others than on any other node, and at least 1 %."""

    code = "more_steal"
    sentence = N_("steal time of %(share)s; on other nodes at most %(others)s")
    share: Share
    others: Share


class PeakLower(Explanation):
    """A measured peak of the node is below the fleet's threshold, too."""

    code = "peak_lower"
    sentence = N_("%(peak)s at %(share)s of the fleet's median")
    peak: str
    share: Share


class FactDiffers(Explanation):
    """A fact of the environment differs from that of most other nodes."""

    code = "fact_differs"
    sentence = N_("%(fact)s: %(value)s; most other nodes: %(others)s")
    fact: str
    value: str
    others: str


@dataclass(frozen=True)
class NodeState:
    """What the measurements of a node tell about its state in the windows. None: unknown.
    `facts` are those of the environment, as text."""

    clock_mhz: float | None
    celsius: float | None
    watts: float | None
    other_load_cores: float | None
    steal_share: float | None
    throttled: frozenset[str]
    facts: dict[str, str]


def state_of(results: Sequence[Result]) -> NodeState:
    """Return the state of a node during these measurements, at least one."""
    telemetry: list[TelemetrySummary] = []
    watts: list[float] = []
    for result in results:
        telemetry += result.telemetry
        watts += _watts(result)
    clocks = [low for each in telemetry for low, _high in each.clock_mhz.values()]
    temperatures = [value for each in telemetry for value in each.temperature_celsius.values()]
    loads = present(each.other_load_cores for each in telemetry)
    steals = present(each.steal_share for each in telemetry)
    reasons: set[str] = set()
    for each in telemetry:
        for of_device in each.throttled.values():
            reasons |= of_device.keys()
    return NodeState(
        clock_mhz=min(clocks, default=None),
        celsius=max(temperatures, default=None),
        watts=median(watts) if watts else None,
        other_load_cores=median(loads) if loads else None,
        steal_share=median(steals) if steals else None,
        throttled=frozenset(reasons),
        facts=_facts(results[-1]),
    )


def _watts(result: Result) -> list[float]:
    """Return the power of all devices in each window of a measurement."""
    powers = []
    for repeat in result.complete_repeats:
        seconds = max((rank.window_seconds for rank in repeat.ranks), default=0.0)
        energy = sum(repeat.telemetry.energy_joules.values()) if repeat.telemetry else 0.0
        if seconds and energy:
            powers.append(energy / seconds)
    return powers


def _facts(result: Result) -> dict[str, str]:
    """Return the label and the facts of the environment: a node may lack this week's."""
    facts = {"label": result.config.label or "none"}
    for name, reading in result.environment.items():
        if name not in NOT_COMPARED:
            facts[name] = _text(reading.value)
    return facts


def _text(value: Any) -> str:
    return ", ".join(value) if isinstance(value, list) else str(value)


def explanations(node: NodeState, others: Sequence[NodeState]) -> Iterator[Explanation]:
    """Yield in what a node differs from these other nodes of its kind."""
    yield from _hardware(node, others)
    yield from _competition(node, others)
    for name, value in node.facts.items():
        counts = Counter(other.facts[name] for other in others if name in other.facts)
        usual, count = next(iter(counts.most_common(1)), (value, 0))
        if usual != value and count > len(others) / 2:
            yield FactDiffers(fact=name, value=value, others=usual)


def _hardware(node: NodeState, others: Sequence[NodeState]) -> Iterator[Explanation]:
    clock = min(present(other.clock_mhz for other in others), default=None)
    if node.clock_mhz and clock and node.clock_mhz < CLOCK_SHARE * clock:
        yield ClockLower(mhz=node.clock_mhz, others=clock)
    reasons = [
        reason
        for reason in sorted(node.throttled)
        if 2 * sum(reason in other.throttled for other in others) < len(others)
    ]
    if reasons:
        yield Throttled(reasons=reasons)
    celsius = max(present(other.celsius for other in others), default=None)
    if node.celsius and celsius and node.celsius >= celsius + DEGREES:
        yield Hotter(celsius=node.celsius, others=celsius)
    watts = min(present(other.watts for other in others), default=None)
    if node.watts and watts and node.watts < POWER_SHARE * watts:
        yield PowerLower(watts=node.watts, others=watts)


def _competition(node: NodeState, others: Sequence[NodeState]) -> Iterator[Explanation]:
    load = max(present(other.other_load_cores for other in others), default=0.0)
    cores = node.other_load_cores
    if cores and cores >= LOAD_CORES and cores > load:
        yield MoreOtherLoad(cores=cores, others=load)
    steal = max(present(other.steal_share for other in others), default=0.0)
    share = node.steal_share
    if share and share >= STEAL_SHARE and share > steal:
        yield MoreSteal(share=share, others=steal)
