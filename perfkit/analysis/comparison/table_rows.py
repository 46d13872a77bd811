"""Rows of the summary's tables: a kind of work, with a cell for each framework that did it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from perfkit.analysis.comparison.blocks import Work, work_of
from perfkit.measuring.results.frames import records


@dataclass(frozen=True)
class Cell:
    """A framework's preferred measurement in a row. It has no throughput and no interval if it
    failed."""

    framework: str
    """The framework's name, as shown."""
    folder: str
    status: str
    failure: str | None
    """The code of the failure."""
    throughput: float | None
    low: float | None
    high: float | None
    interval_level: float | None
    n: int
    """The number of complete repeats."""
    repeats: int | str
    """The requested number of repeats."""
    passed_over: bool
    """Whether a newer measurement, disturbed by other load, was left out."""
    version: str
    """The framework's version; empty if it is unknown."""


@dataclass(frozen=True)
class TableRow:
    """A kind of work in a block, and its cells by the frameworks' names, in their order."""

    number: int
    block: int
    work: Work
    unit: str
    measurement: Mapping[str, Any]
    """One of its measurements, a row of `perfkit.load`."""
    cells: dict[str, Cell] = field(default_factory=dict)


def table_rows(cells: pd.DataFrame) -> list[TableRow]:
    """Return the rows of these measurements (blocks.cells), in their order."""
    by_number: dict[int, TableRow] = {}
    for measurement in records(cells):
        number = measurement["row"]
        if number not in by_number:
            by_number[number] = TableRow(
                number=number,
                block=measurement["block"],
                work=work_of(measurement),
                unit=measurement["unit"],
                measurement=measurement,
            )
        cell = _cell(measurement)
        by_number[number].cells[cell.framework] = cell
    return [*by_number.values()]


def _cell(measurement: Mapping[str, Any]) -> Cell:
    return Cell(
        framework=measurement["name"],
        folder=measurement["folder"],
        status=measurement["status"],
        failure=measurement["failure"],
        throughput=measurement["throughput"],
        low=measurement["throughput_low"],
        high=measurement["throughput_high"],
        interval_level=measurement["interval_level"],
        n=measurement["n"] or 0,
        repeats=measurement["repeats"],
        passed_over=measurement["passed_over"],
        version=str(measurement.get(f"environment.{measurement['framework']}") or ""),
    )
