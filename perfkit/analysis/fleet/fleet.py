"""Judge a fleet from the measurements of its nodes, each of which names its `node`."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from perfkit.analysis.comparison.blocks import named, numbered
from perfkit.analysis.comparison.configurations import Configuration, configurations
from perfkit.analysis.comparison.keys import WORKLOAD
from perfkit.analysis.fleet.differences import differences, state_of
from perfkit.analysis.fleet.rule import (
    FEWEST_NODES,
    FEWEST_REPEATS,
    USUAL_RULES,
    NodeRepeats,
    Rules,
    judge,
)
from perfkit.analysis.fleet.stored import (
    Difference,
    Fleet,
    FleetColumn,
    FleetNode,
    Missing,
    NodeCell,
    NodeVerdict,
    Quantity,
    name_order,
)
from perfkit.measuring.results.frames import as_frame, row_of
from perfkit.measuring.results.schema import Result
from perfkit.measuring.results.store import Measurement, read_as, write_atomically
from perfkit.measuring.units import GIGA, TERA

ORDER: tuple[NodeVerdict, ...] = ("slow", "no measurement", "undecided", "ok")
RULES = "fleet/rules.json"
NODE_FILES: dict[NodeVerdict, str] = {"ok": "ok-nodes.txt", "slow": "slow-nodes.txt"}


class PeakQuantity(NamedTuple):
    """A peak that the workers measure: the field of a repeat's peak, and the unit in which it
    is stored here, with its size in the field's unit."""

    field: str
    unit: str
    size: float


PEAKS: dict[Quantity, PeakQuantity] = {
    "matmul": PeakQuantity("sustained_matmul_flops_per_second", "TFLOP/s", TERA),
    "copy": PeakQuantity("sustained_copy_bytes_per_second", "GB/s", GIGA),
}


@dataclass(frozen=True)
class Workload:
    """A workload, and each node's newest measurement of it, which may have failed."""

    configuration: Configuration
    by_node: dict[str, Measurement]

    @cached_property
    def completed(self) -> dict[str, Measurement]:
        """The measurements with enough repeats to be judged."""
        completed = {}
        for node, measurement in self.by_node.items():
            if len(measurement.result.throughputs) >= FEWEST_REPEATS:
                completed[node] = measurement
        return completed

    @property
    def first(self) -> Result:
        """A result, a completed one if there is any."""
        return next(iter((self.completed or self.by_node).values())).result


class Column(NamedTuple):
    """What is judged: a quantity of a workload, and the repeats of each node."""

    workload: Workload
    quantity: Quantity
    nodes: list[NodeRepeats]


def judge_fleet(measurements: Iterable[Measurement], rules: Rules = USUAL_RULES) -> Fleet:
    """Judge the nodes of a fleet. Measurements without a node do not count; of several
    measurements of a workload on a node, the newest does. The level of the rules holds over all
    columns."""
    workloads = [*_workloads(measurements)]
    columns = [each for each in _columns(workloads) if len(each.nodes) >= FEWEST_NODES]
    rules = rules.model_copy(update={"columns": len(columns) or 1})
    judged = [_judged(column, rules) for column in columns]
    few = [each for each in workloads if 0 < len(each.completed) < FEWEST_NODES]
    return Fleet(
        level=rules.level,
        threshold=rules.threshold,
        columns=judged,
        nodes=_nodes(judged, workloads),
        too_few=[workload.configuration for workload in few],
    )


def write_rules(rules: Rules, outputs: Path) -> None:
    """Store the rules for the page that `perfkit report` writes."""
    (outputs / RULES).parent.mkdir(exist_ok=True)
    write_atomically(outputs / RULES, f"{rules.model_dump_json(exclude={'columns'})}\n")


def read_rules(outputs: Path) -> Rules:
    """Return the rules of the last `perfkit fleet`, by default the usual ones. Raises
    ResultError."""
    file = outputs / RULES
    return read_as(Rules, file) if file.exists() else USUAL_RULES


def write_node_files(fleet: Fleet, outputs: Path) -> None:
    """Write ok-nodes.txt and slow-nodes.txt, with the names by commas: sbatch --exclude "$(cat
    slow-nodes.txt)"."""
    for verdict, name in NODE_FILES.items():
        names = ",".join(fleet.named(verdict))
        write_atomically(outputs / name, f"{names}\n")


# Workloads and peaks.


def _workloads(measurements: Iterable[Measurement]) -> Iterator[Workload]:
    """Yield the workloads that the nodes were asked for."""
    by_folder = {each.folder.name: each for each in measurements if each.result.config.node}
    if not by_folder:
        return
    frame = named(as_frame(map(row_of, by_folder.values())))
    # The first row gives the configuration: a completed one has what workers told.
    frame["failed"] = frame["throughput"].isna()
    frame = frame.sort_values(["failed", "created", "folder"])
    frame["series"] = numbered(frame, WORKLOAD)
    by_number = configurations(frame, WORKLOAD)
    for number, rows in frame.groupby("series"):
        by_node = {}
        for folder in rows.sort_values(["created", "folder"])["folder"]:
            by_node[by_folder[folder].result.config.node] = by_folder[folder]
        yield Workload(by_number[number], by_node)


