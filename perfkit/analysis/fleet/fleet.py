"""Judge a fleet from the measurements of its nodes, each of which names its `node`."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from gettext import NullTranslations
from statistics import fmean, median
from typing import Any, NamedTuple

from perfkit.analysis.comparison.blocks import named, numbered
from perfkit.analysis.comparison.history import SERIES, series_names
from perfkit.analysis.fleet.explanations import Explanation, PeakLower, explanations, state_of
from perfkit.analysis.fleet.judgement import (
    FEWEST_NODES,
    FEWEST_REPEATS,
    USUAL_RULES,
    NodeRepeats,
    Rules,
    judge,
)
from perfkit.analysis.fleet.stored import (
    Fleet,
    FleetColumn,
    FleetNode,
    NodeCell,
    PastRatio,
    Quantity,
)
from perfkit.core.frameworks import DISPLAY_NAMES
from perfkit.core.results.frames import as_frame, records, row_of
from perfkit.core.results.schema import Result
from perfkit.core.results.store import Measurement
from perfkit.core.statements import ENGLISH, N_

WORKLOAD = [column for column in SERIES if column != "node"]
"""Columns in which the measurements of a fleet's workload agree: work, protocol and hardware,
so that nodes of different kinds are judged apart."""


class PeakQuantity(NamedTuple):
    """A peak that the workers measure: its name, the field of a repeat's peak, and the unit in
    which it is stored here, with its size in the field's unit."""

    name: str
    field: str
    unit: str
    size: float


PEAKS: dict[Quantity, PeakQuantity] = {
    "matmul": PeakQuantity(
        N_("matrix product"), "sustained_matmul_flops_per_second", "TFLOP/s", 1e12
    ),
    "copy": PeakQuantity(N_("copy"), "sustained_copy_bytes_per_second", "GB/s", 1e9),
    "all_reduce": PeakQuantity(N_("all-reduce"), "all_reduce_bytes_per_second", "GB/s", 1e9),
}
SEVERITY = {"slow": 0, "undecided": 1, "ok": 2}
"""Order of verdicts."""


@dataclass(frozen=True)
class Workload:
    """One workload of a fleet: its name, and the measurements of each node, oldest first."""

    name: str
    by_node: dict[str, list[Measurement]]

    @property
    def newest(self) -> list[Measurement]:
        """The newest measurement of each node."""
        return [measurements[-1] for measurements in self.by_node.values()]


@dataclass(frozen=True)
class Column:
    """What is judged: a quantity of a workload, and the repeats of each node."""

    workload: Workload
    quantity: Quantity
    repeats: list[NodeRepeats]

    @property
    def problem(self) -> str | None:
        """Why it can't be judged."""
        fewest = min((len(node.throughputs) for node in self.repeats), default=0)
        if len(self.repeats) < FEWEST_NODES:
            return f"{len(self.repeats)} nodes; at least {FEWEST_NODES} are compared"
        if fewest < FEWEST_REPEATS:
            return f"a node has {fewest} complete repeats; at least {FEWEST_REPEATS} are needed"
        return None


def judge_fleet(
    measurements: Iterable[Measurement],
    rules: Rules = USUAL_RULES,
    language: NullTranslations = ENGLISH,
) -> Fleet:
    """Judge the nodes of a fleet. Measurements without a node or without a complete repeat do
    not count; of several measurements of a workload on a node, the newest does. The level of
    the rules holds over all columns."""
    workloads = [*_workloads(measurements, language)]
    judged = []
    not_judged = []
    for column in _columns(workloads):
        if column.problem is None:
            judged.append(column)
        elif column.quantity == "throughput":
            # Peaks are missing where no rank could measure them.
            not_judged.append(f"{column.workload.name}: {column.problem}")
    rules = replace(rules, columns=len(judged) or 1)
    columns = [_judged(column, rules, language) for column in judged]
    return Fleet(
        level=rules.level,
        threshold=rules.threshold,
        power=rules.power,
        columns=columns,
        nodes=_nodes(columns, workloads),
        not_judged=not_judged,
    )


def _workloads(
    measurements: Iterable[Measurement], language: NullTranslations
) -> Iterator[Workload]:
    """Yield the workloads among the measurements that name a node and have a throughput."""
    by_folder = {}
    for measurement in measurements:
        if measurement.result.config.node and measurement.result.throughput:
            by_folder[measurement.folder.name] = measurement
    if not by_folder:
        return
    frame = named(as_frame(map(row_of, by_folder.values())))
    frame = frame.sort_values(["created", "folder"])
    frame["series"] = numbered(frame, WORKLOAD)
    names = series_names(frame, WORKLOAD, language)
    for number, rows in frame.groupby("series", sort=False):
        by_node: dict[str, list[Measurement]] = {}
        for row in records(rows):
            by_node.setdefault(row["node"], []).append(by_folder[row["folder"]])
        yield Workload(names[number], by_node)


