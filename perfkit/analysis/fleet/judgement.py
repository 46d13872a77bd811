"""Judge which nodes of a fleet are slow, from the repeats of each node.

The model, of throughputs relative to the fleet's median: a repeat of node i is m_i + e, where
the noise e is normal and equally large on every node; the good nodes' m_i are normally
distributed around 1, since no two machines are equal; slow nodes, fewer than half, lie below
them. Not of logarithms, which would stretch the lower tail, where slow nodes are sought.

A node is called slow if two things hold:
- The interval of its ratio to the fleet's median lies below 1 - threshold. The intervals of all
  nodes hold at the same time, at the stated level.
- Its distance from the median is so large that no good node would show it: the spread between
  nodes is estimated by the median absolute deviation, which slow nodes hardly affect, and the
  multiple of it that counts is exceeded by the lowest of as many good nodes with a probability
  of at most 1 - level.

The critical values of both are quantiles of the statistics themselves under the model, drawn
with a fixed seed for the numbers of nodes and repeats at hand. The more the nodes differ, the
fewer of them determine the median, and the more of its own noise each interval must allow for:
nodes are drawn that differ at least as much as these. `benchmarks/simulations.py fleet` checks
the rates of false alarms and of slow nodes found, `fleet_intervals` that the intervals hold;
they need not for a node that is several times noisier than the others.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil, sqrt
from typing import Literal, NamedTuple

import numpy as np
from scipy.special import ndtr

Verdict = Literal["slow", "ok", "undecided"]
Doubt = Literal["", "noise", "spread"]

FEWEST_NODES = 3
"""With two nodes, nothing tells which of them is unusual."""
FEWEST_REPEATS = 2
MAD_OF_NORMAL = 1.4826
"""Standard deviation / median absolute deviation of a normal distribution."""
TAIL_DRAWS = 100
"""Number of drawn fleets beyond a critical value: its level is accurate to 10 %."""
BLOCK_VALUES = 2_000_000
"""Values drawn at a time, which limits the memory to some tens of megabytes."""
MOST_REPEATS = 1000
"""No more repeats are recommended."""
DIFFERENCES = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""Standard deviations between drawn nodes, in standard errors of a node's mean."""


class NodeRepeats(NamedTuple):
    """A node and the throughputs of its repeats, in any unit."""

    node: str
    throughputs: Sequence[float]


@dataclass(frozen=True)
class Rules:
    """How nodes are judged. `level`: the probability that no good node of the fleet is called
    slow; `columns`: the number of workloads and peaks that are judged together, over which the
    level holds; `threshold`: the smallest slowness that matters, as a share; `power`: the
    probability of a decision that the recommended number of repeats must reach."""

    level: float = 0.95
    columns: int = 1
    threshold: float = 0.02
    power: float = 0.9

    @property
    def column_level(self) -> float:
        """Level of each column, by Bonferroni's inequality."""
        return 1 - (1 - self.level) / self.columns


USUAL_RULES = Rules()


class NodeRatio(NamedTuple):
    """A node's ratio to the fleet's median, with the ends of its simultaneous interval, and the
    verdict. `doubt`: why the node is undecided: its repeats are too noisy or too few, or good
    nodes of this fleet differ as much. `repeats`: the number of repeats that would decide it,
    with the rules' power; None if none would."""

    node: str
    ratio: float
    low: float
    high: float
    verdict: Verdict
    doubt: Doubt = ""
    repeats: int | None = None


@dataclass(frozen=True)
class FleetColumn:
    """The nodes of a fleet under one workload: throughput of the `median` node; `noise`, the
    usual standard deviation of a node's repeats, as a share; `spread`, the standard deviation
    between good nodes, noise included, as a share; `limit`, the share below the median beyond
    which no good node is expected."""

    median: float
    noise: float
    spread: float
    limit: float
    nodes: list[NodeRatio]


class _Statistics(NamedTuple):
    """Statistics of one or more fleets, relative to the median throughput: each node's distance
    from the median and its standard error, (..., nodes); the `spread` between nodes and the
    usual standard error, (..., 1)."""

    distance: np.ndarray
    error: np.ndarray
    spread: np.ndarray
    usual_error: np.ndarray


