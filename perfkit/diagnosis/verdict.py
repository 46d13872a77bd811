"""What limits a measurement, judged by what was measured of its parts.

`outputs/<id>/diagnosis.json` is a Diagnosis, beside the measurement that it is about, and
`outputs/<id>/diagnosis/<part>/rank<r>.jsonl` what it follows from.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from perfkit.results.schema import Stored
from perfkit.results.store import read_as
from perfkit.statistics import Estimate

FILE = "diagnosis.json"
EVIDENCE = "diagnosis"
"""The folder beside it with the raw files that it follows from."""
SLIGHT = 0.05
"""What the input costs, as a share of the throughput without it, to be called nothing; and how
near training with an input is to that input alone, to be called as fast."""
HEADROOM = 1.1
"""By how much an input must be faster than training needs to be enough: its speed varies."""
DEPTHS = (1, 2, 4, 8, 16, 32, 64)
WAITING = 0.01
"""The share of the time that may be waiting with a depth that is enough."""

LEVEL = 0.95
"""Of the interval that a verdict needs."""
SCHEMA_VERSION: Literal[1] = 1

Verdict = Literal["input-bound", "training-bound", "mixed", "undecided"]


class InputAlone(Stored):
    """The input without training, on all ranks together."""

    setting: Literal["dali_threads", "dataloader_workers"]
    count: Annotated[int, Field(ge=1, description="of the setting, per rank")]
    samples_per_second: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    depth: Annotated[
        int | None,
        Field(description="batches made ahead that training would not wait with; None: none"),
    ]


Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class StepParts(Stored):
    """Seconds of a step and its parts on rank 0, by the framework's own profiler in a run of
    its own. `communication` may overlap the others. None for what it does not tell."""

    step: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    forward: Seconds | None
    backward: Seconds | None
    optimizer: Seconds
    communication: Seconds | None

    def shares(self, wait: float, device: str) -> dict[str, float]:
        """The parts as shares of the step, which add up to 1. `wait` is the share of a step
        that waits for the input, which none of the other parts has in it."""
        passes = {}
        if self.forward is not None and self.backward is not None:
            passes = {"forward": self.forward, "backward": self.backward}
        parts = passes | {"optimizer": self.optimizer}
        shares = {name: seconds / self.step for name, seconds in parts.items()}
        rest = max(0.0, 1 - sum(shares.values()))
        wait = min(rest, wait)
        exposed = min(rest - wait, (self.communication or 0) / self.step)
        shares["host wait for input" if device == "gpu" else "data wait"] = wait
        shares["communication, not overlapped"] = exposed
        return shares | {"other" if passes else "forward + backward": rest - wait - exposed}


class Diagnosis(Stored):
    """What `perfkit diagnose` found. Throughputs are in samples per second of all ranks."""

    schema_version: Literal[1]
    created: Annotated[str, Field(description="UTC, ISO 8601")]
    verdict: Verdict
    throughput: Annotated[float, Field(gt=0, description="with the input")]
    synthetic: Annotated[float, Field(gt=0, description="the same with synthetic input")]
    synthetic_id: str
    ratio: Annotated[float, Field(gt=0, description="with the input / with synthetic input")]
    interval: Annotated[tuple[float, float], Field(description="of the ratio")]
    interval_level: float
    input_alone: Annotated[
        list[InputAlone], Field(min_length=1, description="the first as it was measured")
    ]
    step_parts: StepParts

    @property
    def enough(self) -> InputAlone | None:
        """The input with the smallest setting that is fast enough for training."""
        able = [one for one in self.input_alone if suffices(one, self.synthetic)]
        return min(able, key=lambda one: one.count, default=None)


def suffices(alone: InputAlone, synthetic: float) -> bool:
    return alone.samples_per_second >= HEADROOM * synthetic


def verdict(ratio: Estimate, synthetic: float, alone: float) -> Verdict:
    """What limits, where `ratio` is the throughput with the input over the `synthetic` one.

    If the whole interval is below 1 - SLIGHT it is the input, where training is as fast as the
    input `alone`, or else both, which share cores or hardly overlap. It is the training if the
    whole interval is above, or if the input is so fast that even in turn with training, without
    any overlap, it could cost no more. Undecided if neither, or if so few repeats have no
    interval of LEVEL.
    """
    least, sure = 1 - SLIGHT, ratio.level >= LEVEL
    if sure and ratio.high < least:
        return "input-bound" if ratio.value * synthetic >= least * alone else "mixed"
    if (sure and ratio.low >= least) or cost_in_turn(synthetic, alone) <= SLIGHT:
        return "training-bound"
    return "undecided"


def cost_in_turn(synthetic: float, alone: float) -> float:
    """The share of its throughput that training would lose if it waited for each batch while
    that is made."""
    return synthetic / (synthetic + alone)


def needed_depth(intervals: Sequence[float], step_seconds: float) -> int | None:
    """The least of DEPTHS with which training that takes `step_seconds` for a batch would wait
    for under WAITING of its time, if batches took these `intervals` to make, one after another;
    None if it would wait with all of them."""
    for depth in DEPTHS:
        ready = waited = now = 0.0
        taken = [0.0] * depth
        for number, interval in enumerate(intervals):
            # A batch is begun when there is room for it.
            ready = max(ready, taken[number % depth]) + interval
            if number >= depth:
                waited += max(0.0, ready - now)
            now = max(now, ready)
            taken[number % depth] = now
            now += step_seconds
        if waited <= WAITING * now:
            return depth
    return None


def read_diagnosis(folder: Path) -> Diagnosis | None:
    """The diagnosis of the measurement in `folder`; None without one. Raises ResultError."""
    path = folder / FILE
    return read_as(Diagnosis, path, SCHEMA_VERSION) if path.exists() else None
