"""Models of what is stored of a measurement: `result.json` is a Result.

`docs/results.md` describes the format, `docs/result.schema.json` is Result's JSON Schema.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from math import isclose
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, Field, field_validator, model_validator
from pydantic.dataclasses import dataclass

from perfkit.config import PROTOCOL_PARAMETERS, Config, Protocol, parameter_values
from perfkit.messages import STRICT, Message
from perfkit.statistics import Interval, median, median_interval, relative_width

SCHEMA_VERSION: Literal[3] = 3
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
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
    "worker_died",
    "worker_error",
    "timeout",
    "interrupted",
    "worker_stalled",
    "config_mismatch",
    "node_timeout",
    "node_lost",
    "nodes_differ",
    "port_taken",
]


class Stored(BaseModel):
    """A part of what is stored as JSON; immutable, and without unknown fields."""

    model_config = STRICT | {"frozen": True}


def in_utc(text: str, timespec: str) -> str:
    """A moment in ISO 8601 as the same in UTC. Raises ValueError, also without a time zone."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("no time zone")
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
    window_seconds: float
    """wall time between the window's synchronized ends"""
    data_wait_seconds: float
    """time of the window spent waiting for input"""
    memory_bytes: int | None = None
    """peak memory: of the device on a GPU, of the process on a CPU"""
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


class Evaluation(Stored):
    """Rank 0's loss and accuracy on a batch after the window, of one forward pass."""

    loss: Finite
    """as in training"""
    accuracy: Finite
    """share of labels or masked words predicted"""


class StepSeconds(Stored):
    """Summary of the window's step times over all ranks, seconds."""

    minimum: float
    """the shortest step"""
    p25: float
    """25th percentile"""
    median: float
    """50th percentile"""
    p75: float
    """75th percentile"""
    maximum: float
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
    missing: dict[str, str]
    """figure that is missing -> reason"""


class Repeat(Stored):
    """One fresh run of the worker processes. Numbers are None unless it is complete."""

    index: Annotated[int, Field(ge=1)]
    """number, and name of its folder in repeats"""
    status: Literal["complete", "failed"]
    """whether all ranks finished"""
    failure: Failure | None = None
    """None if complete"""
    throughput: Annotated[float | None, Field(gt=0, allow_inf_nan=False)] = None
    """samples of all ranks in the window / the slowest rank's seconds"""
    steps_per_second: float | None = None
    """optimizer steps / the slowest rank's seconds"""
    step_seconds: StepSeconds | None = None
    """of the window's steps"""
    data_wait_share: float | None = None
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
    wall_seconds: float | None = None
    """from starting the launcher to its end"""

    @field_validator("began")
    @classmethod
    def _in_utc(cls, text: str | None) -> str | None:
        return text and in_utc(text, "milliseconds")

    @model_validator(mode="after")
    def _complete_has_a_number(self) -> Self:
        if self.status == "complete" and self.throughput is None:
            raise ValueError("a complete repeat has a throughput")
        if self.throughput is not None and self.ranks:
            slowest = max(rank.window_seconds for rank in self.ranks)
            samples = sum(rank.samples for rank in self.ranks)
            if not isclose(self.throughput * slowest, samples):
                raise ValueError("a repeat's throughput is not that of its ranks")
        return self


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def derived(value: float, interval: Interval | None, n: int) -> dict[str, Any]:
    """A statistic over `n` values as it is stored: value, interval, interval_level, n."""
    ends = (interval.low, interval.high) if interval else None
    level = interval.level if interval else None
    return {"value": value, "interval": ends, "interval_level": level, "n": n}


def derived_median(values: Sequence[float]) -> dict[str, Any]:
    """The same of the median of these."""
    return derived(median(values), median_interval(values), len(values))


class Throughput(Stored):
    """The number: a statistic over the complete repeats."""

    value: Positive
    """the number, in unit"""
    unit: Literal["images/s", "sequences/s"]
    """samples per second"""
    statistic: Literal["median"]
    """of the repeats' throughputs"""
    interval: tuple[float, float] | None
    """two order statistics; None of a single repeat"""
    interval_level: float | None
    """coverage achieved, 0 to 1"""
    n: Annotated[int, Field(ge=1)]
    """repeats behind the statistic"""
    steps_per_second: float
    """optimizer steps per second, by the same statistic"""

    @classmethod
    def of(cls, complete: Sequence[Repeat], unit: Literal["images/s", "sequences/s"]) -> Self:
        """The median over these repeats, all complete and at least one."""
        return cls(
            unit=unit,
            statistic="median",
            steps_per_second=median(_known(repeat.steps_per_second for repeat in complete)),
            **derived_median(_known(repeat.throughput for repeat in complete)),
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
    """from the dtypes that the layers produced"""
    device: Literal["cpu", "gpu"]
    """device that trained"""
    dtypes: dict[str, int]
    """dtype -> layers that produced it"""
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
    strategy: dict[str, Option] = {}
    """option of the strategy -> whether it was applied"""


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
    facts: dict[str, str]
    """parameter, or environment.<fact> -> its source: a line, the file's name, or a hand, and
    the log's own value if that differs; nothing else is known"""
    given: dict[str, str]
    """parameters and --options given by hand, as typed"""
    findings: list[Finding] = []
    """findings of an audit of the logs: docs/results.md"""


class Result(Stored):
    """One measurement: configuration, protocol, environment and its repeats."""

    schema_version: Literal[3]
    """readers refuse any other"""
    id: str
    """name of its folder"""
    created: str
    """when it was started, or imported; UTC, ISO 8601"""
    status: Literal["complete", "partial", "failed"]
    """complete: all repeats that the protocol asks for (with interval_target, as many as that
    or budget leave); partial: some, or still running; failed: none"""
    failure: Failure | None = None
    """what ended the last run; None if nothing"""
    config: Config
    """the work, with every parameter set"""
    protocol: Protocol
    """how it is measured"""
    environment: dict[str, Reading]
    """facts by name; of several nodes, of node 0"""
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
    def _throughput_follows_from_repeats(self) -> Self:
        if not self.throughput:
            return self
        values, stored = self.throughputs, self.throughput
        found = derived_median(values) if values else None
        if not found or (stored.n, stored.interval) != (found["n"], found["interval"]):
            raise ValueError("throughput: n or interval is not that of the complete repeats")
        if not isclose(stored.value, found["value"]):
            raise ValueError("throughput: the value is not the median of the complete repeats")
        return self

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
