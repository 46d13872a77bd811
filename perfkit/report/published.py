"""The published tables in their sources' shapes, with what was measured beside."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pandas as pd

from perfkit.models import MODELS
from perfkit.report.grid import Entry, Grid, measured_entry, speedup_cells
from perfkit.report.language import gettext as _
from perfkit.report.series import device_name
from perfkit.report.wording import FRAMEWORK_NAMES, number

Cell = dict[str, Any]
"""A row of perfkit.published(), with None for what is not there."""
Row = dict[str, Any]
"""A row of perfkit.load()."""

TABLE_PRECISION = {"fp32": "FP32", "amp": "AMP", "pure_fp16": "AMP", "auto": "auto"}
"""As the sources head their tables; pure FP16 stands among AMP and is marked in its cell."""
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
PUBLISHED_MODEL = {"resnet50": "resnet50", "vgg16": "vgg16", "bert": "bert-base"}
ROW_BATCH = {("perf-resnet50", 96): 128}
ROW_BATCH |= {("perf-resnet50", batch): 256 for batch in (192, 208, 248)}
"""Where a source's row names a batch size, and the marked cell had to take a smaller one."""


@dataclass(frozen=True)
class Match:
    """A measurement that stands in a published cell, and in what the two differ."""

    cell: Cell
    row: Row
    differs: dict[str, str]

    @property
    def is_like(self) -> bool:
        """Whether both were made on the same GPU in the same precision."""
        return not {"gpu", "precision"} & self.differs.keys()

    @property
    def ratio(self) -> float | None:
        """Measured / published; None where one of the two has no number."""
        measured, published = self.row["throughput"], self.cell["throughput"]
        return float(measured / published) if measured and published else None


def topology(cell: Cell) -> str:
    return f"{cell['nodes']}x{cell['gpus_per_node']}"


def gpu_count(cell: Cell) -> int:
    return int(cell["nodes"] * cell["gpus_per_node"])


def row_batch(cell: Cell) -> int:
    batch = int(cell["batch_per_gpu"])
    return ROW_BATCH.get((cell["table"], batch), batch)


def gpus_and_batch(cell: Cell) -> str:
    label, note = f"GPU={gpu_count(cell)}, BS={row_batch(cell)}", cell["note"]
    return f"{label}, {_(note)}" if accumulates(cell) is not None else label


def accumulates(cell: Cell) -> bool | None:
    """Whether the cell's note says that gradients were accumulated; None if it says nothing."""
    says = {"gradient accumulation": True, "without gradient accumulation": False}
    return says.get(cell["note"])


@dataclass(frozen=True)
class Shape:
    """How a source lays out a table: what names a row and a column, what tells its parts
    apart, and whether it prints the speed-up over the first row."""

    corner: str
    row: Callable[[Cell], str]
    column: Callable[[Cell], str]
    speedup: bool = False


def run_name(cell: Cell) -> str:
    note = cell["note"]
    return _(note)


FLEETX = Shape("batch / node", lambda c: str(c["batch_per_gpu"]), topology)
DLPERF = Shape("nodes x GPUs", topology, lambda c: FRAMEWORK_NAMES[c["framework"]], True)
DLPERF_RUNS = Shape("nodes x GPUs", topology, run_name)
PADDLE_PERF = Shape("GPU, BS", gpus_and_batch, lambda c: FRAMEWORK_NAMES[c["framework"]])
RUNS = "dlperf-resnet50-run"
NO_BASE = "no base of a speed-up: auto may switch on other options than on several GPUs"
"""What the FleetX VGG-16 page says of one GPU with the automatic strategy."""
SHAPES = {
    "fleetx-resnet50": FLEETX,
    "fleetx-vgg16": FLEETX,
    "dlperf-resnet50": DLPERF,
    "dlperf-resnet50-log": DLPERF,
    RUNS: DLPERF_RUNS,
    "perf-resnet50": PADDLE_PERF,
    "perf-bert": PADDLE_PERF,
    "paddle-resnet50-report": PADDLE_PERF,
}


