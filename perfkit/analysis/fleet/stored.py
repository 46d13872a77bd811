"""A judged fleet, as `perfkit fleet --json` writes it."""

import re
from collections import Counter
from typing import Literal

from pydantic import Field

from perfkit.analysis.comparison.configurations import Configuration
from perfkit.measuring.results.base import Stored

DIGITS = re.compile("([0-9]+)")
Quantity = Literal["throughput", "matmul", "copy"]
"""What a column compares: the throughput of a workload, or a peak that its workers measured."""
Verdict = Literal["slow", "ok", "undecided"]
NodeVerdict = Literal["slow", "no measurement", "undecided", "ok"]


def name_order(name: str) -> list[str | int]:
    """Return the key by which names are sorted: node2 comes before node10."""
    parts = DIGITS.split(name)
    return [int(part) if index % 2 else part for index, part in enumerate(parts)]


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
    """its value / the median of the other nodes' values"""
    low: float
    """lower end of the ratio's interval"""
    high: float
    """upper end"""
    verdict: Verdict
    """slow, ok or undecided"""


class FleetColumn(Stored):
    """The nodes under one workload, or by one peak."""

    workload: Configuration
    """the workload, or a workload whose workers measured the peak"""
    quantity: Quantity
    """what is compared"""
    unit: str
    """unit of the values"""
    median: float
    """median of the nodes' values"""
    noise: float
    """usual standard deviation of a node's repeats, as a share"""
    limit: float
    """ratio below which no good node is expected"""
    cells: list[NodeCell]
    """one for each node"""


class Missing(Stored):
    """A workload of which a node has no complete measurement."""

    workload: Configuration
    """the workload"""
    failure: str
    """code of the failure, if it failed; otherwise empty"""


class Difference(Stored):
    """In what a node differs from the others."""

    fact: str
    """clock_mhz, celsius, throttled, label or a fact of the environment"""
    value: str
    """of the node"""
    others: str
    """of the others: the lowest clock, the highest temperature or the most frequent value"""


class FleetNode(Stored):
    """A node of the fleet over all columns."""

    node: str
    """name of the node"""
    verdict: NodeVerdict
    """slow if any column is; otherwise no measurement if any is missing; otherwise ok if all
    columns are"""
    differences: list[Difference] = Field([])
    """of a slow node, in what it differs from nodes that are not slow"""
    missing: list[Missing] = Field([])
    """workloads of which it has no complete measurement"""


class Fleet(Stored):
    """A judged fleet. Shares are of 1."""

    schema_version: Literal[3] = 3
    """readers refuse any other"""
    level: float
    """probability that no good node is called slow in any column"""
    threshold: float
    """smallest slowness that matters"""
    columns: list[FleetColumn]
    """workloads first, then peaks"""
    nodes: list[FleetNode]
    """slow nodes first, then those without a measurement, undecided and ok ones, each by their
    lowest ratio of all columns"""
    too_few: list[Configuration] = Field([])
    """workloads that fewer than three nodes completed"""

    def named(self, verdict: NodeVerdict) -> list[str]:
        """Return the names of the nodes with a verdict, sorted."""
        names = [node.node for node in self.nodes if node.verdict == verdict]
        return sorted(names, key=name_order)

    @property
    def counts(self) -> Counter[NodeVerdict]:
        """Number of nodes by verdict."""
        return Counter(node.verdict for node in self.nodes)
