"""Models of a stored measurement: `result.json` is a Result.

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

from perfkit.core.config import Config, Protocol, parameter_values, select
from perfkit.core.messages import STORED, Message
from perfkit.core.models import model_of, units_per_sample
from perfkit.core.models.model import Unit
from perfkit.core.statistics import median, median_interval, relative_width

SCHEMA_VERSION: Literal[5] = 5
Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Status = Literal["complete", "partial", "failed"]
STOPPING_LEVEL = 0.98
"""Level of the interval whose width ends the repeats. Stopping as soon as the printed interval
of 95 % is narrow would reduce its coverage to 92 %; with this wider interval it is at least
94 % (benchmarks/simulations.py)."""
NOT_IDENTITY = ("suite_commit", "suite_modified")
"""Facts that don't identify a measurement: `suite_source` has the code's digest."""
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
    "not_shared",
    "nodes_differ",
    "port_taken",
]


class Stored(BaseModel):
    """A part of a stored JSON file; immutable, without unknown fields, all numbers finite."""

    model_config = STORED | {"frozen": True, "allow_inf_nan": False}


def in_utc(text: str, timespec: str) -> str:
    """Convert a time in ISO 8601 to UTC. Raises ValueError, also if it has no time zone or its
    year is not 1970 to 8999."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("no time zone")
    if not 1970 <= moment.year < 9000:
        raise ValueError("no year from 1970 to 8999")
    return moment.astimezone(UTC).isoformat(timespec=timespec)


@dataclass(frozen=True, config=STORED)
class Failure(Message):
    """Why a run failed."""

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
    """peak memory: on a GPU, allocated by the framework's allocator since the window's start;
    on a CPU, of the process"""
    compute_seconds: float | None = None
    """time for the batches, forward and backward pass of a step without waiting for other
    ranks: median of three after the window; None for a single rank"""
    samples_seen: int | None = None
    """samples counted in the batches, warm-up included"""


class Peak(Stored):
    """Peak speed of all ranks' devices together, from the framework's own matrix product and
    copy."""

    matmul_flops_per_second: Positive
    """a multiply-add counts as two operations"""
    copy_bytes_per_second: Positive
    """bytes read and written"""
    disturbance: Annotated[float | None, Field(ge=0, lt=1)] = None
    """relative difference of the product's speed before and after the training, 1 - slower /
    faster; None if it was measured once"""


class Evaluation(Stored):
    """Rank 0's loss and accuracy of one forward pass after the window."""

    loss: float
    """as in training"""
    accuracy: float
    """share of labels or masked words predicted correctly"""


class StepSeconds(Stored):
    """Summary of the window's step times over all ranks, seconds."""

    minimum: NonNegative
    """shortest step"""
    p25: NonNegative
    """25th percentile"""
    median: NonNegative
    """50th percentile"""
    p75: NonNegative
    """75th percentile"""
    maximum: NonNegative
    """longest step"""


class TelemetrySummary(Stored):
    """Telemetry of the machine in a repeat's window, sampled outside the training; with several
    nodes, the driver's. Missing values are None, or not in the dict."""

    samples: int
    """samples in the window; if none, the two around it are used"""
    cores: int
    """usable cores, to which the other core figures refer"""
    process_cores: float
    """CPU time of the measurement's processes / seconds"""
    other_load_cores: float | None
    """(busy time of the usable cores - CPU time of the measurement's processes) / seconds;
    includes the driver itself"""
    steal_share: float | None
    """share of the usable cores' time that the hypervisor gave to others; None if none has been
    counted since the machine started, because some hypervisors hide it"""
    clock_mhz: dict[str, tuple[float, float]]
    """device -> lowest and highest clock"""
    temperature_celsius: dict[str, float]
    """device -> highest temperature"""
    throttled: dict[str, dict[str, int]]
    """device -> reason for a lower clock -> samples with it; thermal: the CPU's count rose
    since the previous sample"""
    energy_joules: dict[str, float]
    """GPU, package or memory -> energy in the window"""
    energy_joules_per_sample: float | None
    """energy of the ranks' GPUs or, on a CPU, of all packages and memory, whichever process
    used it / samples of the ranks on this machine"""
    memory_used_bytes: dict[str, int] = {}
    """GPU -> highest memory in use, from NVML: of all processes, including the memory of CUDA
    and its libraries"""
    missing: dict[str, str]
    """missing value -> reason"""


