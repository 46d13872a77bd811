"""A measurement beside the published numbers of its model on its class of GPU."""

from collections.abc import Sequence
from functools import cache

from perfkit.analysis.comparison.selections import ComparisonError
from perfkit.analysis.datasheets import is_class
from perfkit.analysis.published import published
from perfkit.analysis.published.cells import RUNS, PublishedCell, cells_of
from perfkit.analysis.published.matches import (
    MeasurementRow,
    differences,
    gpu_name,
    place,
    place_of,
)
from perfkit.analysis.ratios import Ratio
from perfkit.analysis.verdicts import LEVEL
from perfkit.measuring.results.base import Stored
from perfkit.measuring.results.frames import row_of
from perfkit.measuring.results.store import Measurement
from perfkit.measuring.statistics import median_estimate

REFERENCES = "references"
"""What `perfkit compare` calls the numbers of all published tables."""
IN_PLACE = ("framework", "topology", "batch_size", "image_size", "sequence_length")
"""Fields of a place in which a measurement may differ from its references."""
WORK = {"precision", "image_size", "sequence_length"}
"""Conditions that change the arithmetic of a sample, and weigh more than all others."""
NO_CONDITIONS = ("gpus", "statistic")
"""Differences that are no conditions: the class of GPU is the same, the statistic never is."""


class Reference(Ratio):
    """A published number; the ratio is measured / published, both per device."""

    published: PublishedCell
    conditions: dict[str, tuple[str, str]]
    """what differs, as far as the source states it: name -> published value, measured value"""


class Referenced(Stored):
    """A measurement beside its references, the most alike first."""

    level: float
    """confidence level of the intervals, as requested"""
    name: str
    """id of the measurement"""
    gpu: str
    """name of its GPU"""
    per_device: float
    """measured throughput of one device"""
    unit: str
    """unit of the throughput"""
    references: list[Reference]


def beside_published(measurements: Sequence[Measurement], level: float) -> Referenced:
    """Return the only measurement beside its references. Raises ComparisonError if there are
    several, or no references."""
    only, *others = measurements
    if others:
        count = len(measurements)
        raise ComparisonError([f"{REFERENCES}: give one measurement as B, not {count}"])
    found = referenced(only, level)
    if not found:
        row = row_of(only)
        gpu = gpu_name(row) if row["device"] == "gpu" else None
        device = gpu or f"a {row['device'].upper()}"
        raise ComparisonError([f"no published number of {only.result.id} on {device}"])
    return found


def referenced(measurement: Measurement, level: float = LEVEL) -> Referenced | None:
    """Return a measurement beside its references: first those that differ least in WORK, of
    these those that differ in the fewest other conditions, of these the highest number. None
    without any, as on a CPU."""
    result, row = measurement.result, row_of(measurement)
    gpu = gpu_name(row)
    if not (gpu and result.work.facts and row["device"] == "gpu" and result.throughput):
        return None
    estimate = median_estimate(result.throughputs, level)
    references = []
    for cell in _numbers():
        if cell.model_parameters != (row["model"], row.get("model_size") or None):
            continue
        if not is_class(gpu, cell.gpu):
            continue
        scale = cell.per_gpu * result.config.device_count
        reference = Reference(
            ratio=estimate.value / scale,
            interval=(estimate.low / scale, estimate.high / scale),
            interval_level=estimate.level,
            published=cell,
            conditions=_conditions(cell, row),
        )
        references.append(reference)
    if not references:
        return None
    return Referenced(
        level=level,
        name=result.id,
        gpu=gpu,
        per_device=row["throughput_per_device"],
        unit=result.throughput.unit,
        references=sorted(references, key=_unlikeness),
    )


@cache
def _numbers() -> list[PublishedCell]:
    """Return all published numbers except single runs, which another table averages. The pages
    of many measurements ask for them."""
    cells = cells_of(published())
    return [cell for cell in cells if cell.throughput and cell.table != RUNS]


def _conditions(cell: PublishedCell, row: MeasurementRow) -> dict[str, tuple[str, str]]:
    conditions = {}
    stated, measured = place_of(cell)._asdict(), place(row)._asdict()
    for name in IN_PLACE:
        if stated[name] not in (None, measured[name]):
            conditions[name] = (str(stated[name]), str(measured[name]))
    for each in differences(cell, row):
        if each.is_stated and each.key not in NO_CONDITIONS:
            conditions[each.key] = (each.published, each.measured)
    return conditions


def _unlikeness(reference: Reference) -> tuple[int, int, float]:
    conditions = reference.conditions
    of_work = len(conditions.keys() & WORK)
    return of_work, len(conditions), -reference.published.per_gpu
