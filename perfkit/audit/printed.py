"""Quantities that each line of a log prints besides its time: rates, TFLOP/s, MFU, memory."""

from typing import Literal

from perfkit.core.results.base import Stored

Quantity = Literal["samples/s", "tokens/s", "TFLOP/s", "MFU", "s/step", "steps/s", "GB"]
"""What a printed number is, with its unit. MFU is in percent, GB are 10^9 bytes."""


class PrintedQuantity(Stored):
    """A quantity that the lines of a log print, as printed: no value is recomputed."""

    name: str
    """the quantity's name as the log spells it: tps, TFLOPs"""
    quantity: Quantity
    """what the number is, with its unit; MFU is in percent"""
    of: Literal["device", "all", ""]
    """whether it is that of one device or of all; empty if this does not apply"""
    count: int
    """number of prints"""
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