def _columns(workloads: Sequence[Workload]) -> Iterator[Column]:
    """Yield a column for each workload, then one for each peak. Workloads of one framework, in
    one precision, on the same devices measure the same peaks: those of most nodes count."""
    by_peak: dict[Any, list[Workload]] = {}
    for workload in workloads:
        nodes = []
        for node, measurement in workload.completed.items():
            values = measurement.result.throughputs
            nodes.append(NodeRepeats(node, measurement.folder.name, values))
        yield Column(workload, "throughput", nodes)
        by_peak.setdefault(_peak_key(workload.first), []).append(workload)
    for alike in by_peak.values():
        for quantity in PEAKS:
            columns = [Column(each, quantity, _peaks(each, quantity)) for each in alike]
            yield max(columns, key=lambda column: len(column.nodes))


def _peak_key(result: Result) -> tuple[Any, ...]:
    config = result.config
    hardware = _hardware_of(result)
    return (config.framework, _precision(result), config.device, config.topology, *hardware)


def _hardware_of(result: Result) -> tuple[str, ...]:
    """Return the facts that tell kinds of nodes apart."""
    return tuple(str(result.fact(name)) for name in ("cpu", "cpu_cores", "gpus"))


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
    nodes = []
    for node, measurement in workload.completed.items():
        values = []
        for repeat in measurement.result.complete_repeats:
            rate = getattr(repeat.peak, peak.field, None)
            if rate is not None:
                values.append(rate / peak.size)
        if len(values) >= FEWEST_REPEATS:
            nodes.append(NodeRepeats(node, measurement.folder.name, values))
    return nodes


def _judged(column: Column, rules: Rules) -> FleetColumn:
    first = column.workload.first
    assert first.throughput
    peak = PEAKS.get(column.quantity)
    judgement = judge(column.nodes, rules)
    return FleetColumn(
        workload=column.workload.configuration,
        quantity=column.quantity,
        unit=peak.unit if peak else first.throughput.unit,
        **judgement._asdict(),
    )


# Nodes.


def _nodes(columns: Sequence[FleetColumn], workloads: Sequence[Workload]) -> list[FleetNode]:
    """Return the nodes over all columns, slow ones first."""
    cells: dict[str, list[NodeCell]] = {}
    for workload in workloads:
        for name in workload.by_node:
            cells.setdefault(name, [])
    for column in columns:
        for cell in column.cells:
            cells[cell.node].append(cell)
    slow = {name for name in cells if any(cell.verdict == "slow" for cell in cells[name])}
    missing = _missing(workloads)
    nodes = []
    for name in sorted(cells, key=lambda name: _lowest_first(name, cells[name])):
        node = FleetNode(
            node=name,
            verdict=_verdict(cells[name], missing.get(name, [])),
            differences=_differences(name, slow, workloads) if name in slow else [],
            missing=missing.get(name, []),
        )
        nodes.append(node)
    return sorted(nodes, key=lambda node: ORDER.index(node.verdict))


def _lowest_first(name: str, cells: Sequence[NodeCell]) -> tuple[Any, ...]:
    """Return the key by which nodes are sorted."""
    lowest = min((cell.ratio for cell in cells), default=0.0)
    return (lowest, name_order(name))


def _missing(workloads: Sequence[Workload]) -> dict[str, list[Missing]]:
    """Return the workloads of which nodes have no complete measurement: it failed, or more than
    half of the nodes with this hardware were measured, but not this one."""
    of_kind: dict[Any, set[str]] = {}
    for workload in workloads:
        of_kind.setdefault(_hardware_of(workload.first), set()).update(workload.by_node)
    missing: dict[str, list[Missing]] = {}
    for workload in workloads:
        nodes = of_kind[_hardware_of(workload.first)]
        is_usual = 2 * len(workload.by_node) > len(nodes)
        for name in nodes - workload.completed.keys():
            if name in workload.by_node or is_usual:
                measurement = workload.by_node.get(name)
                failure = measurement.result.failure if measurement else None
                code = failure.code if failure else ""
                lacking = Missing(workload=workload.configuration, failure=code)
                missing.setdefault(name, []).append(lacking)
    return missing


def _verdict(cells: Sequence[NodeCell], missing: Sequence[Missing]) -> NodeVerdict:
    """Return the verdict on a node: a workload that it could not run is no good sign."""
    verdicts = {cell.verdict for cell in cells}
    if "slow" in verdicts:
        return "slow"
    if missing:
        return "no measurement"
    return "ok" if verdicts == {"ok"} else "undecided"


def _differences(name: str, slow: set[str], workloads: Sequence[Workload]) -> list[Difference]:
    """Return in what a slow node differs from the nodes that are not slow and share a workload
    with it; if all others are slow, from these."""
    results: dict[str, list[Result]] = {}
    for workload in workloads:
        if name in workload.completed:
            for node, measurement in workload.completed.items():
                results.setdefault(node, []).append(measurement.result)
    compared = results.keys() - slow or results.keys() - {name}
    others = [state_of(results[node]) for node in results if node in compared]
    return [*differences(state_of(results[name]), others)]
