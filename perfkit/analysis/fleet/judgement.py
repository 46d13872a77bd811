"""Judge which nodes of a fleet are slow, from the repeats of each node.

The model, of throughputs relative to the fleet's median: a repeat of node i is m_i + e, where
the noise e has the same kind of distribution on every node; the good nodes' m_i are normally
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
with a fixed seed for the numbers of nodes and repeats at hand. `benchmarks/simulations.py
fleet` checks the rates of false alarms and of slow nodes found.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil
from statistics import NormalDist
from typing import Literal, NamedTuple

import numpy as np

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
    # Sorted, so that fleets with the same numbers of repeats share the drawn values.
    critical = critical_values(tuple(sorted(counts)), round(rules.column_level, 9))
    scale = np.maximum(statistics.spread, statistics.usual_error).item()
    limit = critical.outlier * scale
    nodes = []
    for index, node in enumerate(fleet):
        distance = statistics.distance[index].item()
        error = statistics.error[index].item()
        ratio = _ratio(node, distance, error, critical.interval, limit, rules)
        nodes.append(ratio)
    return FleetColumn(
        median=centre,
        noise=float(np.median(deviations)),
        spread=scale,
        limit=limit,
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


def _ratio(
    node: NodeRepeats,
    distance: float,
    error: float,
    quantile: float,
    limit: float,
    rules: Rules,
) -> NodeRatio:
    """Return the verdict on a node. `distance` from the median and `error` are relative to it;
    `quantile` errors are half of the simultaneous interval."""
    threshold = -rules.threshold
    half = quantile * error
    verdict: Verdict = "undecided"
    doubt: Doubt = ""
    repeats = None
    if distance - half > threshold:
        verdict = "ok"
    elif distance + half >= threshold:
        doubt = "noise"
        decided_at = quantile + NormalDist().inv_cdf(rules.power)
        needed = (decided_at * error / abs(distance - threshold)) ** 2
        repeats = _repeats(needed * len(node.throughputs))
    elif distance < -limit:
        verdict = "slow"
    else:
        doubt = "spread"
    ratio = 1 + distance
    low, high = max(0.0, ratio - half), ratio + half
    return NodeRatio(node.node, ratio, low, high, verdict, doubt, repeats)


def _repeats(needed: float) -> int | None:
    return ceil(needed) if needed <= MOST_REPEATS else None


class CriticalValues(NamedTuple):
    """Half of a simultaneous interval, in standard errors of the node; and the distance below
    the median that a good node does not exceed, in standard deviations between nodes."""

    interval: float
    outlier: float


@cache
def critical_values(counts: tuple[int, ...], level: float) -> CriticalValues:
    """Return the critical values for nodes with these numbers of repeats: the quantiles, at
    `level`, of the largest studentized distance of equal nodes with normal noise, and of the
    lowest node of a normally distributed fleet."""
    largest: list[np.ndarray] = []
    lowest: list[np.ndarray] = []
    for statistics, between in _drawn_fleets(np.array(counts), level):
        studentized = np.abs(statistics.distance) / statistics.error
        largest.append(studentized.max(axis=-1))
        distance = between - np.median(between, axis=-1, keepdims=True)
        lowest.append((-distance / _spread(distance)).max(axis=-1))
    return CriticalValues(
        interval=float(np.quantile(np.concatenate(largest), level)),
        outlier=float(np.quantile(np.concatenate(lowest), level)),
    )


def _drawn_fleets(counts: np.ndarray, level: float) -> Iterator[tuple[_Statistics, np.ndarray]]:
    """Yield, for blocks of drawn fleets, the statistics of equal nodes with normal noise, and
    standard normal nodes."""
    random = np.random.default_rng(0)
    fleets = ceil(TAIL_DRAWS / (1 - level))
    block = max(1, BLOCK_VALUES // len(counts))
    for begin in range(0, fleets, block):
        shape = (min(block, fleets - begin), len(counts))
        means = random.standard_normal(shape) / np.sqrt(counts)
        # The sample variance of normal noise, which is independent of the mean.
        variances = random.chisquare(counts - 1, shape) / (counts - 1)
        statistics = _statistics(means, np.sqrt(variances), counts)
        yield statistics, random.standard_normal(shape)
