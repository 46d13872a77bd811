"""Models of a repeat: one fresh run of the worker processes."""

from typing import Annotated, Literal

from pydantic import Field

from perfkit.measuring.results.base import NonNegative, Positive, Stored, Time
from perfkit.measuring.results.failures import Failure


class Rank(Stored):
    """One rank's window within a repeat."""

    rank: int
    """number, from 0 over all nodes"""
    samples: int
    """samples of this rank in the window"""
    window_seconds: Positive
    """wall time from a synchronized device to the completion of the last step"""
    data_wait_seconds: NonNegative | None
    """time of the window spent waiting for input; None if a script does not tell it"""
    memory_bytes: int | None = None
    """peak memory: on a GPU, allocated by the framework's allocator since the window's start;
    with JAX since the process's start; on a CPU, of the process"""
    compute_seconds: float | None = None
    """time for the batches, forward and backward pass of a step without waiting for other
    ranks: median of three after the window; None for a single rank, and with sharding, whose
    passes wait for the other ranks' weights"""


class Peak(Stored):
    """Peak speed of all ranks' devices together, from the framework's own matrix product and
    copy after the window."""

    matmul_flops_per_second: Positive
    """a multiply-add counts as two operations"""
    copy_bytes_per_second: Positive
    """bytes read and written"""
    sustained_matmul_flops_per_second: Positive
    """mean over a second"""
    sustained_copy_bytes_per_second: Positive
    """mean over 0.3 seconds"""


class StepSeconds(Stored):
    """Summary of the window's step times over all ranks, seconds."""

    minimum: NonNegative
    """shortest step"""
    median: NonNegative
    """50th percentile"""
    maximum: NonNegative
    """longest step"""


class FirstStep(Stored):
    """Time from the start of a rank's process to the end of its first step, seconds, of the
    rank that took longest."""

    seconds: NonNegative
    """the whole time"""
    step_seconds: NonNegative
    """the first step, which compiles the graph and loads kernels"""


OTHER_LOAD_SHARE = 0.1
"""Share of the usable cores above which other load disturbs a measurement."""


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
    energy_joules_per_sample: float | None
    """energy of the ranks' GPUs or, on a CPU, of all packages and memory, whichever process
    used it / samples of the ranks on this machine"""
    memory_used_bytes: dict[str, int]
    """GPU -> highest memory in use, from NVML: of all processes, including the memory of CUDA
    and its libraries"""
    missing: dict[str, str]
    """missing value -> reason"""

    @property
    def most_other_load_cores(self) -> float:
        """Other load up to which the repeat is not disturbed."""
        return OTHER_LOAD_SHARE * self.cores

    @property
    def is_disturbed(self) -> bool:
        """Whether other load took more than a tenth of the usable cores."""
        return (self.other_load_cores or 0.0) > self.most_other_load_cores


class Warmup(Stored):
    """The warm-up of a repeat whose protocol does not fix its steps."""

    steps: Annotated[int, Field(ge=0)]
    """steps before the window"""
    seconds: NonNegative
    """from the first step to the window, on rank 0"""
    ended_by: Literal["length", "steady", "steps", "seconds"]
    """reason for its end: the shortest time, steady steps, or a limit of steps or seconds"""


class Repeat(Stored):
    """One fresh run of the worker processes. Unless it is complete, numbers are None and no
    raw files are listed."""

    index: Annotated[int, Field(ge=1)]
    """number, and name of its folder in repeats"""
    status: Literal["complete", "failed"]
    """complete: all ranks finished"""
    failure: Failure | None = None
    """None if complete"""
    measured_steps: int | None = None
    """steps of the window"""
    warmup: Warmup | None = None
    """None if the protocol fixes the number of steps"""
    throughput: Positive | None = None
    """samples, or tokens, of all ranks in the window / the slowest rank's seconds"""
    steps_per_second: Positive | None = None
    """optimizer steps / the slowest rank's seconds"""
    step_seconds: StepSeconds | None = None
    """times of the window's steps"""
    data_wait_share: NonNegative | None = None
    """time waiting for input / window, over all ranks, 0 to 1; None if a rank can't tell it"""
    loss_first: float | None = None
    """rank 0's loss at step 1; None if a script tells none"""
    loss_last: float | None = None
    """rank 0's loss at the last step"""
    skipped_steps: int | None = None
    """steps that loss scaling skipped on rank 0; None without loss scaling"""
    straggler: int | None = None
    """rank whose compute_seconds exceed 1.1 times the others' median, if any; None also where
    these are unknown"""
    peak: Peak | None = None
    """all ranks' together; None unless each has one"""
    first_step: FirstStep | None = None
    """time to the end of the first step; None if a rank's clock contradicts it"""
    ranks: list[Rank] = []
    """each rank's window"""
    telemetry: TelemetrySummary | None = None
    """None if the window is too short for it"""
    nodes: list[str] = []
    """names of the nodes, if several"""
    began: Time | None = None
    """start of the launcher by the first node's clock; UTC, ISO 8601"""
    wall_seconds: NonNegative | None = None
    """from the start of the launcher to its end"""
    pauses_seconds: NonNegative | None = None
    """time of a script's pauses within the window, which does not contain them, on the rank
    with the longest; None without a pause"""
    rows: tuple[int, int] | None = None
    """fewest and most rows that a step of a script read in the window through the timer; None
    if that is unknown"""
    late_modules: list[str] = []
    """modules that a script imported, but that its digest does not cover"""
    killed_after_end: bool = False
    """whether processes of a script that ran on after the last rank's end were killed"""
    raw_files: dict[str, str] = {}
    """raw file in the repeat's folder from which the numbers are derived -> SHA-256"""

    @property
    def peak_memory_bytes(self) -> int | None:
        """The highest peak memory of a rank; None if no rank tells it."""
        peaks = [rank.memory_bytes for rank in self.ranks if rank.memory_bytes]
        return max(peaks, default=None)
