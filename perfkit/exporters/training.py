"""What every exporter is given: one complete repeat with its raw steps."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from perfkit.results.files import Measurement, ResultError
from perfkit.results.frames import load_steps
from perfkit.results.numbers import disagreements
from perfkit.results.schema import Repeat, Result

if TYPE_CHECKING:
    from pandas import DataFrame


class ExportError(ValueError):
    """A measurement can't be exported; the message names it and says why."""


class Step(NamedTuple):
    """A step as the rank saw it whose window was the longest; `number` counts from 1. `at` is
    when it ended, were the first step begun at the moment at which the repeat was: how long
    the processes took to start is not in it."""

    number: int
    seconds: float
    wait_seconds: float
    loss: float | None
    at: datetime


@dataclass(frozen=True)
class Training:
    """A complete repeat of a measurement; `steps` are all of it, warm-up included."""

    result: Result
    repeat: Repeat
    begin: datetime
    steps: list[Step]

    @property
    def step_samples(self) -> int:
        """Samples of a step, of all ranks."""
        return self.result.config.global_batch

    @property
    def throughput(self) -> float:
        assert self.repeat.throughput
        return self.repeat.throughput


def trainings(measurement: Measurement) -> list[Training]:
    """The complete repeats. Raises ExportError where there are none, or where the raw steps are
    not those of the numbers."""
    result = measurement.result
    if result.imported:
        files = ", ".join(log.file for log in result.imported.logs)
        raise ExportError(f"{result.id}: was imported itself, from {files}")
    if not result.complete_repeats:
        raise ExportError(f"{result.id}: has no complete repeat")
    if wrong := disagreements(measurement):
        raise ExportError(f"{result.id}: the raw steps are not its own: {wrong[0]}")
    try:
        steps = load_steps(measurement.folder)
    except ResultError as error:
        raise ExportError(f"{result.id}: {error}") from error
    return [
        _training(result, repeat, steps[steps["repeat"] == repeat.index])
        for repeat in result.complete_repeats
    ]


def _training(result: Result, repeat: Repeat, steps: "DataFrame") -> Training:
    slowest = max(repeat.ranks, key=lambda rank: rank.window_seconds).rank
    own, of_first = steps[steps["rank"] == slowest], steps[steps["rank"] == 0]
    losses = of_first.set_index("step")["loss"].dropna().to_dict()
    begin = datetime.fromisoformat(repeat.began or result.created)
    ends = accumulate(own["seconds"])
    return Training(
        result=result,
        repeat=repeat,
        begin=begin,
        steps=[
            Step(
                number=row.step,
                seconds=row.seconds,
                wait_seconds=row.data_wait_seconds,
                loss=losses.get(row.step),
                at=begin + timedelta(seconds=end),
            )
            for row, end in zip(own.itertuples(), ends, strict=True)
        ],
    )
