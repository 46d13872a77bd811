"""Bottleneck diagnosis: measures the parts of a measurement separately, judges what limits it,
stores and reports the verdict.

`outputs/<id>/diagnosis.json` is the Diagnosis of the measurement in that folder,
`outputs/<id>/diagnosis/<part>/rank<r>.jsonl` are its raw files.
"""

import shutil
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import cycle, islice
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from perfkit.analysis.ratios import Method, Ratio, estimated, ratio_of
from perfkit.core.config import Config, Protocol
from perfkit.core.driver.measure import measure
from perfkit.core.driver.repeat import TaskError, perform
from perfkit.core.driver.workers import with_dali_settings
from perfkit.core.format import number, percent
from perfkit.core.models import model_of, units_per_sample
from perfkit.core.request import RequestError
from perfkit.core.results.base import Positive, Stored
from perfkit.core.results.schema import Result
from perfkit.core.results.store import Measurement, read_as, write_atomically
from perfkit.core.statistics import Estimate
from perfkit.core.system.environment import usable_cores
from perfkit.report.text.language import gettext as _
from perfkit.report.text.language import gettext_noop
from perfkit.report.text.messages import DIAGNOSIS

FILE = "diagnosis.json"
EVIDENCE = "diagnosis"
"""Folder of the raw files, beside FILE."""
SCHEMA_VERSION: Literal[4] = 4
SLIGHT = 0.05
"""Negligible cost of the input, as a share of the throughput without it; and the tolerance
within which training with an input is as fast as that input alone."""
HEADROOM = 1.1
"""Speed of a sufficient input relative to the training's demand; above 1, since it varies."""
DEPTHS = (1, 2, 4, 8, 16, 32, 64)
WAITING = 0.01
"""Largest share of the time spent waiting with a sufficient depth."""
LEVEL = 0.95
"""Level of the interval that a verdict needs."""

Verdict = Literal["input-bound", "training-bound", "mixed", "undecided"]
Setting = Literal["dali_threads", "dataloader_workers"]
Training = Literal["both", "compute alone"]

VERDICTS: dict[Verdict, str] = {
    "input-bound": gettext_noop("input"),
    "training-bound": gettext_noop("training"),
    "mixed": gettext_noop("input and training"),
    "undecided": gettext_noop("undecided"),
}
"""Verdict -> what limits the throughput."""


class InputAlone(Stored):
    """The input without training, on all ranks together."""

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
    throughput with synthetic input, both of all ranks, in the model's unit."""

    schema_version: Literal[4]
    """readers refuse any other"""
    created: str
    """UTC, ISO 8601"""
    verdict: Verdict
    """training-bound: the ratio's whole interval is at least 0.95; input-bound: it is below,
    and training is as fast as the input alone, to 0.05; mixed: it is below, but the input alone
    is faster; undecided: none of these is certain"""
    method: Method
    """how the ratio was computed"""
    throughput: Positive
    """throughput with the input"""
    synthetic: Positive
    """throughput with synthetic input"""
    synthetic_id: str
    """id of the measurement with synthetic input"""
    reused: list[Training] | None
    """measurements that existed before: both (with the input), compute alone; None: not
    known"""
    input_alone: Annotated[list[InputAlone], Field(min_length=1)]
    """the input without training; the first has the measurement's own count"""

    @property
    def enough(self) -> InputAlone | None:
        """The input with the smallest setting that is fast enough for training."""
        able = [alone for alone in self.input_alone if alone.suffices(self.synthetic)]
        return min(able, key=lambda alone: alone.count, default=None)


def read_diagnosis(folder: Path) -> Diagnosis | None:
    """Return the diagnosis of the measurement in `folder`, None if it has none. Raises
    ResultError."""
    path = folder / FILE
    return read_as(Diagnosis, path, SCHEMA_VERSION) if path.exists() else None


def verdict(ratio: Estimate, synthetic: float, alone: float) -> Verdict:
    """Return what limits training, where `ratio` is the throughput with the input over the
    `synthetic` one.

    If the whole interval is below 1 - SLIGHT, it is the input if training is as fast as the
    input `alone`; otherwise both, which share cores or hardly overlap. If the whole interval is
    above, it is the training. Undecided if neither, or if the repeats are too few for LEVEL.
    """
    least = 1 - SLIGHT
    if ratio.level < LEVEL or ratio.low < least <= ratio.high:
        return "undecided"
    if ratio.low >= least:
        return "training-bound"
    return "input-bound" if ratio.value * synthetic >= least * alone else "mixed"


def cost_in_turn(synthetic: float, alone: float) -> float:
    """Return the share of its throughput that training would lose if it waited for the
    preparation of each batch."""
    return synthetic / (synthetic + alone)


def needed_depth(intervals: Sequence[float], step_seconds: float) -> int | None:
    """Return the smallest of DEPTHS with which training waits for at most WAITING of its time,
    None if there is none. A step takes `step_seconds`; batches are prepared one after another
    in these `intervals`, which recur until every queue has been filled several times."""
    for depth in DEPTHS:
        ready = waited = now = 0.0
        taken = [0.0] * depth
        batches = max(len(intervals), 8 * depth)
        for k, interval in enumerate(islice(cycle(intervals), batches)):
            # A batch is started when there is room for it.
            ready = max(ready, taken[k % depth]) + interval
            if k >= depth:
                waited += max(0.0, ready - now)
            now = max(now, ready)
            taken[k % depth] = now
            now += step_seconds
        if waited <= WAITING * now:
            return depth
    return None


