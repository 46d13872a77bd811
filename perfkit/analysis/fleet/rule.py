"""The rule by which a node of a fleet is slow, from the repeats of all nodes.

A node's ratio is the mean of its repeats / the median of the other nodes' means. Its interval
follows from the noise of the repeats. A node is

- ok, if its interval lies above 1 - threshold: it is not slower than by what matters;
- slow, if its interval lies below 1 - threshold and its ratio below the limit: good nodes
  differ, too, and no good one of this fleet is expected below it;
- undecided otherwise.

Interval and limit are quantiles of Student's t. By Bonferroni's inequality, their level holds
for all nodes and columns of the fleet together. The spread between nodes is the median absolute
deviation, which slow nodes hardly affect as long as most are good. That the limit takes as many
degrees of freedom as a standard deviation of all nodes has, was chosen by simulation:
`benchmarks/simulations.py fleet_alarms fleet_power` shows how often good nodes are called slow,
and slow ones found.
"""

from collections.abc import Sequence
from math import pi, sqrt
from statistics import fmean, median
from typing import NamedTuple

from pydantic import Field
from scipy.special import stdtrit

from perfkit.analysis.fleet.stored import NodeCell, Verdict
from perfkit.measuring.results.base import Stored

FEWEST_NODES = 3
"""With two nodes, nothing tells which of them is unusual."""
FEWEST_REPEATS = 2
DEVIATION_OF_NORMAL = 1.4826
"""Standard deviation / median absolute deviation of a normal distribution."""


class NodeRepeats(NamedTuple):
    """A node, the folder of its measurement and the values of its repeats, in any unit."""

    node: str
    folder: str
    values: Sequence[float]

    @property
    def mean(self) -> float:
        return fmean(self.values)

    @property
    def deviation(self) -> float:
        """Standard deviation of the repeats, in the values' unit."""
        mean = self.mean
        squares = sum((value - mean) ** 2 for value in self.values)
        return sqrt(squares / (len(self.values) - 1))


class Rules(Stored):
    """How nodes are judged."""

    level: float = Field(default=0.95, ge=0.5, lt=1)
    """the probability that no good node of the fleet is called slow"""
    columns: int = Field(default=1, ge=1)
    """the number of workloads and peaks that are judged together, over which the level holds"""
    threshold: float = Field(default=0.02, ge=0, lt=1)
    """the smallest slowness that matters, as a share"""

    def quantile(self, nodes: int, freedom: float) -> float:
        """Return Student's quantile for a fleet of so many nodes, two-sided."""
        tail = (1 - self.level) / (2 * nodes * self.columns)
        return float(stdtrit(freedom, 1 - tail))


USUAL_RULES = Rules()


class Judgement(NamedTuple):
    """The nodes of a fleet under one workload. `median`: of their means; `noise`: the usual
    standard deviation of a node's repeats, as a share; `limit`: the ratio below which no good
    node is expected."""

    median: float
    noise: float
    limit: float
    cells: list[NodeCell]


def judge(fleet: Sequence[NodeRepeats], rules: Rules) -> Judgement:
    """Judge the nodes of a fleet under one workload.

    Raises ValueError for fewer than FEWEST_NODES nodes or FEWEST_REPEATS repeats of a node.
    """
    counts = [len(node.values) for node in fleet]
    if len(fleet) < FEWEST_NODES or min(counts) < FEWEST_REPEATS:
        raise ValueError(f"{len(fleet)} nodes with {min(counts, default=0)} repeats or more")
    means = [node.mean for node in fleet]
    middle = median(means)
    deviations = [node.deviation / middle for node in fleet]
    noise = median(deviations)
    spread = max(_spread_between(means), noise / sqrt(median(counts)))
    limit = max(0.0, 1 - rules.quantile(len(fleet), len(fleet) - 1) * spread)
    # The median of normal values has this variance, in variances of their mean.
    with_error_of_others = sqrt(1 + pi / 2 / (len(fleet) - 1))
    errors = rules.quantile(len(fleet), sum(counts) - len(fleet)) * with_error_of_others
    cells = []
    for index, node in enumerate(fleet):
        others = means[:index] + means[index + 1 :]
        # A node noisier than the others keeps its noise; one whose few repeats happen to agree
        # is not less noisy.
        error = max(deviations[index], noise) / sqrt(counts[index])
        cells.append(_cell(node, median(others), errors * error, limit, rules.threshold))
    return Judgement(middle, noise, limit, cells)


def _spread_between(means: Sequence[float]) -> float:
    """Return the robust standard deviation between nodes, as a share of their median. In small
    samples, the median absolute deviation is too low by this factor (Croux and Rousseeuw 1992,
    for over 9 values; it is near for fewer)."""
    middle = median(means)
    deviation = median(abs(mean / middle - 1) for mean in means)
    small_sample = len(means) / (len(means) - 0.8)
    return DEVIATION_OF_NORMAL * small_sample * deviation


def _cell(
    node: NodeRepeats, others: float, half: float, limit: float, threshold: float
) -> NodeCell:
    """Return the verdict on a node; `half`: of the interval of its ratio to the others."""
    ratio = node.mean / others
    low, high = ratio - half, ratio + half
    verdict: Verdict = "undecided"
    if low > 1 - threshold:
        verdict = "ok"
    elif high < 1 - threshold and ratio < limit:
        verdict = "slow"
    return NodeCell(
        node=node.node,
        folder=node.folder,
        value=node.mean,
        n=len(node.values),
        ratio=ratio,
        low=max(0.0, low),
        high=high,
        verdict=verdict,
    )
