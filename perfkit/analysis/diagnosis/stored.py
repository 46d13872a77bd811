"""The stored diagnosis of a measurement.

outputs/<id>/diagnosis.json                               the Diagnosis of the measurement
outputs/<id>/diagnosis/read_input-<count>/rank<r>.jsonl   its raw files: the input alone
"""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from perfkit.analysis.ratios import Ratio
from perfkit.core.results.base import Positive, Stored
from perfkit.core.results.store import read_as

FILE = "diagnosis.json"
RAW_FOLDER = "diagnosis"
"""Folder of the raw files, beside FILE."""
SCHEMA_VERSION: Literal[4] = 4
HEADROOM = 1.1
"""Speed of a sufficient input relative to the training's demand; above 1, since it varies."""

Limit = Literal["input-bound", "training-bound", "mixed", "undecided"]
"""What limits the throughput."""
Setting = Literal["dali_threads", "dataloader_workers"]
"""The parameter that gives an input more of the processor."""


class InputAlone(Stored):
    """The speed of the input without training, on all ranks together."""

    setting: Setting
    """the parameter that was varied"""
    count: Annotated[int, Field(ge=1)]
    """value of the setting, per rank"""
    throughput: Positive
    """in the throughput's unit"""
    depth: int | None
    """fewest prefetched batches with which training would wait for under 0.01 of its time;
    None: 64 are not enough"""

    def suffices(self, synthetic: float) -> bool:
        """Return whether the input is fast enough for training at `synthetic` throughput."""
        return self.throughput >= HEADROOM * synthetic


class Diagnosis(Ratio):
    """The result of `perfkit diagnose`. `ratio` is the throughput with the input over the
    throughput with synthetic input: the median of the ratios of interleaved repeats."""

    schema_version: Literal[4]
    """readers refuse any other"""
    created: str
    """UTC, ISO 8601"""
    verdict: Limit
    """what limits training. training-bound: the input costs less than 0.05 of the throughput.
    input-bound: it costs more, and training is as fast as the input alone, to 0.05. mixed: it
    costs more, but alone it is faster than training. undecided: none of these is certain"""
    throughput: Positive
    """throughput with the input"""
    synthetic: Positive
    """throughput with synthetic input"""
    synthetic_id: str
    """id of the measurement with synthetic input"""
    comparison: str
    """folder of the interleaved comparison of both, below `comparisons`"""
    out_of_turn: list[int]
    """numbers of the repeats that were not measured in turn, as after an interruption"""
    input_alone: Annotated[list[InputAlone], Field(min_length=1)]
    """the input without training; the first has the measurement's own count"""

    @property
    def sufficient(self) -> InputAlone | None:
        """The input with the smallest setting that is fast enough for training."""
        able = [alone for alone in self.input_alone if alone.suffices(self.synthetic)]
        return min(able, key=lambda alone: alone.count, default=None)


def read_diagnosis(folder: Path) -> Diagnosis | None:
    """Return the diagnosis of the measurement in `folder`, None if it has none. Raises
    ResultError."""
    path = folder / FILE
    if not path.exists():
        return None
    return read_as(Diagnosis, path, SCHEMA_VERSION)
