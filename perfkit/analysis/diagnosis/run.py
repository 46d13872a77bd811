"""Measures what a diagnosis needs: training with its input and with synthetic input, their
repeats interleaved, and the input without training."""

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from perfkit.analysis.comparison.interleaved_plan import InterleavedPlan, plan_interleaved
from perfkit.analysis.comparison.interleaved_run import measure_interleaved
from perfkit.analysis.comparison.stored import (
    InterleavedComparison,
    PairResult,
    read_comparison,
)
from perfkit.analysis.diagnosis.judge import (
    LEVEL,
    SLIGHT,
    cost_in_turn,
    limit_of,
    needed_depth,
)
from perfkit.analysis.diagnosis.stored import (
    FILE,
    RAW_FOLDER,
    SCHEMA_VERSION,
    Diagnosis,
    InputAlone,
    Setting,
)
from perfkit.core.config import Config, Protocol
from perfkit.core.driver.repeat import TaskError, perform
from perfkit.core.driver.settings import with_dali_settings
from perfkit.core.models import units_per_sample
from perfkit.core.paths import stored_path
from perfkit.core.refusals import Refusal
from perfkit.core.request import RequestError
from perfkit.core.request.plan import plan
from perfkit.core.request.resolve import resolve
from perfkit.core.results.store import Measurement, write_atomically
from perfkit.core.statistics import Estimate, fewest_values
from perfkit.core.system.environment import usable_cores

Say = Callable[[str], None]
"""Called with the name of each part before it starts."""


class NeedsAnInput(Refusal):
    code = "needs_an_input"
    sentence = (
        "a diagnosis compares an input with synthetic; set another: -p input %(other_input)s"
    )
    other_input: str


class NeedsOneNode(Refusal):
    code = "needs_one_node"
    sentence = "a diagnosis needs a single node: -p nodes 1"


class OneNumberOfRepeats(Refusal):
    code = "one_number_of_repeats"
    sentence = (
        "a diagnosis makes the same number of repeats with its input and without; set it: "
        "-p repeats %(enough)s"
    )
    enough: int


def plan_diagnosis(model: str, values: Mapping[str, Any]) -> InterleavedPlan:
    """Plan the interleaved comparison of `model` with its input and with synthetic input, the
    base. Raises RequestError, also if the configuration has synthetic input or several
    nodes."""
    config = plan(model, dict(values)).built_in
    if config.input == "synthetic":
        other_input = resolve({"model": config.model, "framework": config.framework}).input
        raise RequestError([NeedsAnInput(parameter="input", other_input=other_input)])
    if config.nodes > 1:
        raise RequestError([NeedsOneNode(parameter="nodes")])
    if refusals := _undetermined_repeats(values):
        raise RequestError(refusals)
    shared = {name: value for name, value in values.items() if name != "input"}
    variants = ["input=synthetic", f"input={config.input}"]
    return plan_interleaved(model, variants, shared, LEVEL)


def _undetermined_repeats(values: Mapping[str, Any]) -> list[Refusal]:
    """Return why parameters that leave the number of repeats open are refused."""
    names = [name for name in ("interval_target", "budget") if values.get(name) is not None]
    if values.get("repeats") == "auto":
        names.append("repeats")
    enough = fewest_values(LEVEL)
    return [OneNumberOfRepeats(parameter=name, enough=enough) for name in names]


def diagnose(live: InterleavedPlan, say: Say) -> tuple[Measurement, Diagnosis]:
    """Measure the planned comparison and the input alone, and store the diagnosis beside the
    measurement with the input. Raises TaskError if a part fails, RequestError if another
    process measures the same, and KeyboardInterrupt; the same call continues."""
    config = live.plans[1].built_in
    say(f"Training with input {config.input}, interleaved with synthetic input")
    measure_interleaved(live, say)
    pair = compared_pair(read_comparison(live.folder))
    folder = stored_path(config.outputs_dir) / pair.b.name
    # Removes an older diagnosis together with its raw files.
    (folder / FILE).unlink(missing_ok=True)
    shutil.rmtree(folder / RAW_FOLDER, ignore_errors=True)
    trials = InputTrials(config, live.plan.protocol, folder / RAW_FOLDER, pair.a.value, say)
    diagnosis = judged(pair, trials, live.folder.name)
    write_atomically(folder / FILE, diagnosis.model_dump_json(indent=1))
    return Measurement.read(folder), diagnosis