class Warmup(Stored):
    """The warm-up of a repeat whose protocol does not fix its length."""

    steps: Annotated[int, Field(ge=0)]
    """steps before the window"""
    seconds: NonNegative
    """from the first step to the window, on rank 0"""
    ended_by: Literal["steady", "steps", "seconds"]
    """reason for its end: steady steps, or one of the protocol's limits"""


class Repeat(Stored):
    """One fresh run of the worker processes. Unless it is complete, numbers are None and no
    raw files are listed."""

    index: Annotated[int, Field(ge=1)]
    """number, and name of its folder in repeats"""
    status: Literal["complete", "failed"]
    """complete: all ranks finished"""
    failure: Failure | None = None
    """None if complete"""
    warmup: Warmup | None = None
    """None if the protocol fixes the number of steps"""
    throughput: Positive | None = None
    """samples, or tokens, of all ranks in the window / the slowest rank's seconds"""
    steps_per_second: Positive | None = None
    """optimizer steps / the slowest rank's seconds"""
    step_seconds: StepSeconds | None = None
    """times of the window's steps"""
    data_wait_share: NonNegative | None = None
    """time waiting for input / window, over all ranks; 0 to 1"""
    loss_first: float | None = None
    """rank 0's loss at step 1"""
    loss_last: float | None = None
    """rank 0's loss at the last step"""
    skipped_steps: int | None = None
    """steps that loss scaling skipped on rank 0; None without loss scaling"""
    loss_scale: float | None = None
    """loss scale at the end"""
    straggler: int | None = None
    """rank whose compute_seconds exceed 1.1 times the others' median, if any"""
    evaluation: Evaluation | None = None
    """rank 0's, after the window"""
    peak: Peak | None = None
    """all ranks' together; None unless each has one"""
    ranks: list[Rank] = []
    """each rank's window"""
    telemetry: TelemetrySummary | None = None
    """None if the window is too short for it"""
    nodes: list[str] = []
    """names of the nodes, if several"""
    began: str | None = None
    """start of the launcher by the first node's clock; UTC, ISO 8601"""
    wall_seconds: NonNegative | None = None
    """from the start of the launcher to its end"""
    raw_files: dict[str, str] = {}
    """raw file in the repeat's folder from which the numbers are derived -> SHA-256"""

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
        """Raise ValueError if the numbers of a complete repeat contradict each other."""
        assert self.throughput and self.steps_per_second
        if not self.ranks:
            raise ValueError("a complete repeat has the windows of its ranks")
        units, steps = units_per_sample(config), protocol.measured_steps
        seconds = max(rank.window_seconds for rank in self.ranks)
        counted = sum(rank.samples for rank in self.ranks)
        if not isclose(self.steps_per_second * seconds, steps):
            raise ValueError("a repeat's steps_per_second is not that of its ranks")
        if not isclose(self.throughput * seconds, units * counted):
            raise ValueError("a repeat's throughput is not that of its ranks")
        # A window may have fewer samples than requested.
        if counted > steps * config.global_batch:
            raise ValueError("a repeat has more samples than its steps")
        if self.wall_seconds is not None and self.wall_seconds < seconds:
            raise ValueError("a repeat's window is longer than its wall_seconds")


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


