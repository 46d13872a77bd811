"""What limits a measurement: its parts measured by themselves, judged, stored and reported.

`outputs/<id>/diagnosis.json` is a Diagnosis, beside the measurement that it is about, and
`outputs/<id>/diagnosis/<part>/rank<r>.jsonl` what it follows from.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from perfkit.analysis.ratios import Method, Ratio, estimated, ratio_of
from perfkit.config import Config, Protocol
from perfkit.driver.measure import measure
from perfkit.driver.repeat import TaskError, perform
from perfkit.driver.workers import with_dali_settings
from perfkit.models import MODELS, units_per_sample
from perfkit.request import RequestError
from perfkit.results.schema import NonNegative, Positive, Result, Stored
from perfkit.results.store import Measurement, read_as, write_atomically
from perfkit.statistics import Estimate
from perfkit.text.format import number, percent
from perfkit.text.language import gettext as _
from perfkit.text.language import gettext_noop
from perfkit.text.messages import DIAGNOSIS, coded

FILE = "diagnosis.json"
EVIDENCE = "diagnosis"
"""The folder beside it with the raw files that it follows from."""
SCHEMA_VERSION: Literal[3] = 3
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

Verdict = Literal["input-bound", "training-bound", "mixed", "undecided"]
Setting = Literal["dali_threads", "dataloader_workers"]
Training = Literal["both", "compute alone"]

VERDICTS: dict[Verdict, str] = {
    "input-bound": gettext_noop("input"),
    "training-bound": gettext_noop("training"),
    "mixed": gettext_noop("input and training"),
    "undecided": gettext_noop("undecided"),
}
"""What limits the throughput, by the verdict, in a few words."""


class InputAlone(Stored):
    """The input without training, on all ranks together."""

    setting: Setting
    count: Annotated[int, Field(ge=1)]
    """of the setting, per rank"""
    throughput: Positive
    """in the throughput's unit"""
    depth: int | None
    """batches made ahead that training would not wait with; None: none"""

    def suffices(self, synthetic: float) -> bool:
        """Whether it is fast enough for training at the `synthetic` throughput."""
        return self.throughput >= HEADROOM * synthetic


class StepParts(Stored):
    """Seconds of a step and its parts on rank 0, by the framework's own profiler in a run of
    its own. `communication` may overlap the others. None for what it does not show."""

    step: Positive
    forward: NonNegative | None
    backward: NonNegative | None
    optimizer: NonNegative | None
    communication: NonNegative | None

    def shares(self, wait: float, device: str) -> dict[str, float]:
        """The parts as shares of the step, which add up to 1. `wait` is the share of a step
        that waits for the input, which none of the other parts has in it."""
        has_passes = None not in (self.forward, self.backward)
        names = ["forward", "backward", "optimizer"] if has_passes else ["optimizer"]
        parts = {name: getattr(self, name) for name in names}
        shares = {name: s / self.step for name, s in parts.items() if s is not None}
        rest = max(0.0, 1 - sum(shares.values()))
        wait = min(rest, wait)
        exposed = min(rest - wait, (self.communication or 0) / self.step)
        shares["data wait" if device == "cpu" else "host wait for input"] = wait
        shares["communication, not overlapped"] = exposed
        return shares | {"other" if has_passes else "forward + backward": rest - wait - exposed}


class Diagnosis(Ratio):
    """What `perfkit diagnose` found. `ratio` is the throughput with the input over the
    synthetic one; throughputs are in samples per second of all ranks."""

    schema_version: Literal[3]
    created: str
    """UTC, ISO 8601"""
    verdict: Verdict
    method: Method
    """how the ratio was taken"""
    throughput: Positive
    """with the input"""
    synthetic: Positive
    """the same with synthetic input"""
    synthetic_id: str
    reused: list[Training] | None
    """what was measured before; None: not known"""
    input_alone: Annotated[list[InputAlone], Field(min_length=1)]
    """the first as it was measured"""
    step_parts: StepParts

    @property
    def enough(self) -> InputAlone | None:
        """The input with the smallest setting that is fast enough for training."""
        able = [one for one in self.input_alone if one.suffices(self.synthetic)]
        return min(able, key=lambda one: one.count, default=None)


def read_diagnosis(folder: Path) -> Diagnosis | None:
    """The diagnosis of the measurement in `folder`; None without one. Raises ResultError."""
    path = folder / FILE
    return read_as(Diagnosis, path, SCHEMA_VERSION) if path.exists() else None


# Judged.


def verdict(ratio: Estimate, synthetic: float, alone: float) -> Verdict:
    """What limits, where `ratio` is the throughput with the input over the `synthetic` one.

    If the whole interval is below 1 - SLIGHT it is the input, where training is as fast as the
    input `alone`, or else both, which share cores or hardly overlap. It is the training if the
    whole interval is above. Undecided if neither, or if so few repeats have no interval of
    LEVEL.
    """
    least = 1 - SLIGHT
    if ratio.level < LEVEL or ratio.low < least <= ratio.high:
        return "undecided"
    if ratio.low >= least:
        return "training-bound"
    return "input-bound" if ratio.value * synthetic >= least * alone else "mixed"


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
        for k, interval in enumerate(intervals):
            # A batch is begun when there is room for it.
            ready = max(ready, taken[k % depth]) + interval
            if k >= depth:
                waited += max(0.0, ready - now)
            now = max(now, ready)
            taken[k % depth] = now
            now += step_seconds
        if waited <= WAITING * now:
            return depth
    return None