def cells_of(published: pd.DataFrame) -> list[Cell]:
    """The rows of perfkit.published(); DLPerf's runs, printed as their files came, in order."""
    plain = published.astype(object).where(published.notna(), None)
    cells: list[Cell] = plain.to_dict("records")
    names = list(SHAPES)
    return sorted(
        cells,
        key=lambda c: (
            names.index(c["table"]),
            (gpu_count(c), c["note"]) if c["table"] == RUNS else (),
        ),
    )


def match(cells: Iterable[Cell], measured: Iterable[Row]) -> list[Match]:
    """Every measurement on GPUs beside the published cells whose place it has: model, images
    or sequences of the usual size, framework, precision, topology and batch per GPU,
    accumulating or not. Cells of single runs are left out."""
    places: dict[tuple[Any, ...], list[Row]] = {}
    for row in measured:
        usual = row["image_size"] in (None, 224) and row["sequence_length"] in (None, 128)
        if row["device"] == "gpu" and usual:
            keys = ("framework", "precision", "topology", "batch_size")
            place = (PUBLISHED_MODEL[row["model"]], *(row[key] for key in keys))
            places.setdefault((*place, row["accumulate"] > 1), []).append(row)
    return [
        Match(cell, row, differences(cell, row))
        for cell in cells
        if cell["table"] != RUNS
        for row in places.get(
            (
                cell["model"],
                cell["framework"],
                cell["precision"],
                topology(cell),
                cell["batch_per_gpu"],
                accumulates(cell) is True,
            ),
            [],
        )
    ]


def differences(cell: Cell, row: Row) -> dict[str, str]:
    """In what a measurement differs from the published cell: key -> words.

    GPU, precision, input, strategy and statistic as far as the source tells them; layout,
    graph, optimizer and micro-batches from what perfkit takes for the published work, as
    parameters/ does.
    """
    told = {}
    gpu = device_name(row)
    if not set(words(cell["gpu"])) <= set(words(gpu)):
        told["gpu"] = _against(_("on %(used)s") % {"used": gpu}, cell["gpu"])
    used = row["effective.precision"] + (" (TF32)" if row["effective.tf32"] else "")
    if used != cell["precision"]:
        told["precision"] = _("really %(used)s") % {"used": used}
    if cell["input"] and row["input"] not in cell["input"].split("/"):
        told["input"] = _against(_("input %(used)s") % {"used": row["input"]}, cell["input"])
    strategy = STRATEGIES.get((cell["table"], cell["precision"]), "none")
    usual = {"layout": "NCHW", "execution": "static", "strategy": strategy, "accumulate": 1}
    usual["optimizer"] = MODELS[row["model"]].optimizers[0]
    told |= {key: f"{key} {row[key]}" for key in usual if row[key] not in (None, usual[key])}
    same = (row["warmup_steps"], row["measured_steps"], row["n"]) == (20, 100, 7)
    if row["n"] and not (same and cell["statistic"] == PUBLISHED_STATISTIC):
        stated = cell["statistic"] or "not stated"
        told["statistic"] = _against(statistic_of(row), _(stated))
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


def part(cell: Cell) -> str:
    """What heads the table of its document that a cell stands in."""
    return f"{cell['gpu'].split('-')[0]}, {TABLE_PRECISION[cell['precision']]}"


def grids(table: str, cells: list[Cell], matches: list[Match]) -> list[Grid]:
    """A published table as its source has it: one grid for each GPU and precision."""
    beside: dict[int, list[Match]] = {}
    for found in matches:
        beside.setdefault(id(found.cell), []).append(found)
    parts: dict[str, list[Cell]] = {}
    for cell in cells:
        if cell["table"] == table:
            parts.setdefault(part(cell), []).append(cell)
    bases = {_alike(cell): cell for cell in cells if cell["speedup"] and gpu_count(cell) == 1}
    return [_grid(SHAPES[table], name, some, beside, bases) for name, some in parts.items()]


def _alike(cell: Cell) -> tuple[Any, ...]:
    """What a number and the base of its speed-up have in common."""
    keys = ("source", "framework", "precision", "batch_per_gpu", "statistic")
    return tuple(cell[key] for key in keys)