class Throughput(Stored):
    """The throughput of a measurement: a statistic over the complete repeats."""

    value: Positive
    """throughput, in unit"""
    unit: Unit
    """the model's unit: samples or tokens per second"""
    statistic: Literal["median"]
    """statistic over the repeats' throughputs"""
    interval: tuple[float, float] | None
    """two order statistics; None for a single repeat"""
    interval_level: float | None
    """coverage achieved, 0 to 1"""
    n: Annotated[int, Field(ge=1)]
    """number of repeats"""
    steps_per_second: Positive
    """optimizer steps per second, by the same statistic"""

    @classmethod
    def of(cls, complete: Sequence[Repeat], unit: Unit) -> Self:
        """Return the median over these complete repeats, at least one."""
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
    """An option of a strategy and whether it was applied."""

    value: bool | int | float | str
    """value that the strategy sets"""
    state: Literal["applied", "ignored", "missing"]
    """whether it was applied"""
    how: str
    """setting that applied it, or why it was not applied"""


class Effective(Stored):
    """Effective settings of the run, read inside the workers."""

    precision: str
    """derived from the dtypes of matrix products or layers"""
    device: str
    """type of the device that trained: cpu, gpu, or another that Paddle has"""
    step_clock: Literal["host", "device"] | None = None
    """source of step times: the device's own events, or the host's clock, on an accelerator
    when an event was found complete; None: not stored"""
    dtypes: dict[str, int]
    """dtype -> number of matrix products, or layers, that compute in it"""
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
    """attention kernel; None if the model has no attention"""
    strategy: dict[str, Option] = {}
    """option of the strategy -> whether it was applied"""
    settings: dict[str, str] = {}
    """performance setting of the framework or the input -> its value"""


class InputData(Stored):
    """The data set of the input."""

    samples: int
    """samples in the data set"""
    sha256: str
    """digest of train_list.txt, or of the shards' names, sizes and first bytes"""


class NodeSeen(Stored):
    """One of several nodes, as seen by the driver."""

    node: int
    """number, from 0"""
    name: str
    """number and host, for display; untrusted text"""
    interface: str
    """network interface of the workers"""
    differs: dict[str, str]
    """facts of the environment that differ from node 0's"""


def identity(environment: Mapping[str, Reading]) -> dict[str, Any]:
    """Return the facts that must agree for repeats to belong to one measurement."""
    return {k: v.value for k, v in sorted(environment.items()) if k not in NOT_IDENTITY}


def identity_digest(
    config: Config,
    protocol: Protocol,
    environment: Mapping[str, Reading],
    data_sha256: str | None,
) -> str:
    """Return the digest at the end of a measurement's id. Parameters that did not exist when a
    stored result was written are not part of it."""
    unstored = {*select(identifies=False)}
    parts = [
        config.model_dump(exclude=unstored, exclude_unset=True),
        protocol.model_dump(exclude_unset=True),
        identity(environment),
        data_sha256,
    ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:8]


def measurement_id(
    config: Config,
    protocol: Protocol,
    environment: Mapping[str, Reading],
    data_sha256: str | None,
) -> str:
    """Return the id of a measurement, which is the name of its folder: configuration, protocol,
    label, and a digest of everything that identifies it, so that only repeats of the same
    measurement share a folder."""
    # Validated again, so that every field is set, as in a stored result.
    config = Config.model_validate(config.model_dump())
    protocol = Protocol.model_validate(protocol.model_dump())
    digest = identity_digest(config, protocol, environment, data_sha256)
    name = [config.model, config.framework, config.precision, config.topology]
    name += [f"b{config.batch_size}", config.device, config.input]
    name += [protocol.name, config.label, digest]
    return "-".join(filter(None, name))


