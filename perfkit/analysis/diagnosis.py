"""What limits the throughput of a measurement: its input or its training.

outputs/<id>/diagnosis.json            the diagnosis
outputs/<id>/diagnosis/rank<r>.jsonl   its raw files: the input alone
"""

import shutil
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from statistics import fmean
from typing import Any, Literal

from perfkit.measuring.driver.measure import measure
from perfkit.measuring.driver.repeat import TaskError, perform
from perfkit.measuring.request import RequestError
from perfkit.measuring.request.plan import Plan, plan
from perfkit.measuring.results.base import NonNegative, Positive, Stored
from perfkit.measuring.results.store import (
    Events,
    Measurement,
    read_as,
    read_events,
    write_atomically,
)

FILE = "diagnosis.json"
RAW_FOLDER = "diagnosis"
SCHEMA_VERSION: Literal[5] = 5
SLIGHT = 0.05
"""Share of its time for which training may wait for data without being limited by it; and how
much faster than the training an input may be that limits it."""
Say = Callable[[str], None]
"""Called with the name of each part before it starts."""
Limit = Literal["input-bound", "training-bound", "undecided"]


class Diagnosis(Stored):
    """The result of `perfkit diagnose`."""

    schema_version: Literal[5]
    """readers refuse any other"""
    created: str
    """UTC, ISO 8601"""
    verdict: Limit
    """what limits the throughput. training-bound: no repeat waits for data for more than 0.05
    of its window. input-bound: one does, and the input alone is at most 1.05 times as fast as
    the training. undecided: one does, though the input alone is faster"""
    data_wait_share: NonNegative
    """highest share of the window that a complete repeat waits for data, over all ranks"""
    training: Positive
    """throughput of the measurement"""
    input_alone: Positive
    """throughput at which the input alone delivers batches, by the slowest rank, in the same
    unit"""

    @property
    def speed(self) -> float:
        """The input's throughput over the training's."""
        return self.input_alone / self.training


def limit_of(data_wait_share: float, speed: float) -> Limit:
    """Return what limits a training that waits for data for a share of its time, and whose
    input alone is `speed` times as fast as the training."""
    if data_wait_share <= SLIGHT:
        return "training-bound"
    return "input-bound" if speed <= 1 + SLIGHT else "undecided"


def read_diagnosis(measurement: Measurement) -> Diagnosis | None:
    """Return the diagnosis of the measurement, None if it has none. Raises ResultError."""
    path = measurement.folder / FILE
    return read_as(Diagnosis, path) if path.exists() else None


def plan_diagnosis(model: str, values: Mapping[str, Any]) -> Plan:
    """Plan the measurement of a model, or of "script", that is to be diagnosed. Raises
    RequestError, also for synthetic input or several nodes."""
    planned = plan(model, dict(values))
    config = planned.config
    problems = []
    if config.work.input == "synthetic":
        problems.append("input: synthetic input takes no time; set another, as -p input dali")
    if config.work.launches_itself:
        problems.append(
            "command: its log does not tell its input apart; if it has a switch for synthetic "
            "batches: perfkit compare --live command=COMMAND flags='' flags=SWITCH"
        )
    if config.nodes > 1:
        problems.append("nodes: a diagnosis needs a single node: -p nodes 1")
    if problems:
        raise RequestError(problems)
    return planned


def train(planned: Plan, say: Say) -> Measurement:
    """Measure the training, unless it has been. Raises TaskError if it fails."""
    say("Training with its input")
    measurement = measure(planned.config, planned.protocol)
    result = measurement.result
    if result.status != "complete":
        reason = result.failure.line() if result.failure else "not finished"
        raise TaskError(f"{result.id}: {reason}")
    return measurement


def diagnose(measurement: Measurement, say: Say) -> Diagnosis:
    """Measure the input of a complete measurement alone, and store the diagnosis beside it.
    Raises TaskError if the input fails, and RequestError if a script's batches don't come
    through the timer."""
    result, file = measurement.result, measurement.folder / FILE
    wait, throughput = result.data_wait_share, result.throughput
    if wait is None:
        problem = "read batches through the timer: for batch in timer.batches(loader):"
        raise RequestError([f"script: {problem}"])
    assert throughput
    say("The input alone")
    file.unlink(missing_ok=True)
    speed = _input_speed(measurement)
    diagnosis = Diagnosis(
        schema_version=SCHEMA_VERSION,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        verdict=limit_of(wait, speed),
        data_wait_share=wait,
        training=throughput.value,
        input_alone=speed * throughput.value,
    )
    write_atomically(file, diagnosis.model_dump_json(indent=1))
    return diagnosis


def _input_speed(measurement: Measurement) -> float:
    """Read the input alone, and return how many times as fast as the training its slowest rank
    is."""
    result, raw_folder = measurement.result, measurement.folder / RAW_FOLDER
    assert result.throughput
    shutil.rmtree(raw_folder, ignore_errors=True)
    events = perform(result.config, result.protocol, "read_input", raw_folder)
    batch_seconds = max(fmean(_event("input", of_rank)["intervals"]) for of_rank in events)
    steps_per_second = 1 / (batch_seconds * _batches_per_step(measurement))
    return steps_per_second / result.throughput.steps_per_second


def _batches_per_step(measurement: Measurement) -> float:
    """Return the batches that a step reads, on rank 0 in the first complete repeat."""
    result = measurement.result
    first = result.complete_repeats[0]
    window = _event("window", read_events(measurement.rank_file(first.index, 0)))
    steps = first.measured_steps or 1
    # Unknown if steps of the window read none.
    batches: int = window.get("batches", steps)
    return batches / steps


def _event(kind: str, events: Events) -> dict[str, Any]:
    """Return the only event of a kind."""
    (event,) = (event for event in events if event["event"] == kind)
    return event
