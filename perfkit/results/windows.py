"""The numbers of an imported repeat, derived from what its log prints of its steps.

A window here is a JSON object: the steps that a print tells of and none before it does, as
`perfkit.logs.log.WINDOW` has them, with None for what is not printed.
"""

from collections.abc import Sequence
from itertools import groupby
from math import fsum
from typing import Any, Literal

from perfkit.config import Config, Protocol
from perfkit.models import units_per_sample
from perfkit.results.schema import Imported, Repeat

Window = dict[str, Any]
Basis = Literal["seconds", "own_rate", "clock"]
SAMPLES = ("samples/s", "sequences/s")
FIELDS = ["line", "rank", "first", "last", "seconds"]
FIELDS += ["reader", "rate", "own_rate", "loss", "at"]
"""The columns of perfkit.logs.log.WINDOW that are kept."""


def summarize_windows(
    index: int,
    config: Config,
    protocol: Protocol,
    imported: Imported,
    windows: Sequence[Window],
) -> Repeat:
    """The numbers of a repeat. Of several ranks that print, the slowest one's time counts;
    those that don't print took as long, for the ranks of a step wait for each other.

    Raises ValueError where the windows do not cover the protocol's steps.
    """
    steps = protocol.warmup_steps + 1, protocol.steps
    seconds, waits = [], []
    for some in by_rank(windows):
        if not (inside := covering(some, *steps, imported.basis)):
            raise ValueError(f"no print ends at step {steps[0] - 1}, or none at {steps[1]}")
        if imported.basis == "clock":
            seconds.append(inside[-1]["at"] - inside[0]["at"])
            if seconds[-1] <= 0:
                raise ValueError("the log's clock does not go on in the window")
            continue
        seconds.append(fsum(_seconds(window, config, imported) for window in inside))
        waits += [window["reader"] for window in inside]
    known = bool(waits) and None not in waits
    samples = protocol.measured_steps * device_samples(config, imported) * config.ranks
    return Repeat(
        index=index,
        status="complete",
        throughput=samples * units_per_sample(config) / max(seconds),
        steps_per_second=samples / config.global_batch / max(seconds),
        data_wait_share=_share(fsum(waits), fsum(seconds)) if known else None,
    )


def _share(waits: float, time: float) -> float | None:
    """None where printed waits and times contradict each other."""
    return waits / time if 0 <= waits <= time else None


def by_rank(windows: Sequence[Window]) -> list[list[Window]]:
    """The windows of each rank that prints."""
    ordered = sorted(windows, key=lambda window: window["rank"])
    return [list(some) for _rank, some in groupby(ordered, lambda window: window["rank"])]


def covering(windows: Sequence[Window], first: int, last: int, basis: Basis) -> list[Window]:
    """Those of one rank's windows that tell of the steps `first` to `last`, all of these and
    no others; by the clock, the prints at whose moments these begin and end. Empty if there
    are none."""
    if basis == "clock":
        ends = {w["last"]: w for w in windows if w["at"] is not None}
        pair = [ends[step] for step in (first - 1, last) if step in ends]
        return pair if len(pair) == 2 else []
    inside = [w for w in windows if first <= w["first"] and w["last"] <= last]
    begins = [first, *(window["last"] + 1 for window in inside)]
    joined = all(w["first"] == begin for w, begin in zip(inside, begins, strict=False))
    timed = all(w[basis] is not None and w[basis] > 0 for w in inside)
    return inside if joined and timed and begins[-1] == last + 1 else []


def _seconds(window: Window, config: Config, imported: Imported) -> float:
    """What the steps of one window took."""
    if imported.basis == "seconds":
        wait = window["reader"] if imported.reader == "apart" else None
        return float(window["seconds"] + (wait or 0.0))
    steps = window["last"] - window["first"] + 1
    return float(steps * rated_samples(config, imported) / window["own_rate"])


def device_samples(config: Config, imported: Imported) -> int:
    """Samples of one device in a step as the log counts steps."""
    per_update = config.samples_per_step
    return per_update if imported.step == "update" else per_update // config.accumulate


def rated_samples(config: Config, imported: Imported) -> int:
    """The samples of such a step that a printed rate counts, or the tokens."""
    devices = 1 if imported.rate_of == "device" else config.ranks
    units = 1 if imported.rate_unit in SAMPLES else units_per_sample(config)
    return device_samples(config, imported) * devices * units
