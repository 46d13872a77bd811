"""Quantities that each line of a log prints besides its time: rates, TFLOP/s, MFU."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from perfkit.measuring.results.base import Stored

Quantity = Literal["samples/s", "tokens/s", "TFLOP/s", "MFU", "s/step", "ms/step", "steps/s"]
"""What a printed number is, with its unit. MFU is in percent."""
Of = Literal["device", "all", ""]
MOST = 1e18
"""Larger numbers, and smaller ones than its inverse, are implausible: sums could overflow."""
PRINTED = "printed"
"""Prefix of the columns with printed quantities: printed0, printed1, …"""


@dataclass(frozen=True)
class DeclaredQuantity:
    """A quantity that a format declares: its name as the log spells it, what it is, whether of
    one device or of all, and the column with its values. `scale` converts a printed number into
    the quantity's unit. `peak_tflops` is the peak of an MFU if it is the same for every GPU."""

    name: str
    quantity: Quantity
    of: Of
    column: str
    scale: float = 1.0
    peak_tflops: float | None = None


class PrintedQuantity(Stored):
    """A quantity that the lines of a log print, as printed: no value is recomputed."""

    name: str
    """the quantity's name as the log spells it: tps, TFLOPs"""
    quantity: Quantity
    """what the number is, with its unit; MFU is in percent"""
    of: Of
    """whether it is that of one device or of all; empty if this does not apply"""
    peak_tflops: float | None = None
    """peak by which an MFU is computed whatever the GPU; None if it is the GPU's own"""
    first: float
    """first printed value"""
    median: float
    """median of all printed values"""
    last: float
    """last printed value"""
    mean_protocol: float | None = None
    """arithmetic mean of the prints that cover steps 21 to 120; None without such prints"""
    harmonic_protocol: float | None = None
    """harmonic mean of the prints that cover steps 21 to 120"""
    harmonic_warm: float | None = None
    """harmonic mean of all prints but the first"""


# Logs may contain numbers of any size.
@np.errstate(all="ignore")
def printed_quantities(
    declared: Sequence[DeclaredQuantity],
    columns: Mapping[str, np.ndarray],
    in_protocol: np.ndarray,
) -> list[PrintedQuantity]:
    """Return the quantities that prints have. `columns` are those of the prints, `in_protocol`
    marks the prints that cover steps 21 to 120."""
    quantities = []
    for quantity in declared:
        values = columns[quantity.column] * quantity.scale
        is_printed = (values > 1 / MOST) & (values < MOST)
        if not is_printed.any():
            continue
        every, of_protocol = values[is_printed], values[is_printed & in_protocol]
        printed = PrintedQuantity(
            name=quantity.name,
            quantity=quantity.quantity,
            of=quantity.of,
            peak_tflops=quantity.peak_tflops,
            first=float(every[0]),
            median=float(np.median(every)),
            last=float(every[-1]),
            mean_protocol=_mean(of_protocol),
            harmonic_protocol=_harmonic_mean(of_protocol),
            harmonic_warm=_harmonic_mean(every[1:]),
        )
        quantities.append(printed)
    return quantities


def _mean(values: np.ndarray) -> float | None:
    """Return the arithmetic mean; None without a value."""
    return float(values.mean()) if len(values) else None


def _harmonic_mean(values: np.ndarray) -> float | None:
    """Return the harmonic mean; None without a value."""
    if not len(values):
        return None
    return float(len(values) / (1 / values).sum())