class Result(Stored):
    """One measurement: configuration, protocol, environment and its repeats."""

    schema_version: Literal[5]
    """readers refuse any other"""
    id: str
    """name of its folder"""
    created: str
    """when it was started; UTC, ISO 8601"""
    status: Status
    """complete: all repeats of the protocol (with interval_target, as many as that or budget
    require); partial: some, or still running; failed: none"""
    failure: Failure | None = None
    """why the last run failed; None if it did not"""
    config: Config
    """the work, with every parameter set"""
    protocol: Protocol
    """how the work is measured"""
    environment: dict[str, Reading]
    """facts of node 0 by name, including versions of the workers' packages"""
    effective: Effective | None = None
    """None before a worker has reported it"""
    input_data: InputData | None = None
    """None for synthetic input"""
    nodes: list[NodeSeen] = []
    """empty for a single node"""
    repeats: list[Repeat] = []
    """in order, including failed repeats"""
    throughput: Throughput | None = None
    """None without a complete repeat"""

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
        stored, derived = self.throughput, self.derived_throughput
        if not stored or not derived:
            if stored or derived:
                raise ValueError("throughput: there is one if there are complete repeats")
            return self
        # A field that was added since the file was written is not stored.
        for name in stored.model_fields_set:
            value, wanted = getattr(stored, name), getattr(derived, name)
            floats = isinstance(value, float) and isinstance(wanted, float)
            if not (isclose(value, wanted) if floats else value == wanted):
                raise ValueError(f"throughput: {name} is not that of the complete repeats")
        return self

    @property
    def derived_status(self) -> Status:
        """The status that follows from the repeats."""
        if self.ended_by:
            return "complete"
        return "partial" if self.complete_repeats or not self.failure else "failed"

    @property
    def derived_throughput(self) -> Throughput | None:
        """The throughput that follows from the complete repeats."""
        complete, unit = self.complete_repeats, model_of(self.config).unit
        return Throughput.of(complete, unit) if complete else None

    @property
    def id_is_derived(self) -> bool:
        """Whether the id ends in the digest of everything that identifies the measurement. The
        data's digest is unknown until the data are examined."""
        data = self.input_data.sha256 if self.input_data else None
        if data is None and self.config.input != "synthetic":
            return not self.complete_repeats
        digest = identity_digest(self.config, self.protocol, self.environment, data)
        return self.id.endswith(f"-{digest}")

    @property
    def is_fake(self) -> bool:
        """Whether the tests' fake accelerator trained, so that the numbers mean nothing."""
        gpus = self.fact("gpus") if self.config.device == "gpu" else None
        # In a foreign result, the fact may have any type.
        names = (self.config.device, *(gpus if isinstance(gpus, list) else ()))
        return any(name.lower().startswith("fake") for name in names)

    @property
    def parameters(self) -> dict[str, Any]:
        """The values of all parameters."""
        return parameter_values(self.config, self.protocol)

    def fact(self, name: str) -> Any:
        """Return a fact of the environment; None if it was not read."""
        reading = self.environment.get(name)
        return reading.value if reading else None

    @property
    def data_wait_share(self) -> float | None:
        """The highest data_wait_share of a complete repeat."""
        return max(_known(r.data_wait_share for r in self.complete_repeats), default=None)

    @property
    def telemetry(self) -> list[TelemetrySummary]:
        """Telemetry of the complete repeats that have it."""
        return [r.telemetry for r in self.complete_repeats if r.telemetry]

    @property
    def other_load_cores(self) -> float | None:
        """The highest other_load_cores of a complete repeat."""
        return max(_known(t.other_load_cores for t in self.telemetry), default=None)

    @property
    def energy_joules_per_sample(self) -> float | None:
        """The median over the complete repeats that have it."""
        energies = _known(t.energy_joules_per_sample for t in self.telemetry)
        return median(energies) if energies else None

    def warmup_steps(self, repeat: Repeat) -> int:
        """Return the steps of a repeat before its window; the limit if it did not reach it."""
        if repeat.warmup:
            return repeat.warmup.steps
        return self.protocol.warmup_limit or self.protocol.warmup_steps

    def steps(self, repeat: Repeat) -> int:
        """Return the steps of a complete repeat, including warm-up."""
        return self.warmup_steps(repeat) + self.protocol.measured_steps

    @property
    def complete_repeats(self) -> list[Repeat]:
        return [repeat for repeat in self.repeats if repeat.status == "complete"]

    @property
    def throughputs(self) -> list[float]:
        """Throughputs of the complete repeats."""
        return _known(repeat.throughput for repeat in self.complete_repeats)

    @property
    def ended_by(self) -> Literal["repeats", "interval", "budget"] | None:
        """The rule of the protocol that ended the repeats; None while repeats are missing."""
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
