"""Cells of published tables in words: their places in the tables, and the source's remarks."""

from typing import NamedTuple

import pandas as pd

from perfkit.analysis.published.cells import FRAMEWORK_NAMES, RUNS, PublishedCell
from perfkit.analysis.published.layouts import LAYOUTS
from perfkit.analysis.published.matches import SetupDifference
from perfkit.report.text.language import gettext as _
from perfkit.report.text.statements import sentence

TABLE_PRECISION = {"fp32": "FP32", "amp": "AMP", "pure_fp16": "AMP", "auto": "auto"}
"""Precision in the sources' table headings; pure FP16 is among AMP, marked in its cell."""


class CellLabels(NamedTuple):
    """Where a cell lies in its table, in the current language."""

    row: str
    column: str
    part: str
    """the part of the table, such as `V100, FP32`"""
    name: str
    """name of the framework"""
    marks: str
    """the source's remarks on this cell alone"""

    @property
    def place(self) -> str:
        """The place in the table, on one line."""
        return " · ".join([self.row, self.column, self.part])


def labels(cell: PublishedCell) -> CellLabels:
    """Return the names of a cell in tables and charts."""
    layout = LAYOUTS[cell.table]
    row = layout.row.format(**vars(cell))
    column = str(getattr(cell, layout.column))
    note = _(cell.note or "")
    marks = []
    if cell.batch_per_gpu != cell.row_batch:
        marks.append(f"BS={cell.batch_per_gpu}")
    if cell.accumulates is not None:
        row = f"{row}, {note}"
    elif note and cell.table != RUNS:
        marks.append(note)
    return CellLabels(
        row=row,
        column=_(FRAMEWORK_NAMES.get(column, column)),
        part=f"{cell.gpu.split('-')[0]}, {TABLE_PRECISION[cell.precision]}",
        name=FRAMEWORK_NAMES[cell.framework],
        marks=", ".join(marks),
    )


def stated(cells: pd.DataFrame, key: str) -> str:
    """Return the source's value for `key`; several, each with its frameworks or topologies."""
    values = cells[key].fillna("not stated").map(_)
    values_per_framework = values.groupby(cells["name"]).nunique()
    by = "name" if values_per_framework.max() == 1 else "topology"
    names_by_value = cells[by].groupby(values, sort=False).unique()
    if len(names_by_value) == 1:
        return str(values.iloc[0])
    parts = [f"{value} ({', '.join(names)})" for value, names in names_by_value.items()]
    return "; ".join(parts)


def difference_words(differences: list[SetupDifference]) -> str:
    """Return the differences of a measurement from a published number, in words."""
    return "; ".join(sentence(difference) for difference in differences)
