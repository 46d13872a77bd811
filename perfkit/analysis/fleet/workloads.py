"""The workloads of a fleet, and which of them a node lacks."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from gettext import NullTranslations
from typing import Any, ClassVar

from perfkit.analysis.comparison.blocks import named, numbered
from perfkit.analysis.comparison.history import SERIES, series_names
from perfkit.analysis.comparison.keys import WORK
from perfkit.analysis.fleet.judgement import FEWEST_NODES, FEWEST_REPEATS
from perfkit.core.results.frames import as_frame, row_of
from perfkit.core.results.schema import Result
from perfkit.core.results.store import Measurement
from perfkit.core.script_config import ScriptConfig
from perfkit.core.statements import N_, Statement

WORKLOAD = [column for column in SERIES if column != "node"]
"""Columns in which the measurements of a fleet's workload agree: work, protocol and hardware,
so that nodes of different kinds are judged apart."""
REQUESTED = [name for name in WORK if name != "node"]
"""Parameters of the work, which failed measurements have too."""
RequestedWork = tuple[Any, ...]


class Gap(Statement):
    """Why a node has no number that counts under a workload."""

    classes: ClassVar = {}
    workload: str
    """name of the workload"""


class WorkloadFailed(Gap):
    code = "workload_failed"
    sentence = N_("failed (%(failure)s): %(workload)s")
    failure: str
    """code of the failure"""


class FewRepeats(Gap):
    code = "few_repeats"
    sentence = N_("complete repeats: %(repeats)s, at least 2 are needed: %(workload)s")
    repeats: int


class NotMeasured(Gap):
    """Most nodes of this kind have a measurement, but this one has none."""

    code = "not_measured"
    sentence = N_("not measured: %(workload)s")


class Outdated(Gap):
    """Most nodes were measured anew since, with another label."""

    code = "outdated"
    sentence = N_("not measured with the label %(label)s, as most others: %(workload)s")
    label: str


class FewNodes(Gap):
    """Too few nodes of this kind have a measurement."""

    code = "few_nodes"
    sentence = N_("nodes of its kind: %(nodes)s, at least 3 are compared: %(workload)s")
    nodes: int


@dataclass(frozen=True)
class Workload:
    """One workload of a fleet: its name, and the measurements of each node, oldest first."""

    name: str
    by_node: dict[str, list[Measurement]]

    @property
    def newest(self) -> list[Measurement]:
        """The newest measurement of each node."""
        return [measurements[-1] for measurements in self.by_node.values()]

    @cached_property
    def label(self) -> str | None:
        """The label with which more than half of the nodes were measured last; None if no label
        is that frequent."""
        labels = Counter(measurement.result.config.label for measurement in self.newest)
        label, count = labels.most_common(1)[0]
        return label if 2 * count > len(self.by_node) else None

    @cached_property
    def outdated(self) -> set[str]:
        """The nodes that were measured last before the first one with the label of most: the
        software of the fleet may have changed since."""
        results = {node: each[-1].result for node, each in self.by_node.items()}
        others = {node for node in results if results[node].config.label != self.label}
        if self.label is None or not others:
            return set()
        begin = min(results[node].created for node in results.keys() - others)
        return {node for node in others if results[node].created < begin}

    @cached_property
    def judged_nodes(self) -> list[str]:
        """The nodes with enough repeats in a measurement that is not outdated."""
        current = [node for node in self.by_node if node not in self.outdated]
        return [node for node in current if self.repeats(node) >= FEWEST_REPEATS]

    def repeats(self, node: str) -> int:
        """Return the number of complete repeats of a node."""
        return len(self.by_node[node][-1].result.throughputs)


def workloads_of(
    measurements: Iterable[Measurement], language: NullTranslations
) -> Iterator[Workload]:
    """Yield the workloads among the measurements of nodes that have a throughput."""
    completed = [each for each in measurements if each.result.throughput]
    for name, alike in _named_groups(completed, language):
        by_node: dict[str, list[Measurement]] = {}
        for measurement in alike:
            by_node.setdefault(measurement.result.config.node, []).append(measurement)
        yield Workload(name, by_node)


def failed_everywhere(
    measurements: Iterable[Measurement],
    workloads: Iterable[Workload],
    language: NullTranslations,
) -> dict[RequestedWork, str]:
    """Return the names of the requested works that none of the workloads has: no node has
    completed them."""
    completed = {requested_work(workload.newest[0].result) for workload in workloads}
    failed = [each for each in measurements if requested_work(each.result) not in completed]
    names = {}
    for name, alike in _named_groups(failed, language):
        names[requested_work(alike[0].result)] = name
    return names


def _named_groups(
    measurements: Iterable[Measurement], language: NullTranslations
) -> Iterator[tuple[str, list[Measurement]]]:
    """Yield the measurements that agree in WORKLOAD, oldest first, with their name."""
    by_folder = {measurement.folder.name: measurement for measurement in measurements}
    if not by_folder:
        return
    frame = named(as_frame(map(row_of, by_folder.values())))
    frame = frame.sort_values(["created", "folder"])
    frame["series"] = numbered(frame, WORKLOAD)
    names = series_names(frame, WORKLOAD, language)
    for number, rows in frame.groupby("series", sort=False):
        yield names[number], [by_folder[folder] for folder in rows["folder"]]


def hardware_of(result: Result) -> tuple[str, ...]:
    """Return the facts that tell kinds of nodes apart."""
    return tuple(str(result.fact(name)) for name in ("cpu", "cpu_cores", "gpus"))


def requested_work(result: Result) -> RequestedWork:
    """Return the work that a measurement was asked for."""
    config = result.config
    if isinstance(config, ScriptConfig):
        return (config.topology, config.script_sha256, config.arguments)
    values = [getattr(config, name) for name in REQUESTED]
    return (config.topology, config.precision, *values)


def gaps_of(
    node: str,
    measurements: Sequence[Measurement],
    workloads: Sequence[Workload],
    failed: Mapping[RequestedWork, str],
) -> Iterator[Gap]:
    """Yield why a node, with these measurements, has no number that counts under workloads
    that are judged or were measured on this node, and under those that `failed` on all nodes
    (see failed_everywhere)."""
    kinds = {hardware_of(measurement.result) for measurement in measurements}
    of_kind: set[str] = set()
    for workload in workloads:
        if hardware_of(workload.newest[0].result) in kinds:
            of_kind |= workload.by_node.keys()
    for workload in workloads:
        failure = _newest_failure(measurements, requested_work(workload.newest[0].result))
        is_of_kind = hardware_of(workload.newest[0].result) in kinds
        nodes = len(workload.judged_nodes)
        if failure:
            # First: a failure counts even if too few other nodes have completed the work.
            yield WorkloadFailed(workload=workload.name, failure=failure)
        elif nodes < FEWEST_NODES:
            if node in workload.by_node:
                yield FewNodes(workload=workload.name, nodes=nodes)
        elif node in workload.outdated:
            yield Outdated(workload=workload.name, label=workload.label or "")
        elif node in workload.by_node:
            if workload.repeats(node) < FEWEST_REPEATS:
                yield FewRepeats(workload=workload.name, repeats=workload.repeats(node))
        elif is_of_kind and 2 * nodes > len(of_kind):
            yield NotMeasured(workload=workload.name)
    for work, name in failed.items():
        failure = _newest_failure(measurements, work)
        if failure:
            yield WorkloadFailed(workload=name, failure=failure)


def _newest_failure(measurements: Sequence[Measurement], work: RequestedWork) -> str | None:
    """Return the code of the failure if a node's newest measurement of this work failed."""
    results = [each.result for each in measurements if requested_work(each.result) == work]
    newest = max(results, key=lambda result: result.created, default=None)
    if newest is None or newest.throughput:
        return None
    return newest.failure.code if newest.failure else newest.status