def _columns(workloads: Sequence[Workload]) -> Iterator[Column]:
    """Yield a column for each workload, then one for each peak. Workloads of one framework, in
    one precision, on the same devices measure the same peaks: the first of them counts."""
    for workload in workloads:
        repeats = []
        for node, measurements in workload.by_node.items():
            repeats.append(NodeRepeats(node, measurements[-1].result.throughputs))
        yield Column(workload, "throughput", repeats)
    first: dict[Any, Workload] = {}
    for workload in workloads:
        first.setdefault(_peak_key(workload.newest[0].result), workload)
    for workload in first.values():
        for quantity in PEAKS:
            yield Column(workload, quantity, _peaks(workload, quantity))


def _peak_key(result: Result) -> tuple[Any, ...]:
    config = result.built_in
    precision = result.effective.precision if result.effective else config.precision
    hardware = (result.fact("cpu"), result.fact("cpu_cores"), str(result.fact("gpus")))
    return (config.framework, precision, config.device, config.topology, *hardware)


def _peaks(workload: Workload, quantity: Quantity) -> list[NodeRepeats]:
    """Return a peak of each node's repeats; none for nodes without it."""
    peak = PEAKS[quantity]
    repeats = []
    for node, measurements in workload.by_node.items():
        values = []
        for repeat in measurements[-1].result.complete_repeats:
            rate = getattr(repeat.peak, peak.field, None)
            if rate is not None:
                values.append(rate / peak.size)
        if values:
            repeats.append(NodeRepeats(node, values))
    return repeats


def _judged(column: Column, rules: Rules, language: NullTranslations) -> FleetColumn:
    judgement = judge(column.repeats, rules)
    workload = column.workload
    first = workload.newest[0].result
    assert first.throughput
    name, unit = workload.name, str(first.throughput.unit)
    peak = PEAKS.get(column.quantity)
    if peak:
        framework = DISPLAY_NAMES[first.config.framework]
        precision = first.effective.precision if first.effective else first.built_in.precision
        traits = [language.gettext(peak.name), framework, precision, first.config.topology]
        name, unit = " · ".join(traits), peak.unit
    past = _past(workload) if column.quantity == "throughput" else {}
    cells = []
    for repeats, ratio in zip(column.repeats, judgement.nodes, strict=True):
        cell = NodeCell(
            node=ratio.node,
            folder=workload.by_node[ratio.node][-1].folder.name,
            value=median(repeats.throughputs),
            n=len(repeats.throughputs),
            ratio=ratio.ratio,
            low=ratio.low,
            high=ratio.high,
            verdict=ratio.verdict,
            doubt=ratio.doubt,
            repeats=ratio.repeats,
            past=past.get(ratio.node, []),
        )
        cells.append(cell)
    return FleetColumn(
        name=name,
        quantity=column.quantity,
        unit=unit,
        median=judgement.median,
        noise=judgement.noise,
        spread=judgement.spread,
        limit=judgement.limit,
        cells=cells,
    )


def _past(workload: Workload) -> dict[str, list[PastRatio]]:
    """Return the ratios of each node's measurements before the newest. The measurements with
    one label are compared with each other."""
    by_label: dict[str, dict[str, Result]] = {}
    for node, measurements in workload.by_node.items():
        for measurement in measurements[:-1]:
            result = measurement.result
            by_label.setdefault(result.config.label, {})[node] = result
    past: dict[str, list[PastRatio]] = {}
    for label, results in by_label.items():
        means = {node: fmean(result.throughputs) for node, result in results.items()}
        middle = median(means.values())
        for node, mean in means.items():
            created = results[node].created
            ratio = PastRatio(label=label, created=created, ratio=mean / middle)
            past.setdefault(node, []).append(ratio)
    for ratios in past.values():
        ratios.sort(key=lambda ratio: ratio.created)
    return past


def _nodes(columns: list[FleetColumn], workloads: list[Workload]) -> list[FleetNode]:
    """Return the nodes over all columns, slow ones first."""
    cells: dict[str, list[NodeCell]] = {}
    for column in columns:
        for cell in column.cells:
            cells.setdefault(cell.node, []).append(cell)
    nodes = []
    for name, of_node in cells.items():
        verdict = min((cell.verdict for cell in of_node), key=SEVERITY.__getitem__)
        node = FleetNode(
            node=name,
            verdict=verdict,
            lowest=min(cell.ratio for cell in of_node),
            explanations=_explanations(name, columns, workloads) if verdict == "slow" else [],
        )
        nodes.append(node)
    return sorted(nodes, key=lambda node: (SEVERITY[node.verdict], node.lowest))


def _explanations(
    name: str, columns: list[FleetColumn], workloads: list[Workload]
) -> list[Explanation]:
    """Return in what a slow node differs from the other nodes that share a workload with it."""
    slower_peaks: list[Explanation] = []
    for column in columns:
        for cell in column.cells:
            if cell.node == name and cell.verdict == "slow" and column.quantity in PEAKS:
                slower_peaks.append(PeakLower(peak=column.name, share=cell.ratio))
    results: dict[str, list[Result]] = {}
    for workload in workloads:
        if name in workload.by_node:
            for node, measurements in workload.by_node.items():
                results.setdefault(node, []).append(measurements[-1].result)
    states = {node: state_of(of_node) for node, of_node in results.items()}
    others = [state for node, state in states.items() if node != name]
    return [*slower_peaks, *explanations(states[name], others)]
