"""Published numbers, transcribed from their sources.

published.csv  the cells of the tables
layouts.csv    the layout and the URL of each source
layouts.py     the layouts as objects
cells.py       the cells as objects
matches.py     measurements that match published cells, and their differences
"""

from pathlib import Path

import pandas as pd

FILE = Path(__file__).parent / "published.csv"


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
    types = {"throughput": object, "speedup": object}
    cells = pd.read_csv(FILE, **as_text, dtype=types)
    printed = cells["throughput"]
    return cells.assign(throughput=printed.astype(float), printed=printed)
