"""The logs that match published numbers, and these numbers as claims."""

from collections.abc import Iterator

from perfkit.analysis.published.cells import FRAMEWORK_NAMES, PublishedCell
from perfkit.analysis.published.matches import place_of
from perfkit.audit.audit import AuditedLog
from perfkit.audit.claim import Claim, ClaimedNumber
from perfkit.audit.claims import check_claim
from perfkit.audit.log_numbers import LogFigures
from perfkit.audit.quantity import read_claim
from perfkit.audit.statements import FactValue

MAY_DIFFER = {"batch_size", "precision"}
"""Facts in which a log may differ from the cell that it reproduces."""
HALF = ("amp", "pure_fp16")
"""Names that suites use interchangeably for automatic mixed precision and float16."""


def claims_of_table(
    cells: list[PublishedCell], logs: list[LogFigures], tolerance: float
) -> Iterator[Claim]:
    """Check each published cell of a table against every matching log; yield cells without a
    log, too."""
    claims: dict[int, list[Claim]] = {id(cell): [] for cell in cells}
    for audited in logs:
        for cell, claim in _of_log(cells, audited, tolerance):
            claims[id(cell)].append(claim)
    for cell in cells:
        if claims[id(cell)]:
            yield from claims[id(cell)]
        else:
            yield Claim(**dict(number_in_cell(cell)), log=None, state="no log")


def _of_log(
    cells: list[PublishedCell], audited: LogFigures, tolerance: float
) -> list[tuple[PublishedCell, Claim]]:
    """Return the cells that the log reproduces or, if none, those with its batch size and
    precision, each with its claim."""
    alike, reproduced = [], []
    for cell in cells_for(audited.log, cells):
        claim = check_claim(number_in_cell(cell), audited, tolerance)
        if claim.state == "reproduced":
            reproduced.append((cell, claim))
        if not differences(audited.log, cell):
            alike.append((cell, claim))
    return reproduced or alike


def cells_for(log: AuditedLog, cells: list[PublishedCell]) -> list[PublishedCell]:
    """Return the published cells that a log may belong to; none for inference."""
    if "framework" not in log.facts or log.fact("mode") == "inference":
        return []
    return [cell for cell in cells if differences(log, cell) <= MAY_DIFFER]


def number_in_cell(cell: PublishedCell) -> ClaimedNumber:
    """Return a published number as a claim: of all devices, unless its unit says of one."""
    assert cell.printed
    number = read_claim(f"{cell.printed} {cell.printed_unit}")
    assert number
    traits = [FRAMEWORK_NAMES[cell.framework], cell.precision, cell.topology]
    traits.append(f"batch {cell.batch_per_gpu}")
    if cell.accumulates is not None and cell.note:
        traits.append(cell.note)
    of_cell = {
        "text": cell.printed,
        "of": number.of or "all",
        "place": f"{cell.table}: {', '.join(traits)}, {cell.gpu}",
        "table": cell.table,
        "gpu": cell.gpu,
        "framework": cell.framework,
        "precision": cell.precision,
        "topology": cell.topology,
        "batch_size": cell.batch_per_gpu,
    }
    return number.model_copy(update=of_cell)


def differences(log: AuditedLog, cell: PublishedCell) -> set[str]:
    """Return the names of a log's known facts that differ from a cell. A log without a model
    fact is matched by its path."""
    place = place_of(cell)
    published: dict[str, FactValue | None] = {
        "model": place.model,
        "framework": place.framework,
        "nodes": cell.nodes,
        "devices": cell.gpus_per_node,
        "ranks": cell.nodes * cell.gpus_per_node,
        "gpu": cell.gpu.split("-")[0].upper(),
        "precision": cell.precision,
        "batch_size": cell.batch_per_gpu,
    }
    differing = set()
    for name, value in published.items():
        if log.fact(name) is not None and log.fact(name) != value and value is not None:
            differing.add(name)
    if "model" not in log.facts and place.model not in log.name.lower():
        differing.add("model")
    accumulate = log.fact("accumulate")
    # The cell's value is None if the source does not say whether gradients are accumulated.
    if accumulate and cell.accumulates is (accumulate == 1):
        differing.add("accumulate")
    if (log.fact("precision") in HALF) != (cell.precision in HALF) and "precision" in differing:
        differing.add("half")
    return differing
