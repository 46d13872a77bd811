"""Match measurements with published cells, and list their differences."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from perfkit.analysis.published import RUNS, Cell
from perfkit.core.models import model_named
from perfkit.report.text.language import gettext as _
from perfkit.report.text.names import device_name

Row = dict[str, Any]  # of perfkit.load(), as `frames.records` gives it
Differences = dict[str, tuple[str, str]]
"""Key -> published and measured value."""
PARAMETER = {"pytorch": "torch", "bert-base": "bert"}
"""Values of published.csv -> parameter values, where they differ."""
PUBLISHED_PROTOCOL = ("median of 7 runs; each the mean of steps 21-120", 20, 100, 7)
"""The protocol `published`: statistic in published.csv; warm-up, steps, repeats."""
STRATEGIES = {("fleetx-resnet50", p): f"fleetx-{p}" for p in ("fp32", "amp", "auto")}
STRATEGIES |= {("fleetx-vgg16", p): f"fleetx-vgg16-{p}" for p in ("fp32", "amp")}
STRATEGIES |= {("fleetx-vgg16", "auto"): "fleetx-auto"}
"""The presets of the strategies that a source prints above its tables; others print none."""


@dataclass(frozen=True)
class Match:
    """A measurement that matches a published cell, and their differences."""

    cell: Cell
    row: Row
    differs: Differences

    @property
    def is_like(self) -> bool:
        """Whether perfkit measured on the same GPU in the same precision."""
        return not {"gpu", "precision"} & self.differs.keys()

    @property
    def ratio(self) -> float | None:
        """Measured / published; None if either number is missing."""
        measured, published = self.row["throughput"], self.cell["throughput"]
        return float(measured / published) if measured and published else None


def match(cells: Iterable[Cell], measured: Iterable[Row]) -> list[Match]:
    """Return each measurement, in the order given, with the published cells of the same
    `place`, except cells of single runs."""
    places: dict[tuple[Any, ...], list[Row]] = {}
    for row in measured:
        places.setdefault(tuple(place(row).values()), []).append(row)
    return [
        Match(cell, row, differing(cell, row))
        for cell in cells
        if cell["table"] != RUNS
        for row in places.get(tuple(place_of(cell).values()), [])
    ]


def place(row: Row) -> dict[str, Any]:
    """Return the properties that decide which published cells a measurement matches."""
    keys = ("model", "device", "framework", "precision", "topology", "batch_size")
    model = model_named(row["model"])
    # All published numbers are for samples of the default size.
    sizes = {
        "image_size": row.get("image_size") or model.default_image_size,
        "sequence_length": row.get("sequence_length") or model.default_sequence_length,
    }
    return {key: row[key] for key in keys} | sizes | {"accumulates": row["accumulate"] > 1}


def place_of(cell: Cell) -> dict[str, Any]:
    """Return the `place` of a published number: on GPUs, with samples of the default size."""
    names = {key: PARAMETER.get(cell[key], cell[key]) for key in ("model", "framework")}
    fixed = {"device": "gpu", "accumulate": 2 if cell["accumulates"] else 1}
    return place(cell | names | fixed | {"batch_size": cell["batch_per_gpu"]})


def differing(cell: Cell, row: Row) -> Differences:
    """Compare GPU, precision, input, strategy and statistic as far as the source states them;
    optimizer, micro-batches and Paddle's layout and graph with the values in parameters/."""
    gpu, tf32 = device_name(row), " (TF32)" if row["effective.tf32"] else ""
    used = row | {"precision": (row["effective.precision"] or row["precision"]) + tf32}
    expected = {"precision": cell["precision"], "input": cell["input"]}
    expected["strategy"] = STRATEGIES.get((cell["table"], cell["precision"]), "none")
    expected |= {"accumulate": 1, "optimizer": model_named(row["model"]).optimizers[0]}
    if cell["framework"] == "paddle":
        expected |= {"layout": "NCHW", "execution": "static"}
    named = {*gpu.replace("-", " ").replace("GiB", "GB").split()}
    found = {} if named.issuperset(cell["gpu"].split("-")) else {"gpu": (cell["gpu"], gpu)}
    for key, value in expected.items():
        if None not in (value, used[key]) and str(used[key]) not in str(value).split("/"):
            found[key] = (str(value), str(used[key]))
    warmup, measured, n = row["warmup_steps"], row["measured_steps"], row["n"]
    if n and (cell["statistic"], warmup, measured, n) != PUBLISHED_PROTOCOL:
        words = _("median of %(n)d runs; each the mean of steps %(first)d-%(last)d")
        statistic = words % {"n": n, "first": warmup + 1, "last": warmup + measured}
        found["statistic"] = (_(cell["statistic"] or "not stated"), statistic)
    return found


def difference_words(differs: Mapping[str, tuple[str, str]]) -> list[str]:
    """Return, in words, the measured values and the published ones if stated."""
    words = {
        "gpu": _("GPU %(used)s; published: %(published)s"),
        "precision": _("effective precision %(used)s; published: %(published)s"),
        "input": _("input %(used)s; published: %(published)s"),
        "statistic": _("%(used)s; published: %(published)s"),
    }
    return [
        words.get(key, f"{key} %(used)s") % {"published": published, "used": used}
        for key, (published, used) in differs.items()
    ]
