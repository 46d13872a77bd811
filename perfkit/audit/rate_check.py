"""Whether the rates that a log prints are those of its batch and its steps' times."""

from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np

from perfkit.audit.log import Columns, Log
from perfkit.audit.samples import unit_of
from perfkit.audit.statements import ByName, RateContradictsBatch

MOST_APART = 0.1
"""Share by which a printed rate may differ from batch x devices / time."""


class PrintedRate(NamedTuple):
    """A printed rate of samples, or of the log's unit, in each window."""

    name: str
    of: Literal["device", "all"]
    values: np.ndarray


def rate_findings(log: Log, rows: Columns) -> Iterator[RateContradictsBatch]:
    """Yield the printed rates that contradict samples of a step / time of a step."""
    if not rows or (np.nansum(rows["reader"]) and not log.semantics.reader):
        return
    step_seconds = rows["seconds"] / rows["steps"]
    for rate in _printed_rates(log, rows):
        samples = "samples_of_step" if rate.of == "all" else "device_samples_of_step"
        ratios = rate.values * step_seconds / rows[samples]
        ratios = ratios[np.isfinite(ratios) & (ratios > 0)]
        if not len(ratios):
            continue
        ratio = float(np.median(ratios))
        if abs(ratio - 1) > MOST_APART:
            yield RateContradictsBatch(name=rate.name, ratio=ratio, named=is_by_name(log))


def is_by_name(log: Log) -> bool:
    """Whether only the file's name tells the batch."""
    for name in ("batch_size", "global_batch_size"):
        if name in log.facts and isinstance(log.facts[name].by, ByName):
            return True
    return False


def _printed_rates(log: Log, rows: Columns) -> Iterator[PrintedRate]:
    yield PrintedRate("rate", log.semantics.rate_of, rows["own_rate"])
    unit, length = unit_of(log.facts), log.number("sequence_length")
    for printed in log.printed:
        if printed.column not in rows or printed.of == "" or log.semantics.covers == "running":
            continue
        values = rows[printed.column] * printed.scale
        if printed.quantity == unit or (printed.quantity, unit) == ("samples/s", "images/s"):
            yield PrintedRate(printed.name, printed.of, values)
        elif printed.quantity == "tokens/s" and length and unit == "samples/s":
            yield PrintedRate(printed.name, printed.of, values / length)
