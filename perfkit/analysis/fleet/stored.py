"""A judged fleet, as `perfkit fleet --json` writes it."""

import re
from collections import Counter
from typing import Literal

from pydantic import Field

from perfkit.analysis.fleet.explanations import Explanation
from perfkit.analysis.fleet.judgement import Doubt, Verdict
from perfkit.analysis.fleet.workloads import Gap
from perfkit.core.results.base import Stored

DIGITS = re.compile("([0-9]+)")
Quantity = Literal["throughput", "matmul", "copy"]
"""What a column compares: the throughput of a workload, or a peak that its workers measured."""


def name_order(name: str) -> list[str | int]:
    """Return the key by which names are sorted: node2 comes before node10."""
    parts = DIGITS.split(name)
    return [int(part) if index % 2 else part for index, part in enumerate(parts)]


class PastRatio(Stored):
    """A node's ratio to the fleet's median in earlier measurements with one label."""

    label: str
    """the label; empty for measurements without one"""
    created: str
    """when the measurement was started; UTC, ISO 8601"""
    ratio: float
    """mean of its repeats / median of the means of the nodes measured with this label"""


class NodeCell(Stored):
    """A node in one column."""

    node: str
    """name of the node"""
    folder: str
    """folder of the measurement"""
    value: float
    """mean over the repeats, in the column's unit"""
    n: int
    """number of complete repeats"""
    ratio: float
    """its value / the column's median"""
    low: float
    """lower end of the ratio's interval; the intervals of all nodes hold at the same time"""
    high: float
    """upper end"""
    verdict: Verdict
    """slow, ok or undecided"""
    doubt: Doubt = ""
    """why it is undecided: noise, too few repeats for this noise; spread, good nodes of this
    fleet differ as much; empty if it is decided"""
    repeats: int | None = None
    """repeats that would decide it with the stated power; None if none would"""
    past: list[PastRatio] = Field([])
    """ratios of earlier measurements, in chronological order"""


class FleetColumn(Stored):
    """The nodes under one workload."""

    name: str
    """configuration, and what distinguishes it from other columns"""
    quantity: Quantity
    """what is compared"""
    unit: str
    """unit of the values"""
    median: float
    """value of the fleet's median node"""
    noise: float
    """usual standard deviation of a node's repeats, as a share"""
    spread: float
    """standard deviation between good nodes, noise included, as a share"""
    limit: float
    """share below the median beyond which no good node is expected"""
    cells: list[NodeCell]
    """one for each node"""


class FleetNode(Stored):
    """A node of the fleet over all columns."""

    node: str
    """name of the node"""
    verdict: Verdict
    """slow if any column is, otherwise undecided if any is, or if it has a gap"""
    lowest: float | None
    """its lowest ratio of all columns; None if it is in no column"""
    explanations: list[Explanation] = Field([])
    """for a slow node, in what it differs from nodes that are not slow"""
    gaps: list[Gap] = Field([])
    """workloads for which it has no number that counts, and why"""


class Fleet(Stored):
    """A judged fleet. Shares are of 1."""

    schema_version: Literal[1] = 1
    """readers refuse any other"""
    level: float
    """probability that no good node is called slow in any column"""
    threshold: float
    """smallest slowness that matters"""
    power: float
    """probability of a decision that the recommended repeats reach"""
    columns: list[FleetColumn]
    """workloads first, then peaks"""
    nodes: list[FleetNode]
    """slow nodes first, then those with gaps, then by their lowest ratio"""
    not_judged: list[str] = Field([])
    """why measurements are in no column"""

    def named(self, verdict: Verdict) -> list[str]:
        """Return the names of the nodes with a verdict, sorted."""
        names = [node.node for node in self.nodes if node.verdict == verdict]
        return sorted(names, key=name_order)

    @property
    def counts(self) -> Counter[Verdict]:
        """Number of nodes by verdict."""
        return Counter(node.verdict for node in self.nodes)
