"""Models of what is stored of a measurement: `result.json` is a Result.

`docs/results.md` describes the format, `docs/result.schema.json` is Result's JSON Schema.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from math import isclose
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, Field, field_validator, model_validator
from pydantic.dataclasses import dataclass

from perfkit.config import PROTOCOL_PARAMETERS, Config, Protocol, parameter_values, select
from perfkit.messages import STRICT, Message
from perfkit.models import MODELS, units_per_sample
from perfkit.models.model import Unit
from perfkit.statistics import median, median_interval, relative_width

SCHEMA_VERSION: Literal[4] = 4
Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Status = Literal["complete", "partial", "failed"]
STOPPING_LEVEL = 0.98
"""Of the interval by whose width repeats end. A rule that ends when an interval happens to be
narrow would leave the printed one of 95 % with 92; by a wider one, it keeps 94 or more
(benchmarks/simulations.py)."""
NOT_IDENTITY = ("suite_commit", "suite_modified")
"""Facts that don't make it another measurement: `suite_source` has the code's digest."""
FailureCode = Literal[
    "bad_input",
    "loss_not_finite",
    "out_of_memory",
    "disk_full",
    "io_error",
    "worker_died",
    "worker_error",
    "timeout",
    "interrupted",
    "worker_stalled",
    "config_mismatch",
    "node_timeout",
    "node_lost",
    "node_error",
    "nodes_differ",
    "port_taken",
]


class Stored(BaseModel):
    """A part of what is stored as JSON; immutable, without unknown fields, and all its numbers
    are finite."""

    model_config = STRICT | {"frozen": True, "allow_inf_nan": False}


def in_utc(text: str, timespec: str) -> str:
    """A moment in ISO 8601 as the same in UTC. Raises ValueError, also without a time zone and
    for a year that leaves no room for later moments."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("no time zone")
    if not 1970 <= moment.year < 9000:
        raise ValueError("no year from 1970 to 8999")
    return moment.astimezone(UTC).isoformat(timespec=timespec)


@dataclass(frozen=True, config=STRICT)
class Failure(Message):
    """What ended a run before its time."""

    code: FailureCode
    """kind of failure"""


class Reading(Stored):
    """One fact of the environment, or why it could not be read."""

    value: str | int | float | bool | list[str] | None
    """the fact; None if missing"""
    missing: str | None = None
    """why there is no value"""


class Rank(Stored):
    """One rank's window within a repeat."""

    rank: int
    """number, from 0 over all nodes"""
    samples: int
    """samples of this rank in the window"""
    window_seconds: Positive
    """wall time from a synchronized device to the completion of the last step"""
    data_wait_seconds: NonNegative
    """time of the window spent waiting for input"""
    memory_bytes: int | None = None
    """peak memory: on a GPU, what the framework's allocator handed out from the window's begin
    on; on a CPU, that of the process"""
    compute_seconds: float | None = None
    """batches, forward and backward pass of a step without waiting for other ranks: median of
    three after the window; None for a single rank"""
    samples_seen: int | None = None
    """samples counted in the batches, warm-up included"""


class Peak(Stored):
    """Highest speed of all ranks' devices together, by the framework's own product and copy."""

    matmul_flops_per_second: Positive
    """a multiply-add counts as two operations"""
    copy_bytes_per_second: Positive
    """bytes read and written"""
    disturbance: Annotated[float | None, Field(ge=0, lt=1)] = None
    """by which share the product was slower at the slower one of two times, before the training
    and after it; None if it was measured once"""


class Evaluation(Stored):
    """Rank 0's loss and accuracy on a batch after the window, of one forward pass."""

    loss: float
    """as in training"""
    accuracy: float
    """share of labels or masked words predicted"""


class StepSeconds(Stored):
    """Summary of the window's step times over all ranks, seconds."""

    minimum: NonNegative
    """the shortest step"""
    p25: NonNegative
    """25th percentile"""
    median: NonNegative
    """50th percentile"""
    p75: NonNegative
    """75th percentile"""
    maximum: NonNegative
    """the longest step"""


