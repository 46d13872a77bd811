"""Facts that stand in each print: the global batch size, the sequence length, the samples that
the training has consumed so far."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd

COLUMNS = ("global_batch_size", "sequence_length", "consumed_samples")
"""Columns of prints with facts."""
LARGEST = 2**40
"""Larger sizes are implausible."""


class PrintedFact(NamedTuple):
    """A fact, and the first line that prints it."""

    name: str
    value: int
    line: int


def facts_of_prints(windows: pd.DataFrame) -> Iterator[PrintedFact]:
    """Yield the facts in which all prints of a run agree."""
    if not len(windows):
        return
    line = int(windows["line"].iloc[0])
    for name in ("global_batch_size", "sequence_length"):
        sizes = _sizes(windows, name)
        if len(sizes) == 1:
            yield PrintedFact(name, int(sizes[0]), line)
    if "consumed_samples" in windows and not len(_sizes(windows, "global_batch_size")):
        batch_size = _consumed_per_step(windows)
        if batch_size:
            yield PrintedFact("global_batch_size", batch_size, line)


def _sizes(windows: pd.DataFrame, name: str) -> np.ndarray:
    """Return the different sizes in a column, ascending."""
    if name not in windows:
        return np.array([])
    sizes = np.unique(windows[name].to_numpy())
    return sizes[(sizes > 0) & (sizes < LARGEST)]


def _consumed_per_step(windows: pd.DataFrame) -> int:
    """Return the samples that each step consumed; 0 if steps differ."""
    of_rank = windows[windows["rank"] == windows["rank"].iloc[0]]
    samples = np.diff(of_rank["consumed_samples"])
    steps = np.diff(of_rank["last"])
    per_step = np.unique(samples[steps > 0] / steps[steps > 0])
    per_step = per_step[np.isfinite(per_step)]
    if len(per_step) != 1 or not 0 < per_step[0] < LARGEST or per_step[0] % 1:
        return 0
    return int(per_step[0])
