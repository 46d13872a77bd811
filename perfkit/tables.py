"""The published numbers, transcribed from their sources."""

from pathlib import Path

import pandas as pd

FILE = Path(__file__).parent / "published" / "published.csv"


def published() -> pd.DataFrame:
    """One row per cell of the published tables; `source` names the document it stands in.

    `throughput` is in `unit`, over all GPUs of all nodes; `batch_per_gpu` is in samples.
    `status` is `published`; `dash` where the source prints a dash; `not_published` where it
    leaves the cell empty. The last two have no throughput: NaN, as every empty cell has.
    """
    # Only empty text is empty: pandas would also take a word such as "none" for a missing cell.
    return pd.read_csv(
        FILE, keep_default_na=False, na_values=[""], float_precision="round_trip"
    )
