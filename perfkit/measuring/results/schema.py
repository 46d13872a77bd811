"""Models of a stored measurement: `result.json` is a Result.

`docs/results.md` describes the format, `docs/result.schema.json` is Result's JSON Schema.
"""

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import Field

from perfkit.measuring.config import Config
from perfkit.measuring.parameters import parameter_values
from perfkit.measuring.protocol import Protocol
from perfkit.measuring.results.base import Positive, Reading, Stored, Time
from perfkit.measuring.results.effective import Effective, Told, WorkUnit
from perfkit.measuring.results.failures import Failure
from perfkit.measuring.results.repeat import Repeat, TelemetrySummary
from perfkit.measuring.statistics import median, median_interval, relative_width
from perfkit.measuring.units import TERA
from perfkit.measuring.work import Counts, ModelWork, Work

SCHEMA_VERSION: Literal[9] = 9
Status = Literal["complete", "partial", "failed"]
Ending = Literal["repeats", "interval", "budget"]
"""The rule of the protocol that ended the repeats."""
STOPPING_LEVEL = 0.98
"""Level of the interval whose width ends the repeats. Stopping as soon as the printed interval
of 95 % is narrow would reduce its coverage to 92 %; with this wider interval it is at least
94 % (benchmarks/simulations.py)."""


class Throughput(Stored):
    """The throughput of a measurement: the median over the complete repeats."""

    value: Positive
    """throughput, in unit"""
    unit: WorkUnit
    """the work's unit: images, sequences, tokens or what a script counts, per second; of a
    script, untrusted text"""
    interval: tuple[float, float] | None
    """two order statistics; None for a single repeat"""
    interval_level: float | None
    """coverage achieved, 0 to 1"""
    n: Annotated[int, Field(ge=1)]
    """number of repeats"""
    steps_per_second: Positive
    """optimizer steps per second, the median too"""

    @classmethod
    def of(cls, complete: Sequence[Repeat], unit: str) -> Self:
        """Return the median over these complete repeats, at least one."""
        throughputs = present(repeat.throughput for repeat in complete)
        step_rates = present(repeat.steps_per_second for repeat in complete)
        interval = median_interval(throughputs)
        ends, level = None, None
        if interval:
            ends, level = (interval.low, interval.high), interval.level
        return cls(
            value=median(throughputs),
            unit=unit,
            interval=ends,
            interval_level=level,
            n=len(throughputs),
            steps_per_second=median(step_rates),
        )


def present(values: Iterable[float | None]) -> list[float]:
    """Return the values that are not None."""
    return [value for value in values if value is not None]


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


