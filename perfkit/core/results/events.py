"""Lines of the raw files: `repeats/<k>/rank<r>.jsonl` and `repeats/<k>/telemetry.jsonl`.

Each line is one JSON object with an `event`, appended as it happens; a kill may truncate the
last line. Workers write and the driver reads plain dicts: these classes say what is in a dict,
for the reference, and a test compares them with the raw files of the examples.
"""

from typing import Any, Literal, NotRequired

from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict

DESCRIBED = with_config(ConfigDict(extra="forbid", use_attribute_docstrings=True))


@DESCRIBED
class Start(TypedDict):
    """The worker has started."""

    event: Literal["start"]
    pid: int
    """process id"""
    began: NotRequired[float]
    """time by CLOCK_MONOTONIC; older files lack it"""


@DESCRIBED
class Ready(TypedDict):
    """A model of the suite can be trained; older files lack the event."""

    event: Literal["ready"]
    import_seconds: float
    """time to load the framework and to open the device and the input"""
    build_seconds: float
    """time to create model and optimizer"""
    first_batch_seconds: float
    """time until the first batch has arrived, which starts the input's workers"""


@DESCRIBED
class Peak(TypedDict):
    """Speed of this rank's device, before and after the training."""

    event: Literal["peak"]
    matmul_flops_per_second: NotRequired[float]
    """speed of the matrix product; a multiply-add counts as two operations"""
    matmul_size: NotRequired[int]
    """rows and columns of the matrices"""
    copy_bytes_per_second: NotRequired[float]
    """bytes read and written"""
    sustained_matmul_flops_per_second: NotRequired[float]
    """mean speed of the matrix product over a second"""
    sustained_copy_bytes_per_second: NotRequired[float]
    """mean speed of the copy over 0.3 seconds"""
    missing: NotRequired[str]
    """why there is no peak"""


@DESCRIBED
class BatchArrived(TypedDict):
    """With several ranks: the batches of a step have arrived, which distinguishes a rank that
    hangs from ranks that wait for it."""

    event: Literal["batch"]
    step: int
    """number of the step"""


@DESCRIBED
class Step(TypedDict):
    """A step has been completed."""

    event: Literal["step"]
    step: int
    """number, from 1, warm-up included"""
    seconds: float
    """time between two events: readings of a monotonic clock on a CPU, events in the stream on
    a GPU; on a CPU, the steps of the window add up to the window"""
    samples: int
    """samples that the configuration asks of this rank, or that a script tells; the window
    counts those it had"""
    data_wait_seconds: NotRequired[float]
    """host time from requesting the batches to receiving them; on a GPU it may overlap the
    device's work; of a script only if its batches come through `timer.batches`"""
    submit_seconds: NotRequired[float]
    """host time without the data wait until the step's work was submitted; only if no
    call of the step waits for the device"""


@DESCRIBED
class Pause(TypedDict):
    """A script has paused its timer, such as for an evaluation. Steps and window do not contain
    the pause."""

    event: Literal["pause"]
    step: int
    """number of the step before it"""
    seconds: float
    """time from a synchronized device to its end"""


@DESCRIBED
class Loss(TypedDict):
    """The loss of a step; unless on a CPU written after the window, as reading it waits."""

    event: Literal["loss"]
    step: int
    """number of the step"""
    value: float
    """mean loss of the rank's samples"""


@DESCRIBED
class WarmUp(TypedDict):
    """The warm-up of a protocol that does not fix its length has ended."""

    event: Literal["warmup"]
    steps: int
    """steps before the window"""
    seconds: float
    """their time"""
    ended_by: NotRequired[Literal["steady", "steps", "seconds"]]
    """steady steps, or one of the protocol's limits"""


@DESCRIBED
class WindowEnd(TypedDict):
    """The measured steps are complete."""

    event: Literal["window"]
    samples: int
    """samples of this rank"""
    seconds: float
    """wall time from a synchronized device to the completion of the last step"""
    began: NotRequired[float]
    """start of the window by CLOCK_MONOTONIC; files from before telemetry lack it"""
    rows: NotRequired[list[int]]
    """of a script: fewest and most rows that a step read through the timer"""
    batches: NotRequired[int]
    """of a script: batches that the steps read through the timer"""