def diagnose(
    config: Config, protocol: Protocol, say: Callable[[str], None]
) -> tuple[Measurement, Diagnosis]:
    """Measure `config` with its input and with synthetic input, then the input alone,
    and store the diagnosis beside the measurement. `say` is called with the name of each part
    before it starts.

    Existing measurements are reused, as by `perfkit run`. Raises RequestError if the
    configuration has synthetic input or several nodes, and TaskError if a part fails.
    """
    if config.input == "synthetic":
        raise RequestError(
            ["input: a diagnosis compares an input with synthetic; set another: -p input dali"]
        )
    if config.nodes > 1:
        raise RequestError(["nodes: a diagnosis needs a single node: -p nodes 1"])
    began = datetime.now(UTC).isoformat(timespec="milliseconds")
    say(f"Training with input {config.input}")
    trained = measure(config, protocol)
    throughput = _throughput(trained.result)
    say("Training with synthetic input")
    twin = measure(config.model_copy(update={"input": "synthetic"}), protocol).result
    synthetic = _throughput(twin)
    ratio, method, _pairs = ratio_of(trained.result, twin, LEVEL)
    folder = trained.folder / EVIDENCE
    # Removes an older diagnosis together with its raw files.
    (trained.folder / FILE).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    alone = _inputs_alone(config, protocol, synthetic, folder, say)
    found = [next(alone)]
    limit = verdict(ratio, synthetic, found[0].throughput)
    is_free = cost_in_turn(synthetic, found[0].throughput) <= SLIGHT
    if limit in ("input-bound", "mixed") or (limit == "undecided" and not is_free):
        found += alone
    results: dict[Training, Result] = {"both": trained.result, "compute alone": twin}
    diagnosis = Diagnosis(
        schema_version=SCHEMA_VERSION,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        verdict=limit,
        **estimated(ratio),
        method=method,
        throughput=throughput,
        synthetic=synthetic,
        synthetic_id=twin.id,
        reused=[
            name
            for name, result in results.items()
            if all((repeat.began or "") < began for repeat in result.complete_repeats)
        ],
        input_alone=found,
    )
    write_atomically(trained.folder / FILE, diagnosis.model_dump_json(indent=1))
    return trained, diagnosis


def _throughput(result: Result) -> float:
    """Return a complete measurement's throughput. Raises TaskError if it is not complete."""
    if result.status != "complete" or not result.throughput:
        failed = result.failure.line() if result.failure else ""
        raise TaskError(f"{result.id} {result.status}: {failed}")
    return result.throughput.value


def _inputs_alone(
    config: Config,
    protocol: Protocol,
    synthetic: float,
    folder: Path,
    say: Callable[[str], None],
) -> Iterator[InputAlone]:
    """Measure the input alone with its own setting, then with 1, 2, 4 … threads or processes,
    and a rank's share of the cores, up to the first count that is fast enough."""
    cores = usable_cores()
    config = with_dali_settings(config, cores)
    setting: Setting = "dali_threads" if config.input == "dali" else "dataloader_workers"
    own, most = getattr(config, setting), max(1, cores // config.devices)
    # A batch in the unit of the throughput.
    batch = config.batch_size * units_per_sample(config)
    for count in dict.fromkeys([own, *(2**k for k in range(most.bit_length())), most]):
        say(f"The input alone, {setting} {count}")
        changed = config.model_copy(update={setting: count})
        ranks = [
            event["intervals"]
            for events in perform(
                changed, protocol, "read_input", folder / f"read_input-{count}"
            )
            for event in events
            if event["event"] == "input"
        ]
        depths = [needed_depth(times, batch * config.ranks / synthetic) for times in ranks]
        alone = InputAlone(
            setting=setting,
            count=count,
            throughput=sum(batch * len(times) / sum(times) for times in ranks),
            depth=None if None in depths else max(filter(None, depths)),
        )
        yield alone
        if count != own and alone.suffices(synthetic):
            return


def diagnosis_lines(found: Diagnosis, c: Config) -> dict[str, str]:
    """Return the sentences of a diagnosis by code: the measured parts, the verdict, the ratio
    with its interval, remedies."""
    low, high = map(percent, found.interval)
    ends = {"level": percent(found.interval_level, 4), "low": low, "high": high}
    interval = _("%(level)s interval %(low)s to %(high)s") % ends
    first = found.input_alone[0]
    values: dict[str, Any] = {
        "unit": model_of(c).unit,
        "input": c.input,
        "setting": first.setting,
        "both": number(found.throughput),
        "synthetic": number(found.synthetic),
        "ratio": percent(found.ratio),
        "interval": interval if found.interval_level else _("no interval (n=1)"),
        "cost": percent(cost_in_turn(found.synthetic, first.throughput), 2),
        "enough": found.enough and found.enough.count,
        "depth": found.enough and found.enough.depth,
    }
    lines = dict.fromkeys(_codes(found, c), "")
    for alone in found.input_alone:
        line = values | {"count": alone.count, "rate": number(alone.throughput)}
        lines[f"input_alone_{alone.count}"] = _(DIAGNOSIS["input_alone"]) % line
    return {code: line or _(DIAGNOSIS[code]) % values for code, line in lines.items()}


def _codes(found: Diagnosis, c: Config) -> Iterator[str]:
    """Yield the codes of all sentences, in order."""
    yield from (f"input_alone_{alone.count}" for alone in found.input_alone)
    yield from ("compute_alone", "both")
    yield from (f"reused_{part.replace(' ', '_')}" for part in found.reused or ())
    yield from (found.verdict, found.method)
    if found.ratio > 1 + SLIGHT:
        yield "disturbed"
    yield "cost"
    if found.verdict == "undecided":
        yield "more_repeats"
    if found.verdict in ("input-bound", "mixed"):
        yield "enough" if found.enough else "none_enough"
        if found.enough and found.enough.setting == "dali_threads" and found.enough.depth:
            yield "depth"
        if c.device == "cpu":
            yield "shared_cores"
