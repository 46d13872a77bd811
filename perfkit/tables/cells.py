"""The cells of the published tables, and how their sources lay them out."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perfkit.words.language import gettext as _
from perfkit.words.wording import FRAMEWORK_NAMES

if TYPE_CHECKING:
    from pandas import DataFrame

Cell = dict[str, Any]
"""A row of perfkit.published(), with None for what is not there."""

TABLE_PRECISION = {"fp32": "FP32", "amp": "AMP", "pure_fp16": "AMP", "auto": "auto"}
"""As the sources head their tables; pure FP16 stands among AMP and is marked in its cell."""
ROW_BATCH = {("perf-resnet50", 96): 128}
ROW_BATCH |= {("perf-resnet50", batch): 256 for batch in (192, 208, 248)}
"""Where a source's row names a batch size, and the marked cell had to take a smaller one."""


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


def cells_of(published: "DataFrame") -> list[Cell]:
    """The rows of perfkit.published(); DLPerf's runs, printed as their files came, in order."""
    plain = published.astype(object).where(published.notna(), None)
    cells: list[Cell] = plain.to_dict("records")
    names = list(SHAPES)
    if unknown := {cell["table"] for cell in cells} - {*names}:
        raise ValueError(f"published.csv has tables that SHAPES has not: {sorted(unknown)}")
    return sorted(
        cells,
        key=lambda c: (
            names.index(c["table"]),
            (gpu_count(c), c["note"]) if c["table"] == RUNS else (),
        ),
    )


def part(cell: Cell) -> str:
    """What heads the table of its document that a cell stands in."""
    precision = TABLE_PRECISION.get(cell["precision"], cell["precision"])
    return f"{cell['gpu'].split('-')[0]}, {precision}"


def marks(cell: Cell) -> list[str]:
    """What the source says of this cell alone."""
    told = [f"BS={cell['batch_per_gpu']}"] if cell["batch_per_gpu"] != row_batch(cell) else []
    note = cell["note"]
    if note and accumulates(cell) is None and cell["table"] != RUNS:
        told.append(_(note))
    return told
