"""The logs that match published numbers, and these numbers as claims."""

from collections.abc import Iterator
from typing import NamedTuple

from perfkit.analysis.published.cells import FRAMEWORK_NAMES, PublishedCell
from perfkit.analysis.published.matches import place_of
from perfkit.audit.audit import AuditedLog, Claim, ClaimedNumber
from perfkit.audit.claims import CHANCE, LogFigures, check_claim
from perfkit.audit.statements import Ambiguous, FactValue, OtherWork

MAY_DIFFER = {"batch_size", "precision"}
"""Facts in which a log may differ from the cell that it reproduces; reported as a finding."""
HALF = ("amp", "pure_fp16")
"""Names that suites use interchangeably for automatic mixed precision and float16."""


class Difference(NamedTuple):
    """A fact of a published number, and that of a log, which differs."""

    published: FactValue
    log: FactValue


def claims_of_tables(
    cells: list[PublishedCell], logs: list[LogFigures], tolerance: float
) -> Iterator[Claim]:
    """Check each published cell against every matching log; yield cells without a log, too."""
    claims: dict[int, list[Claim]] = {id(cell): [] for cell in cells}
    for audited in logs:
        for candidates in cells_for(audited.log, cells):
            for cell, claim in _check_cells(candidates, audited, tolerance):
                claims[id(cell)].append(claim)
    for cell in cells:
        if cell.status != "published":
            continue
        if claims[id(cell)]:
            yield from claims[id(cell)]
        else:
            yield Claim(**dict(number_in_cell(cell)), log=None, state="no log")


def number_in_cell(cell: PublishedCell) -> ClaimedNumber:
    """Return a published number as a claim."""
    assert cell.printed and cell.throughput
    batch_size = cell.batch_per_gpu
    traits = [
        FRAMEWORK_NAMES[cell.framework],
        cell.precision,
        cell.topology,
        f"batch {batch_size}",
    ]
    if cell.accumulates is not None and cell.note:
        traits.append(cell.note)
    return ClaimedNumber(
        text=cell.printed,
        value=cell.throughput,
        place=f"{cell.table}: {', '.join(traits)}, {cell.gpu}",
        table=cell.table,
        gpu=cell.gpu,
        framework=cell.framework,
        precision=cell.precision,
        topology=cell.topology,
        batch_size=batch_size,
    )


def _check_cells(
    cells: list[PublishedCell], audited: LogFigures, tolerance: float
) -> list[tuple[PublishedCell, Claim]]:
    """Return the cells of one table that the log reproduces or, if none, those with its batch
    size and precision, each with its claim."""
    alike = [cell for cell in cells if not differences(audited.log, cell)]
    checked, reproduced = [], []
    for cell in cells:
        findings: list[OtherWork | Ambiguous] = []
        for key, (published, of_log) in differences(audited.log, cell).items():
            findings.append(OtherWork(key=key, claimed=published, log=of_log))
        if len(alike) > 1:
            findings.append(Ambiguous())
        claim = check_claim(number_in_cell(cell), audited, tolerance, findings)
        if cell in alike:
            checked.append((cell, claim))
        if claim.state == "reproduced" and (cell in alike or claim.chance <= CHANCE):
            reproduced.append((cell, claim))
    return reproduced or checked


def differences(log: AuditedLog, cell: PublishedCell) -> dict[str, Difference]:
    """Return the known facts of a log that differ from a cell. A log without a model fact is
    matched by its path."""
    place = place_of(cell)
    published: dict[str, FactValue] = {
        "model": place.model,
        "framework": place.framework,
        "nodes": cell.nodes,
        "devices": cell.gpus_per_node,
        "ranks": cell.nodes * cell.gpus_per_node,
        "gpu": cell.gpu.split("-")[0].upper(),
        "precision": cell.precision,
    }
    if cell.batch_per_gpu is not None:
        published["batch_size"] = cell.batch_per_gpu
    differing = {}
    for name, value in published.items():
        of_log = log.fact(name)
        if of_log is not None and of_log != value:
            differing[name] = Difference(value, of_log)
    if "model" not in log.facts and place.model not in log.name.lower():
        differing["model"] = Difference(place.model, log.name)
    accumulate = log.fact("accumulate")
    # The cell's value is None if the source does not say whether gradients are accumulated.
    if accumulate and cell.accumulates is (accumulate == 1):
        differing["accumulate"] = Difference(cell.accumulates, accumulate)
    if "precision" in differing:
        is_half, is_half_in_cell = log.fact("precision") in HALF, cell.precision in HALF
        if is_half != is_half_in_cell:
            differing["half"] = differing.pop("precision")
    return differing


def cells_for(log: AuditedLog, cells: list[PublishedCell]) -> Iterator[list[PublishedCell]]:
    """Yield, per table, the published cells that the log may belong to; none for inference."""
    if "framework" not in log.facts or log.fact("mode") == "inference":
        return
    by_table: dict[str, list[PublishedCell]] = {}
    for cell in cells:
        if cell.status == "published" and differences(log, cell).keys() <= MAY_DIFFER:
            by_table.setdefault(cell.table, []).append(cell)
    yield from by_table.values()
