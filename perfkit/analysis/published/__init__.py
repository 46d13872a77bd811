"""Published numbers: published.csv, transcribed from the sources; the cells of its tables;
layouts.csv, the layout and URL of each source.

matches.py  measurements that match published cells, and their differences
"""

from pathlib import Path
from typing import Any

import pandas as pd

from perfkit.core.frameworks import DISPLAY_NAMES
from perfkit.core.results.frames import records
from perfkit.report.text.language import gettext as _

FILE = Path(__file__).parent / "published.csv"
FRAMEWORK_NAMES = DISPLAY_NAMES | {"pytorch": "PyTorch", "oneflow": "OneFlow"}
"""Framework in published.csv or in a measurement -> its name in texts."""


def published() -> pd.DataFrame:
    """Return one row per cell of the published tables; `source` names the document.

    `throughput` is in `unit`, over all GPUs of all nodes; `batch_per_gpu` is in samples.
    `printed` is the throughput, and `speedup` the speed-up over one GPU that DLPerf's report
    prints next to it, both as text with the digits of the source. `status` is `published`;
    `dash` if the source prints a dash; `not_published` if it leaves the cell empty. The last
    two have no throughput: NaN, as every empty cell has.
    """
    # By default, pandas would also read words such as "none" as missing.
    as_text = {"keep_default_na": False, "na_values": [""]}
    kept = {"throughput": object, "speedup": object}
    cells = pd.read_csv(FILE, **as_text, dtype=kept)
    printed = cells["throughput"]
    return cells.assign(throughput=printed.astype(float), printed=printed)


Cell = dict[str, Any]
"""A row of perfkit.published() with the fields of `cells_of`; None for missing values."""

TABLE_PRECISION = {"fp32": "FP32", "amp": "AMP", "pure_fp16": "AMP", "auto": "auto"}
"""Precision in the sources' table headings; pure FP16 is among AMP, marked in its cell."""
ROW_BATCH = {96: 128, 192: 256, 208: 256, 248: 256}
"""The README's rows name a batch size; its marked cells were measured with a smaller one."""
ACCUMULATES = {"gradient accumulation": True, "without gradient accumulation": False}
NO_BASE = "no base of a speed-up: auto may switch on other options than on several GPUs"
"""The FleetX VGG-16 page's reason for no speed-up of the automatic strategy."""
RUNS = "dlperf-resnet50-run"
"""Table of single runs, which match no measurement."""
LAYOUTS = pd.read_csv(Path(__file__).parent / "layouts.csv")
SHAPES = {str(layout.table): layout for layout in LAYOUTS.itertuples()}
"""Layout of each table in its source: heading of the first column (`corner`), template of a
`row` name, key of a `column`, whether the `speedup` over one GPU is printed; the kind of
`chart`, and the `url` of the source."""


def cells_of(published: pd.DataFrame) -> list[Cell]:
    """Return the rows of perfkit.published() with these fields added: `gpus` of all nodes,
    `topology`, `row_batch`, the batch size in the row's name, `accumulates`, whether gradients
    are accumulated (None if the note does not say), and `scaling`, the throughput over that of
    one GPU if the source has it."""
    nodes, batch = published["nodes"], published["batch_per_gpu"]
    gpus = nodes * published["gpus_per_node"]
    one_gpu = published["throughput"].where(published["speedup"].notna() & (gpus == 1))
    keys = ["source", "framework", "precision", "batch_per_gpu", "statistic"]
    same_runs = one_gpu.groupby([published[key] for key in keys], dropna=False)
    cells = published.assign(
        gpus=gpus,
        topology=nodes.astype(str) + "x" + published["gpus_per_node"].astype(str),
        row_batch=batch.replace(ROW_BATCH).where(published["table"] == "perf-resnet50", batch),
        accumulates=published["note"].map(ACCUMULATES),
        scaling=published["throughput"] / same_runs.transform("max"),
    )
    return records(cells)


def labels(cell: Cell) -> dict[str, str]:
    """Return a cell's names in tables and charts: `row`, `column` and `part` of its table, the
    `name` of its framework, and `marks`, the source's remarks on this cell alone."""
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
    """Return the source's value for `key`; several, each with its frameworks or topologies."""
    values = cells[key].fillna("not stated").map(_)
    by = "name" if values.groupby(cells["name"]).nunique().max() == 1 else "topology"
    whose = cells[by].groupby(values, sort=False).unique().map(", ".join)
    parts = [f"{value} ({names})" for value, names in whose.items()]
    return "; ".join(parts) if len(parts) > 1 else values.iloc[0]
