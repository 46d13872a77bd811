"""Judge a fleet from the measurements of its nodes, each of which names its `node`."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from gettext import NullTranslations
from itertools import chain
from statistics import fmean, median
from typing import Any, NamedTuple

from perfkit.analysis.fleet.explanations import Explanation, PeakLower, explanations, state_of
from perfkit.analysis.fleet.judgement import (
    FEWEST_NODES,
    FEWEST_REPEATS,
    USUAL_RULES,
    NodeRepeats,
    Rules,
    Verdict,
    judge,
)
from perfkit.analysis.fleet.stored import (
    Fleet,
    FleetColumn,
    FleetNode,
    NodeCell,
    PastRatio,
    Quantity,
    name_order,
)
from perfkit.analysis.fleet.workloads import (
    FewNodes,
    Gap,
    Workload,
    failed_everywhere,
    gaps_of,
    hardware_of,
    workloads_of,
)
from perfkit.core.frameworks import DISPLAY_NAMES
from perfkit.core.results.schema import Result
from perfkit.core.results.store import Measurement
from perfkit.core.statements import ENGLISH, N_
from perfkit.core.units import GIGA, TERA


class PeakQuantity(NamedTuple):
    """A peak that the workers measure: its name, the field of a repeat's peak, and the unit in
    which it is stored here, with its size in the field's unit."""

    name: str
    field: str
    unit: str
    size: float


PEAKS: dict[Quantity, PeakQuantity] = {
    "matmul": PeakQuantity(
        N_("matrix product"), "sustained_matmul_flops_per_second", "TFLOP/s", TERA
    ),
    "copy": PeakQuantity(N_("copy"), "sustained_copy_bytes_per_second", "GB/s", GIGA),
}
SEVERITY = {"slow": 0, "undecided": 1, "ok": 2}
"""Order of verdicts."""


@dataclass(frozen=True)
class Column:
    """What is judged: a quantity of a workload, and the repeats of each node."""

    workload: Workload
    quantity: Quantity
    repeats: list[NodeRepeats]


def judge_fleet(
    measurements: Iterable[Measurement],
    rules: Rules = USUAL_RULES,
    language: NullTranslations = ENGLISH,
) -> Fleet:
    """Judge the nodes of a fleet. Measurements without a node do not count; of several
    measurements of a workload on a node, the newest does. The level of the rules holds over all
    columns."""
    by_node: dict[str, list[Measurement]] = {}
    for measurement in measurements:
        node = measurement.result.config.node
        if node:
            by_node.setdefault(node, []).append(measurement)
    of_nodes = [*chain(*by_node.values())]
    workloads = [*workloads_of(of_nodes, language)]
    failed = failed_everywhere(of_nodes, workloads, language)
    gaps = {}
    for node, measured in by_node.items():
        gaps[node] = [*gaps_of(node, measured, workloads, failed)]
    judged = []
    not_judged = []
    for column in _columns(workloads):
        if len(column.repeats) >= FEWEST_NODES:
            judged.append(column)
        elif column.quantity == "throughput":
            # Peaks are missing where no rank could measure them.
            not_judged.append(_too_few_nodes(column, language))
    rules = replace(rules, columns=len(judged) or 1)
    columns = [_judged(column, rules, language) for column in judged]
    return Fleet(
        level=rules.level,
        threshold=rules.threshold,
        power=rules.power,
        columns=columns,
        nodes=_nodes(columns, workloads, gaps),
        not_judged=not_judged,
    )


def _too_few_nodes(column: Column, language: NullTranslations) -> str:
    """Return why a workload is not judged, with the nodes that have a measurement."""
    workload = column.workload
    words = N_(
        "%(workload)s: nodes with two complete repeats: %(count)s, at least %(fewest)s are "
        "compared: %(names)s"
    )
    return language.gettext(words) % {
        "workload": workload.name,
        "count": len(column.repeats),
        "fewest": FEWEST_NODES,
        "names": ", ".join(sorted(workload.by_node, key=name_order)),
    }


def _columns(workloads: Sequence[Workload]) -> Iterator[Column]:
    """Yield a column for each workload, then one for each peak. Workloads of one framework, in
    one precision, on the same devices measure the same peaks: those of most nodes count."""
    for workload in workloads:
        repeats = []
        for node in workload.judged_nodes:
            newest = workload.by_node[node][-1].result
            repeats.append(NodeRepeats(node, newest.throughputs))
        yield Column(workload, "throughput", repeats)
    by_peak: dict[Any, list[Workload]] = {}
    for workload in workloads:
        by_peak.setdefault(_peak_key(workload.newest[0].result), []).append(workload)
    for alike in by_peak.values():
        for quantity in PEAKS:
            columns = [Column(each, quantity, _peaks(each, quantity)) for each in alike]
            yield max(columns, key=lambda column: len(column.repeats))


