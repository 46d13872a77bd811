"""What limits a script's throughput: its wait for data while it trains, and its input alone.

A script has no synthetic input, so what training alone would reach stays unknown; the wait for
data says how much of a step the input costs.
"""

import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from perfkit.analysis.diagnosis.judge import SLIGHT
from perfkit.analysis.diagnosis.run import NeedsOneNode, input_intervals
from perfkit.analysis.diagnosis.statements import (
    VERDICTS,
    DeviceMayCompute,
    DiagnosisStatement,
    MoreRepeats,
    ScriptInputAlone,
    ScriptStep,
    SharedCores,
)
from perfkit.analysis.diagnosis.stored import RAW_FOLDER, Limit
from perfkit.core.driver.measure import measure
from perfkit.core.driver.repeat import TaskError, perform
from perfkit.core.refusals import Refusal
from perfkit.core.request import RequestError
from perfkit.core.request.plan import Plan, plan
from perfkit.core.results.schema import present
from perfkit.core.results.store import Measurement, Store, read_events
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


@dataclass(frozen=True)
class ScriptDiagnosis:
    """What limits a script. `wait_shares`: share of a window that waits for data, by repeat;
    `batch_seconds`: mean time of the input alone for a batch, on the slowest rank;
    `step_seconds`: time of a step of the training, which reads `batches_per_step`."""

    wait_shares: list[float]
    batch_seconds: float
    step_seconds: float
    batches_per_step: float
    accelerated: bool

    @property
    def verdict(self) -> Limit:
        """What limits the throughput: the training, if it hardly waits for data in any repeat;
        the input, if it needs as long for a step's batches as the training for the step."""
        if max(self.wait_shares) <= SLIGHT:
            return "training-bound"
        if min(self.wait_shares) <= SLIGHT:
            return "undecided"
        input_seconds = self.batch_seconds * self.batches_per_step
        if input_seconds >= (1 - SLIGHT) * self.step_seconds:
            return "input-bound"
        return "undecided" if self.accelerated else "mixed"

    @property
    def statements(self) -> Iterator[DiagnosisStatement]:
        """What the diagnosis says, in the order in which it is shown."""
        yield ScriptInputAlone(seconds=self.batch_seconds)
        yield ScriptStep(seconds=self.step_seconds, share=max(self.wait_shares))
        verdict = self.verdict
        yield VERDICTS[verdict]()
        if verdict == "undecided" and min(self.wait_shares) <= SLIGHT:
            yield MoreRepeats()
        elif verdict == "undecided":
            yield DeviceMayCompute()
        elif verdict == "mixed":
            yield SharedCores()


def plan_script_diagnosis(values: Mapping[str, Any]) -> Plan:
    """Plan the measurement of a script that is to be diagnosed. Raises RequestError, also for
    several nodes."""
    planned = plan(SCRIPT, dict(values))
    if planned.config.nodes > 1:
        raise RequestError([NeedsOneNode(parameter="nodes")])
    return planned


def diagnose_script(planned: Plan, say: Say) -> tuple[Measurement, ScriptDiagnosis]:
    """Measure the training, unless it has been, and the input alone. Raises TaskError if a part
    fails, RequestError if the script's batches don't come through the timer."""
    say("Training with its input")
    measurement = measure(planned.config, planned.protocol)
    result = measurement.result
    if result.status != "complete":
        reason = result.failure.line() if result.failure else "not finished"
        raise TaskError(f"{result.id}: {reason}")
    if not result.told or not result.told.counts_data_wait:
        raise RequestError([ReadsPastTheTimer(parameter="script")])
    say("The input alone")
    raw_folder = measurement.folder / RAW_FOLDER / "read_input-script"
    shutil.rmtree(raw_folder, ignore_errors=True)
    events = perform(planned.config, planned.protocol, "read_input", raw_folder)
    batch_seconds = max(fmean(input_intervals(of_rank)) for of_rank in events)
    return measurement, _judged(measurement, batch_seconds)


def _judged(measurement: Measurement, batch_seconds: float) -> ScriptDiagnosis:
    result = measurement.result
    assert result.throughput
    waits = present(repeat.data_wait_share for repeat in result.complete_repeats)
    step_seconds = 1 / result.throughput.steps_per_second
    return ScriptDiagnosis(
        wait_shares=waits,
        batch_seconds=batch_seconds,
        step_seconds=step_seconds,
        batches_per_step=_batches_per_step(measurement),
        accelerated=result.config.accelerated,
    )


def _batches_per_step(measurement: Measurement) -> float:
    """Return the batches that a step of rank 0 reads, in the first complete repeat."""
    result = measurement.result
    raw_folder = Store(measurement.folder).raw_folder(result.complete_repeats[0].index)
    for event in read_events(rank_file(raw_folder, 0)):
        if event["event"] == "window" and "batches" in event:
            return int(event["batches"]) / result.protocol.measured_steps
    return 1.0