def _grid(
    shape: Shape,
    caption: str,
    cells: list[Cell],
    beside: dict[int, list[Match]],
    bases: dict[tuple[Any, ...], Cell],
) -> Grid:
    columns = list(dict.fromkeys(shape.column(cell) for cell in cells))
    rows: dict[str, dict[str, Cell]] = {}
    for cell in cells:
        rows.setdefault(shape.row(cell), {})[shape.column(cell)] = cell
    headings, lines = [], []
    for column in columns:
        headings += [column, *([_("speed-up"), _("efficiency")] if shape.speedup else [])]
    for label, found in rows.items():
        line: list[list[Entry]] = []
        for column in columns:
            here = found.get(column)
            line.append(_entries(here, beside.get(id(here), [])))
            if shape.speedup and here:
                line += _speedup(here, bases[_alike(here)])
        lines.append((label, line))
    return Grid(caption, _(shape.corner), headings, lines, _origins(cells))


def _origins(cells: list[Cell]) -> list[str]:
    """What the source says of GPU, input and statistic, with the frameworks it holds for."""
    names = {"gpu": "GPU", "input": _("input"), "statistic": _("statistic")}
    told = [cells[0]["unit"]]
    for key, name in names.items():
        values = list(dict.fromkeys(cell[key] for cell in cells))
        words = [
            _(value or "not stated")
            + (f" ({_whose(cells, key, value)})" if len(values) > 1 else "")
            for value in values
        ]
        told.append(f"{name}: {'; '.join(words)}")
    return told


def _whose(cells: list[Cell], key: str, value: str | None) -> str:
    """The topologies that have this value, or the frameworks, whichever tells it apart."""
    own = [cell for cell in cells if cell[key] == value]
    others = [cell for cell in cells if cell[key] != value]
    for name in (lambda c: FRAMEWORK_NAMES[c["framework"]], topology):
        if not {*map(name, own)} & {*map(name, others)}:
            return ", ".join(dict.fromkeys(map(name, own)))
    return ", ".join(dict.fromkeys(f"{topology(cell)}" for cell in own))


def _speedup(cell: Cell, base: Cell) -> list[list[Entry]]:
    """Speed-up and efficiency over one GPU, computed from numbers of the same statistic."""
    speedup, efficiency = speedup_cells(
        cell["throughput"], gpu_count(cell), base["throughput"], gpu_count(base)
    )
    return [[_checked(speedup[0], cell["speedup"])], efficiency]


def _checked(computed: Entry, printed: str) -> Entry:
    """The speed-up that the throughputs give; where the source has another, that too."""
    if float(computed.text) == float(printed):
        return computed
    return Entry(computed.text, [_("printed: %(printed)s") % {"printed": printed}])


def _entries(cell: Cell | None, matches: list[Match]) -> list[Entry]:
    """What was published, and below it what was measured."""
    if cell is None or cell["status"] == "not_published":
        published = Entry(_("not published"), kind="absent")
    elif cell["status"] == "dash":
        published = Entry(_("– (a dash)"), marks(cell), kind="absent")
    else:
        published = Entry(cell["printed"], marks(cell), kind="published")
    if cell and cell["table"] == RUNS:
        return [published]
    if not matches:
        return [published, measured_entry(None)]
    return [published, *(_measured(found) for found in matches)]


def marks(cell: Cell) -> list[str]:
    """What the source says of this cell alone."""
    told = [f"BS={cell['batch_per_gpu']}"] if cell["batch_per_gpu"] != row_batch(cell) else []
    note = cell["note"]
    if note and accumulates(cell) is None and cell["table"] != RUNS:
        told.append(_(note))
    return told


def _measured(found: Match) -> Entry:
    entry = measured_entry(found.row)
    if found.row["throughput"] is None:
        return entry
    notes = [*entry.notes, *found.differs.values()]
    if found.ratio:
        notes.insert(0, _("%(ratio)s of published") % {"ratio": number(found.ratio, 3)})
    return Entry(entry.text, notes, href=entry.href)
