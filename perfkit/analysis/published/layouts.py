"""The layout of each published table in its source, from layouts.csv."""

import csv
from pathlib import Path
from typing import NamedTuple


class TableLayout(NamedTuple):
    """How a source lays out a table, and where it was published."""

    table: str
    """name of the table in published.csv"""
    corner: str
    """heading of the first column"""
    row: str
    """template of a row's name"""
    column: str
    """field of a cell whose value is the heading of its column"""
    chart: str
    """kind of the charts: batch, scaling, frameworks or none"""
    url: str
    """address of the source"""


def _layouts() -> dict[str, TableLayout]:
    file = Path(__file__).parent / "layouts.csv"
    with file.open(encoding="utf-8", newline="") as stream:
        layouts = [TableLayout(**row) for row in csv.DictReader(stream)]
    return {layout.table: layout for layout in layouts}


LAYOUTS = _layouts()
"""Table -> its layout, in the order of the page."""
