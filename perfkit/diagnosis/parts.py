"""`perfkit diagnose`: measures what a measurement is made of, each part by itself."""

import os
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from perfkit.config import Config, Protocol
from perfkit.diagnosis.verdict import (
    EVIDENCE,
    FILE,
    SCHEMA_VERSION,
    Diagnosis,
    InputAlone,
    StepParts,
    needed_depth,
    suffices,
    verdict,
)
from perfkit.driver.measure import measure
from perfkit.driver.task import TaskError, perform
from perfkit.request.errors import RequestError
from perfkit.results.store import Events, Measurement, write_atomically
from perfkit.statistics import ratio_interval
from perfkit.text.messages import coded


def diagnose(
    config: Config, protocol: Protocol, say: Callable[[str], None]
) -> tuple[Measurement, Diagnosis]:
    """Measure `config` with its input and with synthetic input, then the input alone and the
    parts of a step, and store what follows beside the measurement; `say` is told what begins.

    Measurements are those of `perfkit run`: what is there already is not made again. Raises
    RequestError for a configuration that has nothing to compare, and TaskError if a part
    fails.
    """
    if config.input == "synthetic":
        raise RequestError(
            ["input: synthetic is what an input is compared with; name another: -p input dali"]
        )
    if config.nodes > 1:
        raise RequestError(["nodes: a diagnosis is made on one node: -p nodes 1"])
    say(f"Training with input {config.input}")
    measured = _complete(measure(config, protocol))
    say("Training with synthetic input")
    twin = _complete(measure(config.model_copy(update={"input": "synthetic"}), protocol))
    assert measured.result.throughput and twin.result.throughput
    throughput, synthetic = measured.result.throughput.value, twin.result.throughput.value
    ratio = ratio_interval(measured.result.throughputs, twin.result.throughputs)
    folder = measured.folder / EVIDENCE
    # An older diagnosis goes with what it followed from.
    (measured.folder / FILE).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    alone = _inputs_alone(config, protocol, synthetic, folder, say)
    found = [next(alone)]
    judged = verdict(ratio, synthetic, found[0].samples_per_second)
    if judged != "training-bound":
        found += alone
    say("The parts of a step")
    (profiled,) = _events(config, protocol, "profile", "profile", folder / "profile")[0]
    diagnosis = Diagnosis(
        schema_version=SCHEMA_VERSION,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        verdict=judged,
        throughput=throughput,
        synthetic=synthetic,
        synthetic_id=twin.result.id,
        ratio=ratio.value,
        interval=(ratio.low, ratio.high),
        interval_level=ratio.level,
        input_alone=found,
        step_parts=StepParts(**profiled["seconds"]),
    )
    write_atomically(measured.folder / FILE, diagnosis.model_dump_json(indent=1))
    return measured, diagnosis


def _complete(measurement: Measurement) -> Measurement:
    result = measurement.result
    if result.status != "complete":
        told = coded(result.failure) if result.failure else ""
        raise TaskError(f"{result.id} {result.status}: {told}")
    return measurement


def _setting(config: Config) -> tuple[str, int]:
    """The parameter that says how many threads or processes make batches, and its value."""
    name = "dali_threads" if config.input == "dali" else "dataloader_workers"
    return name, getattr(config, name)


def _with_other_counts(config: Config) -> Iterator[Config]:
    """The configuration with other counts of its input's threads or processes: 1, 2, 4 … up to
    the cores that a rank has."""
    name, own = _setting(config)
    count = 1
    while count <= max(1, len(os.sched_getaffinity(0)) // config.devices):
        if count != own:
            yield config.model_copy(update={name: count})
        count *= 2


def _inputs_alone(
    config: Config,
    protocol: Protocol,
    synthetic: float,
    folder: Path,
    say: Callable[[str], None],
) -> Iterator[InputAlone]:
    """The input alone as it was measured, then with other counts, to the first that is fast
    enough."""
    for candidate in (config, *_with_other_counts(config)):
        setting, count = _setting(candidate)
        say(f"The input alone, {setting} {count}")
        one = _input_alone(candidate, protocol, synthetic, folder / f"read_input-{count}")
        yield one
        if candidate is not config and suffices(one, synthetic):
            return


def _input_alone(
    config: Config, protocol: Protocol, synthetic: float, evidence: Path
) -> InputAlone:
    ranks = [
        event["intervals"]
        for (event,) in _events(config, protocol, "read_input", "input", evidence)
    ]
    name, count = _setting(config)
    batch_seconds = config.batch_size * config.ranks / synthetic
    depths = [needed_depth(intervals, batch_seconds) for intervals in ranks]
    return InputAlone(
        setting="dali_threads" if name == "dali_threads" else "dataloader_workers",
        count=count,
        samples_per_second=sum(
            config.batch_size * len(intervals) / sum(intervals) for intervals in ranks
        ),
        depth=max((d for d in depths if d), default=None) if all(depths) else None,
    )


def _events(
    config: Config, protocol: Protocol, task: str, event: str, raw: Path
) -> list[Events]:
    """The events of that name from workers started for `task`, by rank. Raises TaskError."""
    return [
        [one for one in rank if one["event"] == event]
        for rank in perform(config, protocol, task, raw)
    ]