class Result(Stored):
    """One measurement: configuration, protocol, environment and its repeats."""

    schema_version: Literal[9]
    """readers refuse any other"""
    id: str
    """name of its folder"""
    created: Time
    """when it was started; UTC, ISO 8601"""
    status: Status
    """complete: all repeats of the protocol (with interval_target, as many as that or budget
    require); partial: some, or still running; failed: none"""
    failure: Failure | None = None
    """why the last run failed; None if it did not"""
    config: Config
    """the work and how it runs, with every parameter set"""
    protocol: Protocol
    """how the work is measured"""
    environment: dict[str, Reading]
    """facts of node 0 by name, including versions of the workers' packages"""
    effective: Effective | None = None
    """None before a worker has reported it"""
    told: Told | None = None
    """what a script told the timer, the same in all repeats; None before, and for a model"""
    nccl_network: str | None = None
    """network over which NCCL connects the nodes: IB for InfiniBand and RoCE, Socket for TCP,
    or a plugin's name; None if it connects none, or if a variable NCCL_DEBUG… was set"""
    input_data: InputData | None = None
    """None for synthetic input, and for a script"""
    nodes: list[NodeSeen] = []
    """empty for a single node"""
    repeats: list[Repeat] = []
    """in order, including failed repeats"""
    throughput: Throughput | None = None
    """None without a complete repeat"""

    @property
    def derived_status(self) -> Status:
        """The status that follows from the repeats."""
        if self.ended_by:
            return "complete"
        if self.complete_repeats or not self.failure:
            return "partial"
        return "failed"

    @property
    def derived_throughput(self) -> Throughput | None:
        """The throughput that follows from the complete repeats."""
        if not self.complete_repeats:
            return None
        return Throughput.of(self.complete_repeats, self.counts.unit)

    @property
    def ended_by(self) -> Ending | None:
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
        if protocol.budget and spent >= protocol.budget:
            return "budget"
        return None

    def fact(self, name: str) -> Any:
        """Return a fact of the environment; None if it was not read."""
        reading = self.environment.get(name)
        return reading.value if reading else None

    @property
    def work(self) -> Work:
        """What is trained."""
        return self.config.work

    @property
    def counts(self) -> Counts:
        """What the throughput counts."""
        return self.work.counts(self.told)

    @property
    def global_batch(self) -> int:
        """Samples per optimizer step of all ranks; 0 before a script has told its own."""
        return (self.counts.samples_per_step or 0) * self.config.ranks

    @property
    def throughput_per_device(self) -> float | None:
        """Units per second on each device; None without a number."""
        if not self.throughput:
            return None
        return self.throughput.value / self.config.device_count

    @property
    def tflops_per_device(self) -> float | None:
        """The training's operations on each device, TFLOP/s, with attention in full; None
        without a number or a count."""
        flops = self.counts.flops_per_unit
        if not self.throughput_per_device or not flops:
            return None
        return self.throughput_per_device * flops / TERA

    @property
    def shares_of_peak(self) -> list[float]:
        """The training's operations per second over the matrix product's peak that the same
        processes measured, of each complete repeat with a peak; none without a count of
        operations. Above 1, they are unreliable."""
        flops, shares = self.counts.flops_per_unit, []
        for repeat in self.complete_repeats:
            if flops and repeat.peak:
                peak = repeat.peak.matmul_flops_per_second
                shares.append((repeat.throughput or 0.0) * flops / peak)
        return shares

    @property
    def input(self) -> str | None:
        """Source of a model's batches; None for a script, whose input perfkit does not know."""
        return self.work.input

    @property
    def built_in(self) -> ModelWork:
        """The built-in model. Raises TypeError for a script."""
        return self.work.built_in

    @property
    def parameters(self) -> dict[str, Any]:
        """The values of all parameters."""
        return parameter_values(self.config, self.protocol)

    def warmup_steps(self, repeat: Repeat) -> int:
        """Return the steps of a repeat before its window; the limit if it did not reach it."""
        if repeat.warmup:
            return repeat.warmup.steps
        return self.protocol.warmup_limit or self.protocol.warmup_steps

    def steps(self, repeat: Repeat) -> int:
        """Return the steps of a complete repeat, including warm-up."""
        measured_steps = repeat.measured_steps or self.protocol.measured_steps
        return self.warmup_steps(repeat) + measured_steps

    @property
    def complete_repeats(self) -> list[Repeat]:
        return [repeat for repeat in self.repeats if repeat.status == "complete"]

    @property
    def throughputs(self) -> list[float]:
        """Throughputs of the complete repeats."""
        return present(repeat.throughput for repeat in self.complete_repeats)

    @property
    def data_wait_share(self) -> float | None:
        """The highest data_wait_share of a complete repeat."""
        shares = present(repeat.data_wait_share for repeat in self.complete_repeats)
        return max(shares, default=None)

    @property
    def peak_memory_bytes(self) -> int | None:
        """The highest peak memory of a rank in a complete repeat."""
        of_repeats = [repeat.peak_memory_bytes for repeat in self.complete_repeats]
        return max((peak for peak in of_repeats if peak), default=None)

    @property
    def first_step_seconds(self) -> float | None:
        """The time to the end of the first step: the median over the complete repeats that have
        it."""
        first_steps = [repeat.first_step for repeat in self.complete_repeats]
        seconds = [first_step.seconds for first_step in first_steps if first_step]
        return median(seconds) if seconds else None

    @property
    def telemetry(self) -> list[TelemetrySummary]:
        """Telemetry of the complete repeats that have it."""
        return [repeat.telemetry for repeat in self.complete_repeats if repeat.telemetry]

    @property
    def other_load_cores(self) -> float | None:
        """The highest other_load_cores of a complete repeat."""
        loads = present(summary.other_load_cores for summary in self.telemetry)
        return max(loads, default=None)

    @property
    def is_disturbed(self) -> bool:
        """Whether other load disturbed a complete repeat."""
        return any(summary.is_disturbed for summary in self.telemetry)

    @property
    def energy_joules_per_sample(self) -> float | None:
        """The median over the complete repeats that have it."""
        energies = present(summary.energy_joules_per_sample for summary in self.telemetry)
        return median(energies) if energies else None
