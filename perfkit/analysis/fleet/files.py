"""Files of a judged fleet: lists of nodes for Slurm, and a table."""

import csv
import io
from pathlib import Path

from perfkit.analysis.fleet.judgement import Verdict
from perfkit.analysis.fleet.stored import Fleet
from perfkit.core.results.store import write_atomically

NODE_FILES: dict[Verdict, str] = {"ok": "ok-nodes.txt", "slow": "slow-nodes.txt"}
CELL_COLUMNS = ("node", "value", "n", "ratio", "low", "high", "verdict", "doubt", "repeats")
"""Fields of a cell in fleet.csv, behind the column's name, quantity and unit."""


def write_node_files(fleet: Fleet, outputs: Path) -> None:
    """Write fleet.csv, with a row for each node and column, and ok-nodes.txt and
    slow-nodes.txt, with the names by commas: sbatch --exclude "$(cat slow-nodes.txt)"."""
    write_atomically(outputs / "fleet.csv", fleet_table(fleet))
    for verdict, name in NODE_FILES.items():
        names = ",".join(fleet.named(verdict))
        write_atomically(outputs / name, f"{names}\n")


def fleet_table(fleet: Fleet) -> str:
    """Return a CSV with a row for each node and column."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["column", "quantity", "unit", *CELL_COLUMNS])
    for column in fleet.columns:
        for cell in column.cells:
            values = [getattr(cell, name) for name in CELL_COLUMNS]
            table.writerow([column.name, column.quantity, column.unit, *values])
    return text.getvalue()
