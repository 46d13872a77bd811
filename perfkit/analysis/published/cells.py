"""The cells of the published tables."""

from dataclasses import dataclass
from typing import Literal

import pandas as pd

from perfkit.measuring.results.frames import records
from perfkit.training.frameworks import DISPLAY_NAMES
from perfkit.training.models import Unit, model_named

FRAMEWORK_NAMES = DISPLAY_NAMES | {"pytorch": "PyTorch", "oneflow": "OneFlow"}
"""Framework in published.csv or in a measurement -> its name in texts."""
ROW_BATCH = {96: 128, 192: 256, 208: 256, 248: 256}
"""The README's rows name a batch size; its marked cells were measured with a smaller one."""
ACCUMULATES = {"gradient accumulation": True, "without gradient accumulation": False}
MODELS = {"bert-base": ("bert", None), "llama3-8b": ("llama", "8b")}
"""Model in published.csv -> values of the parameters `model` and `model_size`, where the first
differs."""
TITLES = {"llama3-8b": "Llama 3.1 8B"}
"""Model in published.csv -> its name, if its size is part of it."""
NO_BASE = "no base of a speed-up: auto may switch on other options than on several GPUs"
"""The FleetX VGG-16 page's reason for no speed-up of the automatic strategy."""
RUNS = "dlperf-resnet50-run"
"""Table of single runs, which match no measurement."""
SAME_RUNS = ["source", "framework", "precision", "batch_per_gpu", "statistic"]
"""Columns in which a throughput and that of one GPU, the base of its speed-up, agree."""


@dataclass(frozen=True)
class PublishedCell:
    """A cell of a published table: a row of perfkit.published() with further fields."""

    source: str
    table: str
    model: str
    framework: str
    precision: str
    nodes: int
    gpus_per_node: int
    batch_per_gpu: int | None
    """None if the source does not state it"""
    throughput: float | None
    unit: Unit | Literal["samples/s"]
    gpu: str
    input: str | None
    statistic: str | None
    status: str
    note: str | None
    speedup: str | None
    printed: str | None
    printed_unit: str
    sequence_length: int | None
    setup: str | None
    global_batch: int | None
    accumulate: int | None
    execution: str | None
    sharding: str | None
    recompute: str | None
    memory_gib: float | None
    tflops_per_gpu: float | None
    date: str | None
    layout: str | None
    url: str | None
    """address of the cell's own file; None if the table has one for all"""
    gpus: int
    """GPUs of all nodes"""
    topology: str
    row_batch: int | None
    """batch size in the name of the row"""
    accumulates: bool | None
    """whether gradients are accumulated; None if the source does not say"""
    scaling: float | None
    """throughput over that of one GPU, if the source has it"""

    @property
    def per_gpu(self) -> float:
        """The throughput of one GPU; 0 without a number."""
        return (self.throughput or 0) / self.gpus

    @property
    def title(self) -> str:
        """The name of the model on pages."""
        name, _size = self.model_parameters
        return TITLES.get(self.model) or model_named(name).short_name

    @property
    def model_parameters(self) -> tuple[str, str | None]:
        """The values of the parameters `model` and `model_size`."""
        return MODELS.get(self.model, (self.model, None))


def cells_of(published: pd.DataFrame) -> list[PublishedCell]:
    """Return the rows of perfkit.published() as cells."""
    batch = published["batch_per_gpu"]
    gpus = published["nodes"] * published["gpus_per_node"]
    is_base = published["speedup"].notna() & (gpus == 1)
    same_runs = [published[column] for column in SAME_RUNS]
    on_one_gpu = published["throughput"].where(is_base).groupby(same_runs, dropna=False)
    cells = published.assign(
        gpus=gpus,
        topology=published["nodes"].astype(str) + "x" + published["gpus_per_node"].astype(str),
        row_batch=batch.replace(ROW_BATCH).where(published["table"] == "perf-resnet50", batch),
        accumulates=published["note"].map(ACCUMULATES).fillna(published["accumulate"] > 1),
        scaling=published["throughput"] / on_one_gpu.transform("max"),
    )
    return [PublishedCell(**row) for row in records(cells)]