def _peak_key(result: Result) -> tuple[Any, ...]:
    config = result.config
    precision = _precision(result)
    return (config.framework, precision, config.device, config.topology, *hardware_of(result))


def _precision(result: Result) -> str | None:
    """Return the precision in which the workers measure the peak: for a script the one that it
    told; without any, they measure none."""
    if result.told:
        return result.told.precision
    if result.effective:
        return result.effective.precision
    return result.built_in.precision


def _peaks(workload: Workload, quantity: Quantity) -> list[NodeRepeats]:
    """Return a peak of each node's repeats; none for nodes where fewer than two have it."""
    peak = PEAKS[quantity]
    repeats = []
    for node in workload.judged_nodes:
        values = []
        for repeat in workload.by_node[node][-1].result.complete_repeats:
            rate = getattr(repeat.peak, peak.field, None)
            if rate is not None:
                values.append(rate / peak.size)
        if len(values) >= FEWEST_REPEATS:
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
        precision = _precision(first) or ""
        traits = [language.gettext(peak.name), framework, precision, first.config.topology]
        name, unit = " · ".join(traits), peak.unit
    past = _past(workload) if column.quantity == "throughput" else {}
    cells = []
    for repeats, ratio in zip(column.repeats, judgement.nodes, strict=True):
        cell = NodeCell(
            node=ratio.node,
            folder=workload.by_node[ratio.node][-1].folder.name,
            value=fmean(repeats.throughputs),
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
    one label are compared with each other; of fewer than FEWEST_NODES, nothing is known."""
    by_label: dict[str, dict[str, Result]] = {}
    for node, measurements in workload.by_node.items():
        for measurement in measurements:
            result = measurement.result
            by_label.setdefault(result.config.label, {})[node] = result
    past: dict[str, list[PastRatio]] = {}
    for label, results in by_label.items():
        if len(results) < FEWEST_NODES:
            continue
        means = {node: fmean(result.throughputs) for node, result in results.items()}
        middle = median(means.values())
        for node, mean in means.items():
            if results[node] is workload.by_node[node][-1].result:
                continue
            created = results[node].created
            ratio = PastRatio(label=label, created=created, ratio=mean / middle)
            past.setdefault(node, []).append(ratio)
    for ratios in past.values():
        ratios.sort(key=lambda ratio: ratio.created)
    return past


def _nodes(
    columns: list[FleetColumn],
    workloads: list[Workload],
    gaps_of_nodes: dict[str, list[Gap]],
) -> list[FleetNode]:
    """Return the nodes over all columns, slow ones first."""
    cells: dict[str, list[NodeCell]] = {name: [] for name in gaps_of_nodes}
    for column in columns:
        for cell in column.cells:
            cells[cell.node].append(cell)
    slow = {name for name in cells if any(cell.verdict == "slow" for cell in cells[name])}
    nodes = []
    for name, of_node in cells.items():
        gaps = gaps_of_nodes[name]
        if of_node:
            # A workload that was tried on a few nodes leaves nothing open.
            gaps = [gap for gap in gaps if not isinstance(gap, FewNodes)]
        node = FleetNode(
            node=name,
            verdict=_verdict(of_node, gaps),
            lowest=min((cell.ratio for cell in of_node), default=None),
            explanations=_explanations(name, slow, columns, workloads) if name in slow else [],
            gaps=gaps,
        )
        nodes.append(node)
    return sorted(nodes, key=_node_order)


def _verdict(cells: list[NodeCell], gaps: list[Gap]) -> Verdict:
    """Return the verdict on a node: a workload that it could not run is no good sign."""
    verdicts = {cell.verdict for cell in cells}
    if "slow" in verdicts:
        return "slow"
    return "undecided" if gaps or "undecided" in verdicts or not cells else "ok"


def _node_order(node: FleetNode) -> tuple[Any, ...]:
    """Return the key by which nodes are sorted: slow ones, those with gaps, then by ratio."""
    return (SEVERITY[node.verdict], not node.gaps, node.lowest or 0.0, name_order(node.node))


def _explanations(
    name: str, slow: set[str], columns: list[FleetColumn], workloads: list[Workload]
) -> list[Explanation]:
    """Return in what a slow node differs from the nodes that are not slow and share a workload
    with it; if all others are slow, from these."""
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
    compared = results.keys() - slow or results.keys() - {name}
    others = [state_of(results[node]) for node in results if node in compared]
    return [*slower_peaks, *explanations(state_of(results[name]), others)]
