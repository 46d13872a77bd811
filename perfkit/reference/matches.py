"""Which measurements stand at which published cells, and in what the two differ."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from perfkit.models import MODELS
from perfkit.reference import RUNS, Cell
from perfkit.text.format import device_name
from perfkit.text.language import gettext as _

Row = dict[str, Any]  # of perfkit.load(), as `frames.records` gives it
Differences = dict[str, tuple[str, str]]
"""In what a measurement differs from a published number: key -> published, measured."""
PARAMETER = {"pytorch": "torch", "bert-base": "bert"}
"""What published.csv writes -> the parameter, where that is called otherwise."""
PUBLISHED_PROTOCOL = ("median of 7 runs; each the mean of steps 21-120", 20, 100, 7)
"""The protocol `published`: as published.csv writes its statistic; warm-up, steps, repeats."""
STRATEGIES = {("fleetx-resnet50", p): f"fleetx-{p}" for p in ("fp32", "amp", "auto")}
STRATEGIES |= {("fleetx-vgg16", p): f"fleetx-vgg16-{p}" for p in ("fp32", "amp")}
STRATEGIES |= {("fleetx-vgg16", "auto"): "fleetx-auto"}
"""The presets of the strategies that a source prints above its tables; others print none."""


@dataclass(frozen=True)
class Match:
    """A measurement that stands at a published cell, and in what the two differ."""

    cell: Cell
    row: Row
    differs: Differences

    @property
    def is_like(self) -> bool:
        """Whether perfkit measured on the same GPU in the same precision."""
        return not {"gpu", "precision", "imported"} & self.differs.keys()

    @property
    def ratio(self) -> float | None:
        """Measured / published; None where one of the two has no number."""
        measured, published = self.row["throughput"], self.cell["throughput"]
        return float(measured / published) if measured and published else None


def match(cells: Iterable[Cell], measured: Iterable[Row]) -> list[Match]:
    """Every measurement, in the order given, beside the published cells whose `place` it has,
    but for cells of single runs."""
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
    """What decides where a measurement would stand in a published table."""
    keys = ("model", "device", "framework", "precision", "topology", "batch_size")
    model = MODELS[row["model"]]
    # Behind all published numbers are samples of the default size.
    sizes = {
        "image_size": row.get("image_size") or model.default_image_size,
        "sequence_length": row.get("sequence_length") or model.default_sequence_length,
    }
    return {key: row[key] for key in keys} | sizes | {"accumulates": row["accumulate"] > 1}


def place_of(cell: Cell) -> dict[str, Any]:
    """The `place` of a published number. All are of GPUs and of samples of the usual size."""
    names = {key: PARAMETER.get(cell[key], cell[key]) for key in ("model", "framework")}
    usual = {"device": "gpu", "accumulate": 2 if cell["accumulates"] else 1}
    return place(cell | names | usual | {"batch_size": cell["batch_per_gpu"]})


def differing(cell: Cell, row: Row) -> Differences:
    """GPU, precision, input, strategy and statistic as far as the source states them; optimizer
    and micro-batches, of Paddle layout and graph too, from what perfkit takes for the published
    work, as parameters/ does."""
    gpu, tf32 = device_name(row), " (TF32)" if row["effective.tf32"] else ""
    used = row | {"precision": (row["effective.precision"] or row["precision"]) + tf32}
    expected = {"precision": cell["precision"], "input": cell["input"]}
    expected["strategy"] = STRATEGIES.get((cell["table"], cell["precision"]), "none")
    expected |= {"accumulate": 1, "optimizer": MODELS[row["model"]].optimizers[0]}
    if cell["framework"] == "paddle":
        expected |= {"layout": "NCHW", "execution": "static"}
    named = {*gpu.replace("-", " ").replace("GiB", "GB").split()}
    found = {} if named.issuperset(cell["gpu"].split("-")) else {"gpu": (cell["gpu"], gpu)}
    for key, value in expected.items():
        if None not in (value, used[key]) and str(used[key]) not in str(value).split("/"):
            found[key] = (str(value), str(used[key]))
    if row["imported"]:
        found["imported"] = ("", row["imported"])
    warmup, measured, n = row["warmup_steps"], row["measured_steps"], row["n"]
    if n and (cell["statistic"], warmup, measured, n) != PUBLISHED_PROTOCOL:
        words = _("median of %(n)d runs; each the mean of steps %(first)d-%(last)d")
        statistic = words % {"n": n, "first": warmup + 1, "last": warmup + measured}
        found["statistic"] = (_(cell["statistic"] or "not stated"), statistic)
    return found


def difference_words(differs: Mapping[str, tuple[str, str]]) -> list[str]:
    """What was measured and, where its source states it, what was published."""
    words = {
        "gpu": _("GPU %(used)s; published: %(published)s"),
        "precision": _("effective precision %(used)s; published: %(published)s"),
        "input": _("input %(used)s; published: %(published)s"),
        "statistic": _("%(used)s; published: %(published)s"),
        "imported": _("imported from %(used)s"),
    }
    return [
        words.get(key, f"{key} %(used)s") % {"published": published, "used": used}
        for key, (published, used) in differs.items()
    ]
