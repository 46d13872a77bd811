"""Cells of published tables in words: their places in the tables, and the source's remarks."""

from collections.abc import Iterator
from typing import NamedTuple

import pandas as pd

from perfkit.analysis.published.cells import (
    ACCUMULATES,
    FRAMEWORK_NAMES,
    RUNS,
    PublishedCell,
)
from perfkit.analysis.published.layouts import LAYOUTS
from perfkit.analysis.published.matches import Match
from perfkit.measuring.statements import N_
from perfkit.report.text.language import enumerated
from perfkit.report.text.language import gettext as _
from perfkit.report.text.wording import size_text

TABLE_PRECISION = {
    "fp32": "FP32",
    "tf32": "TF32",
    "amp": "AMP",
    "pure_fp16": "AMP",
    "auto": "auto",
    "bf16": "BF16",
    "fp8": "FP8",
    "fp4": "FP4",
    "not stated": N_("precision not stated"),
}
"""Precision in the sources' table headings; pure FP16 is among AMP, marked in its cell."""

PARAMETER_DIFFERS = N_("%(name)s %(measured)s; published: %(published)s")
DIFFERENCES = {
    "gpus": N_("GPU %(measured)s; published: %(published)s"),
    "precision": N_("effective precision %(measured)s; published: %(published)s"),
    "input": N_("input %(measured)s; published: %(published)s"),
    "statistic": N_(
        "median of %(repeats)s runs; each the mean of steps %(first)s-%(last)s; "
        "published: %(published)s"
    ),
}
"""What differs from a published number -> the words; parameters have others."""


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
    if layout.column == "sequence_length" and cell.sequence_length:
        column = size_text(layout.column, cell.sequence_length)
    note = _(cell.note or "")
    marks = []
    if cell.batch_per_gpu != cell.row_batch:
        marks.append(f"BS={cell.batch_per_gpu}")
    if cell.note in ACCUMULATES:
        row = enumerated([row, note])
    elif note and cell.table != RUNS:
        marks.append(note)
    marks += stated_figures(cell)
    return CellLabels(
        row=row,
        column=_(FRAMEWORK_NAMES.get(column, column)),
        part=enumerated([cell.gpu.split("-")[0], _(TABLE_PRECISION[cell.precision])]),
        name=FRAMEWORK_NAMES[cell.framework],
        marks=enumerated(marks),
    )


def stated_figures(cell: PublishedCell) -> Iterator[str]:
    """Yield the figures that the source states beside the throughput."""
    if cell.global_batch:
        yield _("global batch %(count)d") % {"count": cell.global_batch}
    if cell.memory_gib:
        yield f"{cell.memory_gib:g} GiB"
    if cell.tflops_per_gpu:
        yield f"{cell.tflops_per_gpu:g} TFLOP/s"


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


def difference_words(match: Match) -> str:
    """Return the differences of a measurement from a published number, in words."""
    row = match.row
    texts = []
    for difference in match.differences:
        name, measured = difference.key, difference.measured
        if not difference.is_stated:
            texts.append(f"{name} {measured}")
            continue
        words = _(DIFFERENCES.get(name, PARAMETER_DIFFERS))
        facts = {
            "name": name,
            "published": _(difference.published),
            "measured": _(measured),
            "repeats": row["n"],
            "first": row["warmup_steps"] + 1,
            "last": row["warmup_steps"] + row["measured_steps"],
        }
        texts.append(words % facts)
    return "; ".join(texts)
