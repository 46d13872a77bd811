"""The stored diagnosis of a measurement.

outputs/<id>/diagnosis.json                               the Diagnosis of the measurement
outputs/<id>/diagnosis/read_input-<count>/rank<r>.jsonl   its raw files: the input alone

Of a script, diagnosis.json is a ScriptDiagnosis, and the folder of the raw files is
read_input-script.
"""

from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import Field

from perfkit.analysis.ratios import Ratio
from perfkit.core.results.base import NonNegative, Positive, Stored
from perfkit.core.results.store import Measurement, read_as
from perfkit.core.script_config import ScriptConfig

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


class ScriptDiagnosis(Stored):
    """The result of `perfkit diagnose` for a script, which has no synthetic input: its wait for
    data while it trains, and its input alone."""

    schema_version: Literal[4]
    """readers refuse any other"""
    created: str
    """UTC, ISO 8601"""
    verdict: Limit
    """what limits training. training-bound: no repeat waits for data for more than 0.05 of its
    window. input-bound: every repeat does, and the input alone takes as long for the batches of
    a step as the training for the step, to 0.05. mixed: every repeat does, but the input alone
    is faster. undecided: only some repeats do, or a device other than the CPU may compute
    meanwhile"""
    wait_shares: Annotated[list[NonNegative], Field(min_length=1)]
    """share of the window that waits for data, over all ranks, by complete repeat"""
    batch_seconds: NonNegative
    """mean time of the input alone for a batch, on the slowest rank"""
    step_seconds: Positive
    """time of a step of the training"""
    batches_per_step: Positive
    """batches that a step of the training reads, on a rank"""

    @property
    def input_seconds(self) -> float:
        """Time of the input alone for the batches of a step."""
        return self.batch_seconds * self.batches_per_step


AnyDiagnosis = Diagnosis | ScriptDiagnosis
"""The diagnosis of a built-in model or of a script."""
Kind = TypeVar("Kind", Diagnosis, ScriptDiagnosis)


def read_diagnosis(measurement: Measurement) -> AnyDiagnosis | None:
    """Return the diagnosis of the measurement, None if it has none. Raises ResultError."""
    if isinstance(measurement.result.config, ScriptConfig):
        return _read(ScriptDiagnosis, measurement.folder)
    return read_model_diagnosis(measurement.folder)


def read_model_diagnosis(folder: Path) -> Diagnosis | None:
    """Return the diagnosis of the built-in model measured in `folder`, None if it has none.
    Raises ResultError, also if the diagnosis is a script's."""
    return _read(Diagnosis, folder)


def _read(kind: type[Kind], folder: Path) -> Kind | None:
    path = folder / FILE
    if not path.exists():
        return None
    return read_as(kind, path, SCHEMA_VERSION)