class TelemetrySummary(Stored):
    """The machine in the window of a repeat, seen from outside the training; of several nodes,
    the driver's. Figures that it does not have are None, or not in the dict."""

    samples: int
    """samples in the window; without any, the two around it are used"""
    cores: int
    """usable cores; other figures of cores are of these"""
    process_cores: float
    """CPU time of the measurement's processes / seconds"""
    other_load_cores: float | None
    """busy time of the usable cores less that of the measurement's processes / seconds;
    includes the driver's own"""
    steal_share: float | None
    """share of the usable cores' time that the hypervisor gave to others; None if none has been
    counted since the machine started: some hypervisors hide it"""
    clock_mhz: dict[str, tuple[float, float]]
    """device -> lowest and highest clock"""
    temperature_celsius: dict[str, float]
    """device -> highest temperature"""
    throttled: dict[str, dict[str, int]]
    """device -> reason for a lower clock -> samples with it; thermal: the CPU's count rose
    since the sample before"""
    energy_joules: dict[str, float]
    """GPU, package or memory -> energy in the window"""
    energy_joules_per_sample: float | None
    """energy of the ranks' GPUs or, on a CPU, of all packages and memory, whoever used them
    / samples of the ranks on this machine"""
    memory_used_bytes: dict[str, int] = {}
    """GPU -> most memory in use, by NVML: of all processes, with what CUDA and its libraries
    take for themselves"""
    missing: dict[str, str]
    """figure that is missing -> reason"""


class Warmup(Stored):
    """The warm-up of a repeat whose protocol leaves its length open."""

    steps: Annotated[int, Field(ge=0)]
    """before the window"""
    seconds: NonNegative
    """from the first step to the window, on rank 0"""
    ended_by: Literal["steady", "steps", "seconds"]
    """what ended it: steady steps, or one of the protocol's limits"""


class Repeat(Stored):
    """One fresh run of the worker processes. Numbers are None, and no file is named, unless it
    is complete."""

    index: Annotated[int, Field(ge=1)]
    """number, and name of its folder in repeats"""
    status: Literal["complete", "failed"]
    """whether all ranks finished"""
    failure: Failure | None = None
    """None if complete"""
    warmup: Warmup | None = None
    """None: as many steps as the protocol has"""
    throughput: Positive | None = None
    """samples, or tokens, of all ranks in the window / the slowest rank's seconds"""
    steps_per_second: Positive | None = None
    """optimizer steps / the slowest rank's seconds"""
    step_seconds: StepSeconds | None = None
    """of the window's steps"""
    data_wait_share: NonNegative | None = None
    """time waiting for input / window, over all ranks; 0 to 1"""
    loss_first: float | None = None
    """rank 0's loss at step 1"""
    loss_last: float | None = None
    """rank 0's loss at the last step"""
    skipped_steps: int | None = None
    """steps of rank 0 that loss scaling skipped; None without loss scaling"""
    loss_scale: float | None = None
    """loss scale at the end"""
    straggler: int | None = None
    """the rank with over 1.1 times the median compute_seconds of the others, if any"""
    evaluation: Evaluation | None = None
    """of rank 0, after the window"""
    peak: Peak | None = None
    """of all ranks; None unless each has one"""
    ranks: list[Rank] = []
    """each rank's window"""
    telemetry: TelemetrySummary | None = None
    """None where the window is too short for it"""
    nodes: list[str] = []
    """names of the nodes, if several"""
    began: str | None = None
    """when the launcher was started, by the clock of the first node, UTC, ISO 8601"""
    wall_seconds: NonNegative | None = None
    """from starting the launcher to its end"""
    raw_files: dict[str, str] = {}
    """raw file in its folder that the numbers are derived from -> SHA-256"""

    @field_validator("began")
    @classmethod
    def _in_utc(cls, text: str | None) -> str | None:
        return text and in_utc(text, "milliseconds")

    @model_validator(mode="after")
    def _complete_has_numbers(self) -> Self:
        if self.status == "complete" and not (self.throughput and self.steps_per_second):
            raise ValueError("a complete repeat has a throughput and steps_per_second")
        return self

    def check(self, config: Config, protocol: Protocol) -> None:
        """Raises ValueError where the numbers of a complete repeat contradict each other."""
        assert self.throughput and self.steps_per_second
        units, steps = units_per_sample(config), protocol.measured_steps
        # The logs of an import have no ranks. A window may have fewer samples than asked for.
        seconds, counted = steps / self.steps_per_second, steps * config.global_batch
        if self.ranks:
            seconds = max(rank.window_seconds for rank in self.ranks)
            counted = sum(rank.samples for rank in self.ranks)
        if not isclose(self.steps_per_second * seconds, steps):
            raise ValueError("a repeat's steps_per_second is not that of its ranks")
        if not isclose(self.throughput * seconds, units * counted):
            raise ValueError("a repeat's throughput is not that of its ranks")
        if counted > steps * config.global_batch:
            raise ValueError("a repeat has more samples than its steps")
        if self.wall_seconds is not None and self.wall_seconds < seconds:
            raise ValueError("a repeat's window is longer than its wall_seconds")


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


