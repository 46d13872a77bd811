"""What limits a script's throughput: its wait for data while it trains, and its input alone.

A script has no synthetic input, so what training alone would reach stays unknown; the wait for
data says how much of a step the input costs.
"""

import shutil
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from statistics import fmean
from typing import Any

from perfkit.analysis.diagnosis.judge import limit_of_script
from perfkit.analysis.diagnosis.run import NeedsOneNode, input_intervals
from perfkit.analysis.diagnosis.stored import (
    FILE,
    RAW_FOLDER,
    SCHEMA_VERSION,
    ScriptDiagnosis,
)
from perfkit.core.driver.measure import measure
from perfkit.core.driver.repeat import TaskError, perform
from perfkit.core.refusals import Refusal
from perfkit.core.request import RequestError
from perfkit.core.request.plan import Plan, plan
from perfkit.core.results.schema import present
from perfkit.core.results.store import Measurement, Store, read_events, write_atomically
from perfkit.core.script_config import SCRIPT
from perfkit.core.timing.raw_file import rank_file

Say = Callable[[str], None]
"""Called with the name of each part before it starts."""


class ReadsPastTheTimer(Refusal):
    code = "reads_past_the_timer"
    sentence = (
        "the script reads its batches past the timer, so its input can't be told from its "
        "training; write `for batch in timer.batches(loader):`, with timer = "
        "perfkit.StepTimer(…), and repeat this command"
    )


def plan_script_diagnosis(values: Mapping[str, Any]) -> Plan:
    """Plan the measurement of a script that is to be diagnosed. Raises RequestError, also for
    several nodes."""
    planned = plan(SCRIPT, dict(values))
    if planned.config.nodes > 1:
        raise RequestError([NeedsOneNode(parameter="nodes")])
    return planned


def train_script(planned: Plan, say: Say) -> Measurement:
    """Measure the script's training, unless it has been. Raises TaskError if it fails."""
    say("Training with its input")
    measurement = measure(planned.config, planned.protocol)
    result = measurement.result
    if result.status != "complete":
        reason = result.failure.line() if result.failure else "not finished"
        raise TaskError(f"{result.id}: {reason}")
    return measurement


def diagnose_script(measurement: Measurement, say: Say) -> ScriptDiagnosis:
    """Measure the script's input alone, and store the diagnosis beside the measurement, which
    is complete. Raises TaskError if the input fails, and RequestError if the script's batches
    don't come through the timer."""
    result, folder = measurement.result, measurement.folder
    assert result.told
    if not result.told.counts_data_wait:
        raise RequestError([ReadsPastTheTimer(parameter="script")])
    say("The input alone")
    # Removes an older diagnosis together with its raw files.
    (folder / FILE).unlink(missing_ok=True)
    shutil.rmtree(folder / RAW_FOLDER, ignore_errors=True)
    raw_folder = folder / RAW_FOLDER / "read_input-script"
    events = perform(result.config, result.protocol, "read_input", raw_folder)
    batch_seconds = max(fmean(input_intervals(of_rank)) for of_rank in events)
    diagnosis = _judged(measurement, batch_seconds)
    write_atomically(folder / FILE, diagnosis.model_dump_json(indent=1))
    return diagnosis


def _judged(measurement: Measurement, batch_seconds: float) -> ScriptDiagnosis:
    """Return the diagnosis of a script whose input alone needs `batch_seconds` for a batch."""
    result = measurement.result
    assert result.throughput
    wait_shares = present(repeat.data_wait_share for repeat in result.complete_repeats)
    batches_per_step = _batches_per_step(measurement)
    step_seconds = 1 / result.throughput.steps_per_second
    verdict = limit_of_script(
        wait_shares,
        input_seconds=batch_seconds * batches_per_step,
        step_seconds=step_seconds,
        is_accelerated=result.config.accelerated,
    )
    return ScriptDiagnosis(
        schema_version=SCHEMA_VERSION,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        verdict=verdict,
        wait_shares=wait_shares,
        batch_seconds=batch_seconds,
        step_seconds=step_seconds,
        batches_per_step=batches_per_step,
    )


def _batches_per_step(measurement: Measurement) -> float:
    """Return the batches that a step of rank 0 reads, in the first complete repeat."""
    result = measurement.result
    raw_folder = Store(measurement.folder).raw_folder(result.complete_repeats[0].index)
    for event in read_events(rank_file(raw_folder, 0)):
        if event["event"] == "window" and "batches" in event:
            return int(event["batches"]) / result.protocol.measured_steps
    return 1.0
