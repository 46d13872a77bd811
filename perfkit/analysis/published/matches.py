"""Match measurements with published cells, and state their differences."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from perfkit.analysis.published.cells import RUNS, PublishedCell
from perfkit.training.models import find_model, model_named

MeasurementRow = Mapping[str, Any]
"""A measurement: a row of perfkit.load(), as `frames.records` gives it."""
FRAMEWORKS = {"pytorch": "torch"}
"""Frameworks in published.csv -> values of the parameter, where they differ."""
TF32 = "tf32"
"""Precision in references.csv -> the parameters `precision fp32` and `tf32 True`."""
INPUTS = {"ImageNet": ["dali", "dataloader"]}
"""Input in references.csv -> the values of the parameter that read such data."""
PUBLISHED_PROTOCOL = ("median of 7 runs; each the mean of steps 21-120", 20, 100, 7)
"""The protocol `published`: statistic in published.csv; warm-up, steps, repeats."""
STRATEGIES = {
    ("fleetx-resnet50", "fp32"): "fleetx-fp32",
    ("fleetx-resnet50", "amp"): "fleetx-amp",
    ("fleetx-resnet50", "auto"): "fleetx-auto",
    ("fleetx-vgg16", "fp32"): "fleetx-vgg16-fp32",
    ("fleetx-vgg16", "amp"): "fleetx-vgg16-amp",
    ("fleetx-vgg16", "auto"): "fleetx-auto",
}
"""The presets of the strategies that a source prints above its tables; others print none."""


class SetupDifference(NamedTuple):
    """A difference between a measurement and the published number that it matches."""

    key: str
    """what differs: gpus, statistic, or a parameter"""
    published: str
    """if the source does not state it, the value in parameters/"""
    measured: str
    is_stated: bool = True
    """whether the source states it"""


@dataclass(frozen=True)
class Match:
    """A measurement that matches a published cell, and their differences."""

    cell: PublishedCell
    row: MeasurementRow
    differences: list[SetupDifference]

    @property
    def is_like(self) -> bool:
        """Whether perfkit measured on the same GPU in the same precision."""
        return not {"gpus", "precision"} & {each.key for each in self.differences}

    @property
    def ratio(self) -> float | None:
        """Measured / published; None if either number is missing."""
        measured, published = self.row["throughput"], self.cell.throughput
        return float(measured / published) if measured and published else None

    @property
    def measured(self) -> float | None:
        """The measured throughput in the unit in which the source prints its number."""
        measured, published = self.row["throughput"], self.cell.throughput
        if not measured or not published or not self.cell.printed:
            return measured or None
        return float(measured * float(self.cell.printed) / published)


class Place(NamedTuple):
    """The properties that decide which published cells a measurement matches."""

    model: str
    model_size: str | None
    device: str
    framework: str
    precision: str
    topology: str
    batch_size: int | None
    image_size: int | None
    sequence_length: int | None
    accumulates: bool


def match(cells: Iterable[PublishedCell], measured: Iterable[MeasurementRow]) -> list[Match]:
    """Return each measurement, in the order given, with the published cells of the same
    place, except cells of single runs. No script has such a place."""
    rows_by_place: dict[Place, list[MeasurementRow]] = {}
    of_models = [row for row in measured if find_model(row["model"])]
    for row in of_models:
        rows_by_place.setdefault(place(row), []).append(row)
    matches = []
    for cell in cells:
        if cell.table == RUNS:
            continue
        for row in rows_by_place.get(place_of(cell), []):
            matches.append(Match(cell, row, [*differences(cell, row)]))
    return matches


def place(row: MeasurementRow) -> Place:
    """Return the place of a measurement."""
    model = model_named(row["model"])
    image_size = row.get("image_size") or model.default_image_size
    sequence_length = row.get("sequence_length") or model.default_sequence_length
    return Place(
        model=row["model"],
        model_size=row.get("model_size") or None,
        device=row["device"],
        framework=row["framework"],
        precision=row["precision"],
        topology=row["topology"],
        batch_size=row["batch_size"],
        image_size=image_size,
        sequence_length=sequence_length,
        accumulates=row["accumulate"] > 1,
    )


def place_of(cell: PublishedCell) -> Place:
    """Return the place of a published number: on GPUs and, unless the source states another
    sequence length, with samples of the default size."""
    name, model_size = cell.model_parameters
    image_size, sequence_length = None, cell.sequence_length
    if sequence_length is None:
        model = model_named(name)
        image_size, sequence_length = model.default_image_size, model.default_sequence_length
    return Place(
        model=name,
        model_size=model_size,
        device="gpu",
        framework=FRAMEWORKS.get(cell.framework, cell.framework),
        precision="fp32" if cell.precision == TF32 else cell.precision,
        topology=cell.topology,
        batch_size=cell.batch_per_gpu,
        image_size=image_size,
        sequence_length=sequence_length,
        accumulates=bool(cell.accumulates),
    )


def differences(cell: PublishedCell, row: MeasurementRow) -> Iterator[SetupDifference]:
    """Compare GPU, precision, input, strategy, statistic, sharding and recomputation as far as
    the source states them; optimizer, and if it does not state them micro-batches, layout and
    graph, with the values in parameters/."""
    gpu = gpu_name(row)
    if not is_gpu_of(cell, gpu):
        yield SetupDifference("gpus", cell.gpu, gpu or "unknown")
    precision = row["effective.precision"] or row["precision"]
    if row["effective.tf32"]:
        precision += " (TF32)"
    published = "fp32 (TF32)" if cell.precision == TF32 else cell.precision
    if precision != published:
        yield SetupDifference("precision", published, precision)
    if cell.input and row["input"] not in INPUTS.get(cell.input, cell.input.split("/")):
        yield SetupDifference("input", cell.input, row["input"])
    yield from _parameter_differences(cell, row)
    warmup, measured, repeats = row["warmup_steps"], row["measured_steps"], row["n"]
    if repeats and (cell.statistic, warmup, measured, repeats) != PUBLISHED_PROTOCOL:
        steps = f"{warmup + 1}-{warmup + measured}"
        statistic = f"median of {repeats} runs; each the mean of steps {steps}"
        yield SetupDifference("statistic", cell.statistic or "not stated", statistic)


def _parameter_differences(
    cell: PublishedCell, row: MeasurementRow
) -> Iterator[SetupDifference]:
    stated = _stated_parameters(cell)
    for name, value in (_unstated_parameters(cell, row) | stated).items():
        measured = row.get(name)
        if measured not in (None, value):
            yield SetupDifference(name, str(value), str(measured), name in stated)


def gpu_name(row: MeasurementRow) -> str | None:
    """Return the name of a measurement's GPU, such as Tesla V100-SXM2-32GB; None if it is not
    known."""
    gpus = row.get("environment.gpus")
    if isinstance(gpus, list):
        gpus = "; ".join(gpus)
    return re.split("[,;]", gpus)[0] if gpus else None


def is_gpu_of(cell: PublishedCell, gpu: str | None) -> bool:
    """Return whether a GPU's name has all that the source states, such as V100 and 32GB."""
    words = (gpu or "").replace("-", " ").replace("GiB", "GB").split()
    return {*words}.issuperset(cell.gpu.split("-"))


def _unstated_parameters(cell: PublishedCell, row: MeasurementRow) -> dict[str, Any]:
    """Return parameters that the tables do not state, with their values in parameters/."""
    parameters: dict[str, Any] = {
        "strategy": STRATEGIES.get((cell.table, cell.precision), "none"),
        "accumulate": 1,
        "optimizer": model_named(row["model"]).optimizers[0],
    }
    if cell.framework == "paddle":
        parameters |= {"layout": "NCHW", "execution": "static"}
    return parameters


def _stated_parameters(cell: PublishedCell) -> dict[str, Any]:
    """Return the parameters that the source of a cell states, with their values."""
    parameters = {
        "accumulate": cell.accumulate,
        "layout": cell.layout,
        "execution": cell.execution,
        "sharding": cell.sharding,
        "recompute": cell.recompute,
    }
    return {name: value for name, value in parameters.items() if value is not None}