class Throughput(Stored):
    """The number: a statistic over the complete repeats."""

    value: Positive
    """the number, in unit"""
    unit: Unit
    """the model's: samples per second, or tokens"""
    statistic: Literal["median"]
    """of the repeats' throughputs"""
    interval: tuple[float, float] | None
    """two order statistics; None of a single repeat"""
    interval_level: float | None
    """coverage achieved, 0 to 1"""
    n: Annotated[int, Field(ge=1)]
    """repeats behind the statistic"""
    steps_per_second: Positive
    """optimizer steps per second, by the same statistic"""

    @classmethod
    def of(cls, complete: Sequence[Repeat], unit: Unit) -> Self:
        """The median over these repeats, all complete and at least one."""
        values = _known(repeat.throughput for repeat in complete)
        interval = median_interval(values)
        return cls(
            value=median(values),
            unit=unit,
            statistic="median",
            interval=(interval.low, interval.high) if interval else None,
            interval_level=interval.level if interval else None,
            n=len(values),
            steps_per_second=median(_known(repeat.steps_per_second for repeat in complete)),
        )

    @property
    def relative_width(self) -> float | None:
        """The interval's width as a share of the value."""
        if not self.interval:
            return None
        low, high = self.interval
        return (high - low) / self.value


class Option(Stored):
    """One option of a strategy and what became of it."""

    value: bool | int | float | str
    """as the strategy sets it"""
    state: Literal["applied", "ignored", "missing"]
    """what became of it"""
    how: str
    """what applied it, or why it was not applied"""


class Effective(Stored):
    """Effective settings of the run, read inside the workers."""

    precision: str
    """from the dtypes that matrix products or layers compute in"""
    device: str
    """type of the device that trained: cpu, gpu, or another that Paddle has"""
    step_clock: Literal["host", "device"] | None = None
    """what step times are read from: the device's own events, or the host's clock, on an
    accelerator when an event was seen to have passed; None: not stored"""
    dtypes: dict[str, int]
    """dtype -> matrix products, or layers, that compute in it"""
    threads: dict[str, int]
    """thread pool -> threads"""
    variables: dict[str, str | None]
    """CPU settings in the worker's environment"""
    parameters: int
    """trainable parameters of the model"""
    optimizer_settings: str
    """optimizer and loss with their settings"""
    tf32: bool
    """whether fp32 products are rounded to TF32"""
    loss_scaling: float | None
    """initial loss scale; None without loss scaling"""
    attention: str | None = None
    """kernel that computes attention; None: the model has none"""
    strategy: dict[str, Option] = {}
    """option of the strategy -> whether it was applied"""
    settings: dict[str, str] = {}
    """setting that makes the framework or the input fast -> its value"""


class InputData(Stored):
    """The data set of the input."""

    samples: int
    """samples in the data set"""
    sha256: str
    """of train_list.txt, or of the shards' names, sizes and first bytes"""


class NodeSeen(Stored):
    """One of several nodes, as the driver knows it."""

    node: int
    """number, from 0"""
    name: str
    """number and host, for people; foreign text"""
    interface: str
    """network interface of the workers"""
    differs: dict[str, str]
    """facts of the environment that differ from node 0's"""


@dataclass(frozen=True, config=STRICT)
class Finding(Message):
    """What was found in a log, and where."""

    file: str = ""
    """the log's name; empty for several logs"""
    line: int | None = None
    """None: no single line"""


class ImportedLog(Stored):
    """The log behind one repeat."""

    file: str
    """file name, without folders; foreign text"""
    sha256: str
    """of the file"""
    lines: tuple[int, int]
    """line numbers of the first and the last print in the window"""
    epoch: int
    """as the log counts; steps are counted within it"""
    run: int
    """number of the training in the file, from 0"""


