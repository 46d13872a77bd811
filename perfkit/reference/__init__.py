"""The published numbers: published.csv, transcribed from the sources; the cells of the tables;
layouts.csv, how and where the sources print them.

matches.py  which measurements stand at which cells, and in what the two differ
"""

from pathlib import Path
from typing import Any

import pandas as pd

from perfkit.results.frames import records
from perfkit.text.format import FRAMEWORK_NAMES
from perfkit.text.language import gettext as _

FILE = Path(__file__).parent / "published.csv"


def published() -> pd.DataFrame:
    """One row per cell of the published tables; `source` names the document it stands in.

    `throughput` is in `unit`, over all GPUs of all nodes; `batch_per_gpu` is in samples.
    `printed` is the throughput, and `speedup` the speed-up over one GPU that DLPerf's report
    has beside it, both as text with the digits of their source. `status` is `published`;
    `dash` where the source prints a dash; `not_published` where it leaves the cell empty. The
    last two have no throughput: NaN, as every empty cell has.
    """
    # Only empty text is empty: pandas would also take a word such as "none" for a missing cell.
    as_text = {"keep_default_na": False, "na_values": [""]}
    kept = {"throughput": object, "speedup": object}
    cells = pd.read_csv(FILE, **as_text, dtype=kept)
    printed = cells["throughput"]
    return cells.assign(throughput=printed.astype(float), printed=printed)


Cell = dict[str, Any]
"""A row of perfkit.published() with what `cells_of` adds; None for what is not there."""

TABLE_PRECISION = {"fp32": "FP32", "amp": "AMP", "pure_fp16": "AMP", "auto": "auto"}
"""As the sources head their tables; pure FP16 stands among AMP and is marked in its cell."""
ROW_BATCH = {96: 128, 192: 256, 208: 256, 248: 256}
"""The README's rows name a batch size, and its marked cells had to take a smaller one."""
ACCUMULATES = {"gradient accumulation": True, "without gradient accumulation": False}
NO_BASE = "no base of a speed-up: auto may switch on other options than on several GPUs"
"""What the FleetX VGG-16 page says of one GPU with the automatic strategy."""
RUNS = "dlperf-resnet50-run"
"""Single runs: these cells stand beside no measurement."""
LAYOUTS = pd.read_csv(Path(__file__).parent / "layouts.csv")
SHAPES = {str(layout.table): layout for layout in LAYOUTS.itertuples()}
"""How its source lays out each table: heading of the first column (`corner`), pattern that
names a `row`, key that names a `column`, whether it prints the `speedup` over one GPU; the kind
of `chart` for it, and the `url` where it was published."""


def cells_of(published: pd.DataFrame) -> list[Cell]:
    """The rows of perfkit.published(). Each has besides: `gpus` of all nodes, `topology`, the
    `row_batch` that its row names, whether it `accumulates` gradients (None where its note says
    nothing), and `scaling`, its throughput over that of one GPU where its source has that."""
    nodes, batch = published["nodes"], published["batch_per_gpu"]
    gpus = nodes * published["gpus_per_node"]
    one_gpu = published["throughput"].where(published["speedup"].notna() & (gpus == 1))
    alike = ["source", "framework", "precision", "batch_per_gpu", "statistic"]
    same_runs = one_gpu.groupby([published[key] for key in alike], dropna=False)
    cells = published.assign(
        gpus=gpus,
        topology=nodes.astype(str) + "x" + published["gpus_per_node"].astype(str),
        row_batch=batch.replace(ROW_BATCH).where(published["table"] == "perf-resnet50", batch),
        accumulates=published["note"].map(ACCUMULATES),
        scaling=published["throughput"] / same_runs.transform("max"),
    )
    return records(cells)


def labels(cell: Cell) -> dict[str, str]:
    """How tables and charts name a cell: `row`, `column` and `part` of its table, the `name` of
    its framework, and `marks`, what the source says of this cell alone."""
    layout, batch, note = SHAPES[cell["table"]], cell["batch_per_gpu"], _(cell["note"] or "")
    row, column = layout.row.format(**cell), str(cell[layout.column])
    marks = [f"BS={batch}"] if batch != cell["row_batch"] else []
    if cell["accumulates"] is not None:
        row = f"{row}, {note}"
    elif note and cell["table"] != RUNS:
        marks.append(note)
    return {
        "row": row,
        "column": _(FRAMEWORK_NAMES.get(column, column)),
        "part": f"{cell['gpu'].split('-')[0]}, {TABLE_PRECISION[cell['precision']]}",
        "name": FRAMEWORK_NAMES[cell["framework"]],
        "marks": ", ".join(marks),
    }


def stated(cells: pd.DataFrame, key: str) -> str:
    """What the source states as `key`; of several values, of which frameworks or topologies."""
    values = cells[key].fillna("not stated").map(_)
    by = "name" if values.groupby(cells["name"]).nunique().max() == 1 else "topology"
    whose = cells[by].groupby(values, sort=False).unique().map(", ".join)
    several = [f"{value} ({names})" for value, names in whose.items()]
    return "; ".join(several) if len(several) > 1 else values.iloc[0]