def compared_pair(comparison: InterleavedComparison) -> PairResult:
    """Return the measurement with the input compared with that with synthetic input. Raises
    TaskError if one of them is not complete."""
    for variant in comparison.variants:
        if variant.failure:
            raise TaskError(f"{variant.id} failed: {variant.failure.line()}")
    if not comparison.complete:
        raise TaskError(f"the comparison is not complete: {comparison.command}")
    (pair,) = comparison.pairs
    return pair


def judged(pair: PairResult, trials: "InputTrials", comparison: str) -> Diagnosis:
    """Measure the input alone, with other settings only if it may be the limit, and return the
    diagnosis."""
    input_alone = [trials.with_own_setting()]
    alone = input_alone[0].throughput
    ratio = Estimate(pair.ratio, *pair.interval, pair.interval_level)
    limit = limit_of(ratio, pair.a.value, alone)
    is_free = cost_in_turn(pair.a.value, alone) <= SLIGHT
    if limit in ("input-bound", "mixed") or (limit == "undecided" and not is_free):
        input_alone += trials.with_other_settings()
    return Diagnosis(
        schema_version=SCHEMA_VERSION,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        verdict=limit,
        ratio=pair.ratio,
        interval=pair.interval,
        interval_level=pair.interval_level,
        throughput=pair.b.value,
        synthetic=pair.a.value,
        synthetic_id=pair.a.name,
        comparison=comparison,
        out_of_turn=pair.out_of_turn,
        input_alone=input_alone,
    )


class InputTrials:
    """Measures the input of a configuration without training. `synthetic` is the throughput
    that the training needs; raw files are written below `folder`."""

    def __init__(
        self, config: Config, protocol: Protocol, folder: Path, synthetic: float, say: Say
    ) -> None:
        self.cores = usable_cores()
        self.config = with_dali_settings(config, self.cores)
        self.protocol = protocol
        self.folder = folder
        self.synthetic = synthetic
        self.say = say
        self.setting: Setting = "dataloader_workers"
        if config.input == "dali":
            self.setting = "dali_threads"

    @property
    def own_count(self) -> int:
        """The measurement's own value of the setting."""
        count: int = getattr(self.config, self.setting)
        return count

    def with_own_setting(self) -> InputAlone:
        return self.measure(self.own_count)

    def with_other_settings(self) -> Iterator[InputAlone]:
        """Measure with 1, 2, 4 … threads or processes and a rank's share of the cores, up to
        the first count that is fast enough."""
        most = max(1, self.cores // self.config.devices)
        doubled = [2**power for power in range(most.bit_length())]
        counts = dict.fromkeys([*doubled, most])
        counts.pop(self.own_count, None)
        for count in counts:
            alone = self.measure(count)
            yield alone
            if alone.suffices(self.synthetic):
                return

    def measure(self, count: int) -> InputAlone:
        """Measure the input alone with this value of the setting."""
        self.say(f"The input alone, {self.setting} {count}")
        config = self.config.model_copy(update={self.setting: count})
        raw_folder = self.folder / f"read_input-{count}"
        events = perform(config, self.protocol, "read_input", raw_folder)
        intervals_by_rank = [input_intervals(rank_events) for rank_events in events]
        # A batch in the unit of the throughput.
        batch = config.batch_size * units_per_sample(config)
        step_seconds = batch * config.ranks / self.synthetic
        rates = []
        depths = []
        for intervals in intervals_by_rank:
            rates.append(batch * len(intervals) / sum(intervals))
            depths.append(needed_depth(intervals, step_seconds))
        return InputAlone(
            setting=self.setting,
            count=count,
            throughput=sum(rates),
            depth=deepest(depths),
        )


def input_intervals(events: Iterable[Mapping[str, Any]]) -> list[float]:
    """Return the seconds between the batches of a rank."""
    (event,) = (event for event in events if event["event"] == "input")
    intervals: list[float] = event["intervals"]
    return intervals


def deepest(depths: list[int | None]) -> int | None:
    """Return the depth that suffices for all ranks, None if none suffices for one of them."""
    sufficient = [depth for depth in depths if depth is not None]
    return max(sufficient) if len(sufficient) == len(depths) else None