class Imported(Stored):
    """Origin of a measurement that another suite made, and the meaning of the printed figures,
    as their format declares it."""

    format: str
    """name of the logs' format"""
    rate_of: Literal["device", "all"]
    """the devices whose samples a printed rate counts"""
    rate_unit: str = ""
    """unit of a printed rate; empty: that of the model's throughput"""
    covers: Literal["window", "running", "step"]
    """steps of a print: those since the last print, all since `since` in the epoch, or one"""
    since: int | None = None
    """for running, its first step"""
    step: Literal["update", "batch"]
    """a step of the log: an update, or a micro-batch"""
    counts_from: int
    """number of the first step in the log"""
    reader: Literal["in", "apart"] | None
    """whether a step's time includes its wait for input; None if unknown"""
    source: str
    """where this meaning is known from"""
    basis: Literal["seconds", "own_rate", "clock"]
    """source of the window's time: printed step times, rates of the steps of each print, or the
    clock at two prints"""
    logs: list[ImportedLog]
    """one per repeat, in order"""
    facts: dict[str, Message]
    """parameter, or environment.<fact> -> its source: a line, the file's name, or a hand, and
    the log's own value beside it; nothing else is known"""
    given: dict[str, str]
    """parameters and --options given by hand, as typed"""
    findings: list[Finding] = []
    """findings of an audit of the logs: docs/results.md"""


def identity(environment: Mapping[str, Reading]) -> dict[str, Any]:
    """The facts that must be alike for repeats to belong to one measurement."""
    return {k: v.value for k, v in sorted(environment.items()) if k not in NOT_IDENTITY}


def identity_digest(
    config: Config,
    protocol: Protocol,
    environment: Mapping[str, Reading],
    data_sha256: str | None,
    imported: Imported | None = None,
) -> str:
    """What the id of exactly this measurement ends in. Of a stored result, parameters that its
    perfkit did not have are no part of it."""
    unstored = {*select(identifies=False)}
    parts = [
        config.model_dump(exclude=unstored, exclude_unset=True),
        protocol.model_dump(exclude_unset=True),
        identity(environment),
        data_sha256,
    ]
    parts += [imported.model_dump(exclude={"findings"})] if imported else []
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:8]


def measurement_id(
    config: Config,
    protocol: Protocol,
    environment: Mapping[str, Reading],
    data_sha256: str | None,
    imported: Imported | None = None,
) -> str:
    """The id of exactly this measurement, and the name of its folder: configuration, protocol,
    label, and a digest of all that identifies it, so that only repeats of one and the same
    measurement ever come together."""
    # As they are read back: every field is set.
    config = Config.model_validate(config.model_dump())
    protocol = Protocol.model_validate(protocol.model_dump())
    digest = identity_digest(config, protocol, environment, data_sha256, imported)
    name = [config.model, config.framework, config.precision, config.topology]
    name += [f"b{config.batch_size}", config.device, config.input]
    name += ["imported" if imported else protocol.name, config.label, digest]
    return "-".join(filter(None, name))


