"""Which measurement stands in which published cell, and in what the two differ."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from perfkit.models import MODELS
from perfkit.tables.cells import RUNS, Cell, accumulates, topology
from perfkit.tables.series import device_name, in_words
from perfkit.words.language import gettext as _

Row = dict[str, Any]
"""A row of perfkit.load()."""
PUBLISHED_MODEL = {"resnet50": "resnet50", "vgg16": "vgg16", "bert": "bert-base"}
PUBLISHED_FRAMEWORK = {"pytorch": "torch"}
"""How published.csv writes a framework whose parameter is called otherwise."""
PUBLISHED_STATISTIC = "median of 7 runs; each the mean of steps 21-120"
"""How published.csv writes the statistic of the protocol `published`."""
STRATEGIES = {
    ("fleetx-resnet50", "fp32"): "fleetx-fp32",
    ("fleetx-resnet50", "amp"): "fleetx-amp",
    ("fleetx-resnet50", "auto"): "fleetx-auto",
    ("fleetx-vgg16", "fp32"): "fleetx-vgg16-fp32",
    ("fleetx-vgg16", "amp"): "fleetx-vgg16-amp",
    ("fleetx-vgg16", "auto"): "fleetx-auto",
}
"""The presets of the strategies that a source prints above its tables; others print none."""
USUAL_SIZE = {"image": {"image_size": 224}, "sequence": {"sequence_length": 128}}
"""Of the samples behind all published numbers; pixels and tokens."""


@dataclass(frozen=True)
class Match:
    """A measurement that stands in a published cell, and in what the two differ."""

    cell: Cell
    row: Row
    differs: dict[str, str]

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
    """Every measurement on GPUs beside the published cells whose place it has: model, images
    or sequences of the usual size, framework, precision, topology and batch per GPU,
    accumulating or not. Cells of single runs are left out."""
    places: dict[tuple[Any, ...], list[Row]] = {}
    for row in measured:
        places.setdefault(tuple(place(row).values()), []).append(row)
    return [
        Match(cell, row, differences(cell, row))
        for cell in cells
        if cell["table"] != RUNS
        for row in places.get(tuple(place_of(cell).values()), [])
    ]


def place(row: Row) -> dict[str, Any]:
    """Where a measurement would stand in a published table: parameter -> value."""
    keys = ("model", "device", "framework", "precision", "topology", "batch_size")
    usual = USUAL_SIZE[MODELS[row["model"]].sample]
    sizes = {key: row[key] or usual[key] for key in usual}
    return {key: row[key] for key in keys} | sizes | {"accumulates": row["accumulate"] > 1}


def place_of(cell: Cell) -> dict[str, Any]:
    """Where a published number stands, with the keys of `place`. All are of GPUs, and of
    images and sequences of the usual size."""
    model = {name: own for own, name in PUBLISHED_MODEL.items()}[cell["model"]]
    return {
        "model": model,
        "device": "gpu",
        "framework": PUBLISHED_FRAMEWORK.get(cell["framework"], cell["framework"]),
        "precision": cell["precision"],
        "topology": topology(cell),
        "batch_size": cell["batch_per_gpu"],
        **USUAL_SIZE[MODELS[model].sample],
        "accumulates": accumulates(cell) is True,
    }


def differing(cell: Cell, row: Row) -> dict[str, tuple[str, str]]:
    """In what a measurement differs from the published cell: key -> published, used.

    GPU, precision, input, strategy and statistic as far as the source tells them; optimizer
    and micro-batches, of Paddle layout and graph too, from what perfkit takes for the
    published work, as parameters/ does.
    """
    found: dict[str, tuple[str, str]] = {}
    gpu = device_name(row)
    if not set(words(cell["gpu"])) <= set(words(gpu)):
        found["gpu"] = (cell["gpu"], gpu)
    used = row["effective.precision"] + (" (TF32)" if row["effective.tf32"] else "")
    if used != cell["precision"]:
        found["precision"] = (cell["precision"], used)
    if cell["input"] and row["input"] not in cell["input"].split("/"):
        found["input"] = (cell["input"], row["input"])
    strategy = STRATEGIES.get((cell["table"], cell["precision"]), "none")
    usual: dict[str, Any] = {"strategy": strategy, "accumulate": 1}
    if cell["framework"] == "paddle":
        usual |= {"layout": "NCHW", "execution": "static"}
    usual["optimizer"] = MODELS[row["model"]].optimizers[0]
    for key, value in usual.items():
        if row[key] not in (None, value):
            found[key] = (str(value), str(row[key]))
    if row["imported"]:
        found["imported"] = ("", row["imported"])
    same = (row["warmup_steps"], row["measured_steps"], row["n"]) == (20, 100, 7)
    if row["n"] and not (same and cell["statistic"] == PUBLISHED_STATISTIC):
        stated = cell["statistic"] or "not stated"
        found["statistic"] = (_(stated), statistic_of(row))
    return found


def differences(cell: Cell, row: Row) -> dict[str, str]:
    """In what a measurement differs from the published cell, in words."""
    told: dict[str, str] = {}
    for key, (published, used) in differing(cell, row).items():
        match key:
            case "gpu":
                told[key] = _against(_("on %(used)s") % {"used": used}, published)
            case "precision":
                told[key] = _("really %(used)s") % {"used": used}
            case "input":
                told[key] = _against(_("input %(used)s") % {"used": used}, published)
            case "imported":
                told[key] = in_words(key, used)
            case "statistic":
                told[key] = _against(used, published)
            case _:
                told[key] = f"{key} {used}"
    return told


def _against(used: str, published: str) -> str:
    return _("%(used)s; published: %(published)s") % {"used": used, "published": published}


def statistic_of(row: Row) -> str:
    """The statistic of a measurement as published.csv writes it."""
    first, last = row["warmup_steps"] + 1, row["warmup_steps"] + row["measured_steps"]
    told = {"n": row["n"], "first": first, "last": last}
    return _("median of %(n)d runs; each the mean of steps %(first)d-%(last)d") % told


def words(name: str) -> list[str]:
    return name.replace("-", " ").replace("GiB", "GB").split()