@DESCRIBED
class Modules(TypedDict):
    """Modules that a script has imported and that its digest does not cover."""

    event: Literal["modules"]
    late: list[str]
    """those of its folder that no import statement of the script or of its modules names, and
    packages of other folders without installed packages"""


@DESCRIBED
class EvaluationDone(TypedDict):
    """One forward pass on one more batch."""

    event: Literal["evaluation"]
    loss: NotRequired[float]
    """as in training"""
    accuracy: NotRequired[float]
    """share of labels or masked words predicted correctly"""
    missing: NotRequired[str]
    """why there is no evaluation"""


@DESCRIBED
class InputRead(TypedDict):
    """In a diagnosis: the input has been read without training."""

    event: Literal["input"]
    intervals: list[float]
    """time of each batch"""


@DESCRIBED
class End(TypedDict):
    """The worker has completed its task; the fields are those of a repeat and its ranks."""

    event: Literal["end"]
    samples_seen: NotRequired[int]
    """samples counted in the batches, warm-up included"""
    memory_bytes: NotRequired[int | None]
    """peak memory"""
    skipped_steps: NotRequired[int | None]
    """steps that loss scaling skipped"""
    loss_scale: NotRequired[float | None]
    """loss scale at the end"""
    compute_seconds: NotRequired[float]
    """time of a step without waiting for other ranks"""


@DESCRIBED
class FailureReport(TypedDict):
    """The worker has failed; no other event follows."""

    event: Literal["failure"]
    code: str
    """code of the failure"""
    params: dict[str, Any]
    """fields of its sentence"""


@DESCRIBED
class TelemetryBegin(TypedDict):
    """Telemetry has started."""

    event: Literal["begin"]
    device: str
    """type of the device that trains"""
    ranks: int
    """ranks on this machine"""
    cores: int
    """cores that may be used"""
    energy_wraps_joules: dict[str, float]
    """device -> value at which its energy counter wraps to 0"""
    missing: dict[str, str]
    """unavailable value -> reason"""


@DESCRIBED
class TelemetrySample(TypedDict):
    """One sample, with the values that could be read at that time."""

    event: Literal["sample"]
    at: float
    """time by CLOCK_MONOTONIC"""
    busy_seconds: NotRequired[float]
    """CPU time of the usable cores since the machine started, from /proc/stat: user, nice and
    system, without interrupts"""
    steal_seconds: NotRequired[float]
    """time of the usable cores that the hypervisor gave to others"""
    process_seconds: NotRequired[float]
    """CPU time of the measurement's processes, including those that have ended"""
    clock_mhz: NotRequired[dict[str, float]]
    """device -> clock; `cpu` is the mean of up to 8 of the usable cores, `gpu0` the first
    rank's SM clock"""
    temperature_celsius: NotRequired[dict[str, float]]
    """device -> temperature; `cpu` is the hottest package"""
    throttled: NotRequired[dict[str, list[str]]]
    """GPU -> NVML's reasons for a reduced clock"""
    throttle_count: NotRequired[dict[str, int]]
    """`cpu` -> number of slow-downs for temperature since the machine started"""
    energy_joules: NotRequired[dict[str, float]]
    """device -> energy counter; `package-0`, `dram-0` by RAPL, `gpu0` by NVML"""
    memory_used_bytes: NotRequired[dict[str, int]]
    """GPU -> memory in use by all processes, by NVML"""


RANK_EVENTS = (
    Start,
    Ready,
    Peak,
    BatchArrived,
    Step,
    Pause,
    Loss,
    WarmUp,
    WindowEnd,
    Modules,
    EvaluationDone,
    InputRead,
    End,
    FailureReport,
)
"""Events of a rank's raw file besides `effective`, which has the fields of Effective, and a
script's `told`, which has those of Told."""
TELEMETRY_EVENTS = (TelemetryBegin, TelemetrySample)