def judge(fleet: Sequence[NodeRepeats], rules: Rules) -> FleetColumn:
    """Judge the nodes of a fleet under one workload.

    Raises ValueError for fewer than FEWEST_NODES nodes or FEWEST_REPEATS repeats of a node.
    """
    counts = tuple(len(node.throughputs) for node in fleet)
    if len(fleet) < FEWEST_NODES or min(counts) < FEWEST_REPEATS:
        raise ValueError(f"{len(fleet)} nodes with {min(counts, default=0)} repeats or more")
    centre = float(np.median([np.mean(node.throughputs) for node in fleet]))
    relative = [np.divide(node.throughputs, centre) for node in fleet]
    means = np.array([values.mean() for values in relative])
    deviations = np.array([values.std(ddof=1) for values in relative])
    statistics = _statistics(means, deviations, np.array(counts))
    critical = critical_values(
        # Sorted, so that fleets with the same numbers of repeats share the drawn values.
        tuple(sorted(counts)),
        round(rules.column_level, 9),
        difference(statistics.distance, statistics.usual_error.item()),
    )
    bounds = Bounds(
        spread=statistics.spread.item(),
        usual_error=statistics.usual_error.item(),
        critical=critical,
        rules=rules,
    )
    nodes = []
    for index, node in enumerate(fleet):
        estimate = Estimated(
            distance=statistics.distance[index].item(),
            error=statistics.error[index].item(),
            repeats=counts[index],
        )
        nodes.append(_ratio(node.node, estimate, bounds))
    return FleetColumn(
        median=centre,
        noise=float(np.median(deviations)),
        spread=bounds.scale,
        limit=bounds.limit,
        nodes=nodes,
    )


def _statistics(means: np.ndarray, deviations: np.ndarray, counts: np.ndarray) -> _Statistics:
    """Return the statistics of fleets, from the mean and the standard deviation of each node's
    repeats, of shape (..., nodes)."""
    # A node that is noisier than usual keeps its own noise; few repeats that happen to agree
    # don't make a node less noisy than the others.
    usual = np.median(deviations, axis=-1, keepdims=True)
    error = np.maximum(deviations, usual) / np.sqrt(counts)
    distance = means - np.median(means, axis=-1, keepdims=True)
    return _Statistics(
        distance=distance,
        error=error,
        spread=_spread(distance),
        usual_error=usual / np.sqrt(np.median(counts)),
    )


def _spread(distance: np.ndarray) -> np.ndarray:
    """Return the robust standard deviation of distances from the median: (..., 1)."""
    return MAD_OF_NORMAL * np.median(np.abs(distance), axis=-1, keepdims=True)


def difference(distance: np.ndarray, usual_error: float) -> float:
    """Return the least of DIFFERENCES that is at least as large as that of nodes with these
    distances from the median. Slow nodes count, which makes intervals wider, not narrower."""
    if not usual_error:
        return DIFFERENCES[-1]
    variance = distance.var(ddof=1) / usual_error**2 - 1
    between = sqrt(max(0.0, variance))
    return next((each for each in DIFFERENCES if each >= between), DIFFERENCES[-1])


class CriticalValues(NamedTuple):
    """Half of a simultaneous interval, in standard errors of the node; and the distance below
    the median that a good node does not exceed, in standard deviations between nodes."""

    interval: float
    outlier: float


class Estimated(NamedTuple):
    """A node's distance from the median, its standard error, and the number of its repeats."""

    distance: float
    error: float
    repeats: int


@dataclass(frozen=True)
class Bounds:
    """What the nodes of a fleet are held against: the `spread` between its nodes, noise
    included, and the usual standard error of a node, as shares; critical values, and rules."""

    spread: float
    usual_error: float
    critical: CriticalValues
    rules: Rules

    @property
    def scale(self) -> float:
        """Standard deviation between good nodes, which is at least that of their noise."""
        return max(self.spread, self.usual_error)

    @property
    def limit(self) -> float:
        """Share below the median beyond which no good node is expected."""
        return self.critical.outlier * self.scale


