"""Published numbers, transcribed from their sources.

published.csv  the cells of the tables
llama.csv      those of Llama's tables, with more columns
references.csv  those of ResNet-50 on recent GPUs, of several sources
layouts.csv    the layout and the URL of each source
layouts.py     the layouts as objects
cells.py       the cells as objects
matches.py     measurements that match published cells, and their differences
references.py  a measurement beside every number of its model on its class of GPU
"""

from pathlib import Path

import pandas as pd

from perfkit.measuring.statements import N_

FOLDER = Path(__file__).parent
FILES = (FOLDER / "published.csv", FOLDER / "llama.csv", FOLDER / "references.csv")
PER_GPU = " per GPU"
PER_GPU_UNITS = (N_("tokens/s per GPU"), N_("images/s per GPU"))
COUNTS = ("batch_per_gpu", "sequence_length", "global_batch", "accumulate")
"""Columns of whole numbers that some sources don't state."""


def published() -> pd.DataFrame:
    """Return one row per cell of the published tables; `source` names the document.

    `throughput` is in `unit`, over all GPUs of all nodes; `batch_per_gpu` is in samples, with
    accumulation those of a micro-batch. `printed` is the throughput in `printed_unit`, and
    `speedup` the speed-up over one GPU that DLPerf's report prints next to it, both as text
    with the digits of the source. `status` is `published`; `dash` if the source prints a dash;
    `not_published` if it leaves the cell empty. The last two have no throughput: NaN, as every
    empty cell has.

    Llama's tables also have what the source states of `setup`, `sequence_length`,
    `global_batch` (samples), `accumulate`, `execution`, `sharding`, `recompute`, `memory_gib`
    and `tflops_per_gpu`, and the `date` of the software or the logs. MLPerf's numbers are
    computed from its logs.

    The table `references` has several sources, with a `url` of each cell; `setup` and `layout`
    as far as these state them. `tf32` is fp32 with TF32.
    """
    # By default, pandas would also read words such as "none" as missing.
    as_text = {"keep_default_na": False, "na_values": [""]}
    types = {"throughput": object, "speedup": object} | dict.fromkeys(COUNTS, "Int64")
    cells = pd.concat([pd.read_csv(file, **as_text, dtype=types) for file in FILES])
    cells = cells.reset_index(drop=True)
    printed, printed_unit = cells["throughput"], cells["unit"]
    is_in_samples = (printed_unit == "samples/s") & cells["sequence_length"].notna()
    is_per_gpu = printed_unit.isin(PER_GPU_UNITS)
    throughput = printed.astype(float)
    throughput *= cells["sequence_length"].where(is_in_samples, 1).astype(float)
    throughput *= (cells["nodes"] * cells["gpus_per_node"]).where(is_per_gpu, 1)
    unit = printed_unit.mask(is_in_samples, "tokens/s").str.removesuffix(PER_GPU)
    return cells.assign(
        throughput=throughput, unit=unit, printed=printed, printed_unit=printed_unit
    )
