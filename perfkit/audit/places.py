"""Published numbers beside the logs that should have given them."""

from collections.abc import Iterator
from typing import Any

from perfkit.audit.claims import Given, judged
from perfkit.audit.figures import Recomputed
from perfkit.audit.findings import CHANCE
from perfkit.audit.stored import AuditedLog, Claim
from perfkit.reference.cells import Cell
from perfkit.reference.matches import place_of


def claims_of_tables(
    cells: list[Cell], logs: list[Recomputed], tolerance: float
) -> Iterator[Claim]:
    """Each cell beside every log at its place; those that no log stands at, too."""
    found: dict[int, list[Claim]] = {}
    for one in logs:
        for some in cells_for(one.log, cells):
            for cell, claim in _kept(some, one, tolerance):
                found.setdefault(id(cell), []).append(claim)
    for cell in cells:
        if cell["status"] == "published":
            yield from found.get(id(cell)) or [Given.of_cell(cell).claim(None, "no log")]


def _kept(cells: list[Cell], one: Recomputed, tolerance: float) -> Iterator[tuple[Cell, Claim]]:
    """Of the cells of a table that may be a log's, those that it gives or, if it gives none,
    those of its batch and precision."""
    alike = [cell for cell in cells if not differs(one.log, cell)]
    judged_cells = [
        (cell, judged(Given.of_cell(cell), one, tolerance, ambiguous=len(alike) > 1))
        for cell in cells
    ]
    given = [
        (cell, claim)
        for cell, claim in judged_cells
        if claim.state == "reproduced" and (cell in alike or claim.chance <= CHANCE)
    ]
    yield from given or [(cell, claim) for cell, claim in judged_cells if cell in alike]


def differs(log: AuditedLog, cell: Cell) -> dict[str, tuple[Any, Any]]:
    """In what a log differs from a cell, of what it may: what is published and the log's."""
    both = {
        "batch_size": (cell["batch_per_gpu"], log.fact("batch_size")),
        "precision": (cell["precision"], log.fact("precision")),
    }
    return {key: (of, own) for key, (of, own) in both.items() if own not in (None, of)}


def cells_for(log: AuditedLog, cells: list[Cell]) -> Iterator[list[Cell]]:
    """Of each table, the published cells that may be a log's: of its model, framework,
    topology and accumulation as far as it tells them, and of the GPU that its path
    names; where nothing else tells the model, its path may."""
    if "framework" not in log.facts:
        return
    like = [cell for cell in cells if cell["status"] == "published" and _is_place(log, cell)]
    for table in dict.fromkeys(cell["table"] for cell in like):
        some = [cell for cell in like if cell["table"] == table]
        path = log.name.lower()
        yield [c for c in some if c["gpu"].split("-")[0].lower() in path] or some


def _is_place(log: AuditedLog, cell: Cell) -> bool:
    own = place_of(cell)
    if log.fact("model") is None and own["model"] not in log.name.lower():
        return False
    place: dict[str, Any] = {
        "model": own["model"],
        "framework": own["framework"],
        "nodes": cell["nodes"],
        "devices": cell["gpus_per_node"],
        "ranks": cell["nodes"] * cell["gpus_per_node"],
    }
    accumulated, half = log.fact("accumulate"), ("amp", "pure_fp16")
    if accumulated and cell["accumulates"] is (accumulated == 1):
        return False
    # What one calls automatic mixed precision, another calls float16.
    if (log.fact("precision") in half) != (cell["precision"] in half) and log.fact("precision"):
        return False
    return all(log.fact(key) in (None, value) for key, value in place.items())