class Result(Stored):
    """One measurement: configuration, protocol, environment and its repeats."""

    schema_version: Literal[4]
    """readers refuse any other"""
    id: str
    """name of its folder"""
    created: str
    """when it was started, or imported; UTC, ISO 8601"""
    status: Status
    """complete: all repeats that the protocol asks for (with interval_target, as many as that
    or budget leave); partial: some, or still running; failed: none"""
    failure: Failure | None = None
    """what ended the last run; None if nothing"""
    config: Config
    """the work, with every parameter set"""
    protocol: Protocol
    """how it is measured"""
    environment: dict[str, Reading]
    """facts by name, with the versions of the workers' packages; of several nodes, of node 0"""
    effective: Effective | None = None
    """None before a worker has reported it, or if imported"""
    input_data: InputData | None = None
    """None for synthetic input"""
    nodes: list[NodeSeen] = []
    """empty for a single node"""
    repeats: list[Repeat] = []
    """in their order, failed ones too"""
    throughput: Throughput | None = None
    """None without a complete repeat"""
    imported: Imported | None = None
    """None if perfkit measured it"""

    @field_validator("created")
    @classmethod
    def _in_utc(cls, text: str) -> str:
        return in_utc(text, "seconds")

    @model_validator(mode="after")
    def _repeats_agree(self) -> Self:
        indices, limit = [repeat.index for repeat in self.repeats], self.protocol.repeats
        if indices != sorted({*indices}) or any(index > limit for index in indices):
            raise ValueError(f"repeats: their numbers are not rising, or not 1 to {limit}")
        for repeat in self.complete_repeats:
            repeat.check(self.config, self.protocol)
        return self

    @model_validator(mode="after")
    def _follows_from_repeats(self) -> Self:
        if self.status != self.derived_status:
            raise ValueError(f"status: with these repeats it is {self.derived_status}")
        if bool(self.throughput) != bool(self.complete_repeats):
            raise ValueError("throughput: there is one if there are complete repeats")
        for name, value in self.derived_throughput or ():
            found = getattr(self.throughput, name)
            floats = isinstance(value, float) and isinstance(found, float)
            if not (isclose(found, value) if floats else found == value):
                raise ValueError(f"throughput: {name} is not that of the complete repeats")
        return self

    @property
    def derived_status(self) -> Status:
        """The status as the repeats have it."""
        if self.ended_by:
            return "complete"
        return "partial" if self.complete_repeats or not self.failure else "failed"

    @property
    def derived_throughput(self) -> Throughput | None:
        """The number as the complete repeats have it."""
        complete, unit = self.complete_repeats, MODELS[self.config.model].unit
        return Throughput.of(complete, unit) if complete else None

    @property
    def id_is_derived(self) -> bool:
        """Whether the id ends in the digest of all that identifies the measurement. That of the
        data is not known before they are examined."""
        data = self.input_data.sha256 if self.input_data else None
        if data is None and self.config.input != "synthetic" and not self.imported:
            return not self.complete_repeats
        asked = self.config, self.protocol, self.environment
        return self.id.endswith(f"-{identity_digest(*asked, data, self.imported)}")

    @property
    def is_fake(self) -> bool:
        """Whether the fake accelerator of the tests trained, on which nothing is measured."""
        gpus = self.fact("gpus") if self.config.device == "gpu" else None
        return any(
            name.lower().startswith("fake") for name in (self.config.device, *(gpus or ()))
        )

    @property
    def parameters(self) -> dict[str, Any]:
        """The values of all parameters; None for those that an imported log does not have."""
        values = parameter_values(self.config, self.protocol)
        if self.imported:
            known = {*self.imported.facts, *PROTOCOL_PARAMETERS, "label"}
            values = {name: value if name in known else None for name, value in values.items()}
        return values

    def fact(self, name: str) -> Any:
        """A fact of the environment; None where it was not read."""
        reading = self.environment.get(name)
        return reading.value if reading else None

    @property
    def data_wait_share(self) -> float | None:
        """The largest share of a complete repeat's window spent waiting for input."""
        return max(_known(r.data_wait_share for r in self.complete_repeats), default=None)

    @property
    def telemetry(self) -> list[TelemetrySummary]:
        """Those of the complete repeats that have them."""
        return [r.telemetry for r in self.complete_repeats if r.telemetry]

    @property
    def other_load_cores(self) -> float | None:
        """The highest other load of a complete repeat."""
        return max(_known(t.other_load_cores for t in self.telemetry), default=None)

    @property
    def energy_joules_per_sample(self) -> float | None:
        """The median of the complete repeats that have it."""
        energies = _known(t.energy_joules_per_sample for t in self.telemetry)
        return median(energies) if energies else None

    def warmup_steps(self, repeat: Repeat) -> int:
        """Steps of a repeat before its window; at most, if it has not come to that."""
        if repeat.warmup:
            return repeat.warmup.steps
        return self.protocol.warmup_limit or self.protocol.warmup_steps

    def steps(self, repeat: Repeat) -> int:
        """Steps of a complete repeat, warm-up included."""
        return self.warmup_steps(repeat) + self.protocol.measured_steps

    @property
    def complete_repeats(self) -> list[Repeat]:
        return [repeat for repeat in self.repeats if repeat.status == "complete"]

    @property
    def throughputs(self) -> list[float]:
        """Those of the complete repeats."""
        return _known(repeat.throughput for repeat in self.complete_repeats)

    @property
    def ended_by(self) -> Literal["repeats", "interval", "budget"] | None:
        """The part of the protocol by which no repeat is missing; None while one is."""
        protocol, complete = self.protocol, self.complete_repeats
        if len(complete) == protocol.repeats:
            return "repeats"
        if protocol.interval_target is None or not complete:
            return None
        width = relative_width(self.throughputs, STOPPING_LEVEL)
        if width is not None and width <= protocol.interval_target:
            return "interval"
        spent = sum(repeat.wall_seconds or 0.0 for repeat in complete)
        return "budget" if protocol.budget and spent >= protocol.budget else None