def _ratio(name: str, estimate: Estimated, bounds: Bounds) -> NodeRatio:
    """Return the verdict on a node."""
    distance, threshold = estimate.distance, -bounds.rules.threshold
    half = bounds.critical.interval * estimate.error
    verdict: Verdict = "undecided"
    doubt: Doubt = ""
    repeats = None
    if distance - half > threshold:
        verdict = "ok"
    elif distance + half >= threshold:
        doubt = "noise"
        repeats = _needed_repeats(estimate, bounds)
    elif distance < -bounds.limit:
        verdict = "slow"
    else:
        doubt = "spread"
    ratio = 1 + distance
    low, high = max(0.0, ratio - half), ratio + half
    return NodeRatio(name, ratio, low, high, verdict, doubt, repeats)


def _needed_repeats(estimate: Estimated, bounds: Bounds) -> int | None:
    """Return the number of repeats of every node, in a new measurement, that will decide a node
    with the rules' power; None if it exceeds MOST_REPEATS. The node's true distance is as
    uncertain as its estimate. It is an upper bound: critical values fall with more repeats."""
    if not estimate.error:
        return None
    repeats = np.arange(estimate.repeats + 1, MOST_REPEATS + 1)
    share = estimate.repeats / repeats
    error = estimate.error * np.sqrt(share)
    half = bounds.critical.interval * error
    between = max(0.0, bounds.spread**2 - bounds.usual_error**2)
    limit = bounds.critical.outlier * np.sqrt(between + bounds.usual_error**2 * share)
    threshold = bounds.rules.threshold
    slow_below = -np.maximum(threshold + half, limit)
    ok_above = half - threshold
    new_error = np.hypot(estimate.error, error)
    power = ndtr((slow_below - estimate.distance) / new_error)
    power += ndtr((estimate.distance - ok_above) / new_error)
    decides = power >= bounds.rules.power
    return int(repeats[decides][0]) if decides.any() else None


@cache
def critical_values(
    counts: tuple[int, ...], level: float, difference: float = 0.0
) -> CriticalValues:
    """Return the critical values for nodes with these numbers of repeats: the quantiles, at
    `level`, of the largest studentized error of a distance, with normal noise and nodes that
    have this `difference`, and of the lowest node of a normally distributed fleet."""
    largest: list[np.ndarray] = []
    lowest: list[np.ndarray] = []
    for drawn in _drawn_fleets(np.array(counts), level, difference):
        error = drawn.statistics.distance - difference * drawn.distance * drawn.unit
        studentized = np.abs(error) / drawn.statistics.error
        largest.append(studentized.max(axis=-1))
        lowest.append((-drawn.distance / _spread(drawn.distance)).max(axis=-1))
    return CriticalValues(
        interval=float(np.quantile(np.concatenate(largest), level)),
        outlier=float(np.quantile(np.concatenate(lowest), level)),
    )


class _Drawn(NamedTuple):
    """Drawn fleets: the true distances of standard normal nodes from their median; `unit`, the
    usual standard error of a node; and the statistics of repeats with standard normal noise of
    nodes that differ by a multiple of `unit`."""

    distance: np.ndarray
    unit: float
    statistics: _Statistics


def _drawn_fleets(counts: np.ndarray, level: float, difference: float) -> Iterator[_Drawn]:
    """Yield blocks of drawn fleets."""
    random = np.random.default_rng(0)
    unit = 1 / sqrt(np.median(counts))
    fleets = ceil(TAIL_DRAWS / (1 - level))
    block = max(1, BLOCK_VALUES // len(counts))
    for begin in range(0, fleets, block):
        shape = (min(block, fleets - begin), len(counts))
        nodes = random.standard_normal(shape)
        means = difference * unit * nodes + random.standard_normal(shape) / np.sqrt(counts)
        # The sample variance of normal noise, which is independent of the mean.
        variances = random.chisquare(counts - 1, shape) / (counts - 1)
        yield _Drawn(
            distance=nodes - np.median(nodes, axis=-1, keepdims=True),
            unit=unit,
            statistics=_statistics(means, np.sqrt(variances), counts),
        )