# Measured.


def diagnose(
    config: Config, protocol: Protocol, say: Callable[[str], None]
) -> tuple[Measurement, Diagnosis]:
    """Measure `config` with its input and with synthetic input, then the input alone and the
    parts of a step, and store what follows beside the measurement; `say` is called with each
    part as it begins.

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
    began = datetime.now(UTC).isoformat(timespec="milliseconds")
    say(f"Training with input {config.input}")
    both = measure(config, protocol)
    throughput = _throughput(both.result)
    say("Training with synthetic input")
    twin = measure(config.model_copy(update={"input": "synthetic"}), protocol).result
    synthetic = _throughput(twin)
    ratio, method, _pairs = ratio_of(both.result, twin, LEVEL)
    folder = both.folder / EVIDENCE
    # An older diagnosis goes with what it followed from.
    (both.folder / FILE).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    alone = _inputs_alone(config, protocol, synthetic, folder, say)
    found = [next(alone)]
    limit = verdict(ratio, synthetic, found[0].throughput)
    is_free = cost_in_turn(synthetic, found[0].throughput) <= SLIGHT
    if limit in ("input-bound", "mixed") or (limit == "undecided" and not is_free):
        found += alone
    say("The parts of a step")
    (events,) = perform(config, protocol, "profile", folder / "profile")[:1]
    (profiled,) = (event for event in events if event["event"] == "profile")
    results: dict[Training, Result] = {"both": both.result, "compute alone": twin}
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
        step_parts=StepParts(**profiled["seconds"]),
    )
    write_atomically(both.folder / FILE, diagnosis.model_dump_json(indent=1))
    return both, diagnosis


def _throughput(result: Result) -> float:
    """That of a complete measurement. Raises TaskError for another."""
    if result.status != "complete" or not result.throughput:
        failed = coded(result.failure) if result.failure else ""
        raise TaskError(f"{result.id} {result.status}: {failed}")
    return result.throughput.value


def _inputs_alone(
    config: Config,
    protocol: Protocol,
    synthetic: float,
    folder: Path,
    say: Callable[[str], None],
) -> Iterator[InputAlone]:
    """The input alone as it was measured, then with other counts of its threads or processes,
    1, 2, 4 … up to the cores that a rank has, to the first that is fast enough."""
    cores = len(os.sched_getaffinity(0))
    config = with_dali_settings(config, cores)
    setting: Setting = "dali_threads" if config.input == "dali" else "dataloader_workers"
    own, most = getattr(config, setting), max(1, cores // config.devices)
    # In the unit of the throughput.
    batch = config.batch_size * units_per_sample(config)
    for count in dict.fromkeys([own, *(2**k for k in range(most.bit_length()))]):
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
        depths = [needed_depth(one, batch * config.ranks / synthetic) for one in ranks]
        one = InputAlone(
            setting=setting,
            count=count,
            throughput=sum(batch * len(one) / sum(one) for one in ranks),
            depth=None if None in depths else max(filter(None, depths)),
        )
        yield one
        if count != own and one.suffices(synthetic):
            return


# Told.


def diagnosis_lines(found: Diagnosis, c: Config) -> dict[str, str]:
    """A diagnosis in sentences by their codes: what was measured, the verdict with its
    interval, what would help, the parts of a step."""
    low, high = map(percent, found.interval)
    ends = {"level": percent(found.interval_level, 4), "low": low, "high": high}
    interval = _("%(level)s interval %(low)s to %(high)s") % ends
    first, parts = found.input_alone[0], found.step_parts.model_dump(exclude_none=True)
    values: dict[str, Any] = {
        "unit": MODELS[c.model].unit,
        "input": c.input,
        "setting": first.setting,
        "both": number(found.throughput),
        "synthetic": number(found.synthetic),
        "ratio": percent(found.ratio),
        "interval": interval if found.interval_level else _("no interval (n=1)"),
        "cost": percent(cost_in_turn(found.synthetic, first.throughput), 2),
        "enough": found.enough and found.enough.count,
        "depth": found.enough and found.enough.depth,
        **{name: percent(one / found.step_parts.step, 2) for name, one in parts.items()},
    }
    lines = {}
    for one in found.input_alone:
        alone = values | {"count": one.count, "rate": number(one.throughput)}
        lines[f"input_alone_{one.count}"] = _(DIAGNOSIS["input_alone"]) % alone
    return lines | {code: _(DIAGNOSIS[code]) % values for code in _codes(found, c)}


def _codes(found: Diagnosis, c: Config) -> Iterator[str]:
    """Of the sentences after those of the input alone."""
    yield from ("compute_alone", "both")
    yield from (f"reused_{one.replace(' ', '_')}" for one in found.reused or ())
    yield found.verdict
    if found.method != "pairs":
        yield "drift"
    yield "cost"
    if found.verdict == "undecided":
        yield "more_repeats"
    if found.verdict in ("input-bound", "mixed"):
        yield "enough" if found.enough else "none_enough"
        if found.enough and found.enough.setting == "dali_threads" and found.enough.depth:
            yield "depth"
        if c.device == "cpu":
            yield "shared_cores"
    parts = found.step_parts
    if parts.optimizer is None:
        yield "no_parts"
        return
    yield "optimizer" if None in (parts.forward, parts.backward) else "passes"
    if c.ranks > 1:
        yield "communication_included" if parts.communication is None else "communication"
