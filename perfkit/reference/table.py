"""The published numbers, transcribed from their sources."""

from pathlib import Path

import pandas as pd

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
