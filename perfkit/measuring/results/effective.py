"""What ranks told the timer and noted about their training."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field

from perfkit.measuring.about import DEVICE, FrameworkName
from perfkit.measuring.results.base import Positive, Stored
from perfkit.measuring.system.gpus import core_ranges
from perfkit.timing import told
from perfkit.training.frameworks import AFFINITY

UNIT = rf"^{told.UNIT}$"
"""What a script counts, such as `images`: untrusted text."""
UNIT_PER_SECOND = rf"^{told.UNIT}/s$"
PRECISION = rf"^{told.PRECISION}$"
WorkUnit = Annotated[str, Field(pattern=UNIT_PER_SECOND)]
"""Unit of a throughput, such as `images/s`; of a script, untrusted text."""

MAY_DIFFER = ("device_name", "step_clock", "print_steps", "printed_difference")
"""What ranks, or the logs of repeats, may tell differently."""
StepClock = Literal["host", "device", "watcher", "printed", "arrival"]


class Told(Stored):
    """What a script told the timer. perfkit can't check `samples_per_step`, `flops_per_sample`,
    `parameters` and `precision`; the timer recognized the rest."""

    samples_per_step: Annotated[int, Field(ge=1, le=told.MOST_SAMPLES)]
    """samples per optimizer step of one rank"""
    unit: Annotated[str, Field(pattern=UNIT)]
    """what is counted, a plural noun; untrusted text"""
    flops_per_sample: Positive | None = None
    """FLOPs of forward and backward pass per sample"""
    parameters: Annotated[int | None, Field(ge=1)] = None
    """trainable parameters"""
    precision: Annotated[str | None, Field(pattern=PRECISION)] = None
    """number format of the training; untrusted text"""
    framework: FrameworkName
    """framework that the script had imported at its first step"""
    framework_version: Annotated[str | None, Field(max_length=100)] = None
    """its version; untrusted text"""
    device: Annotated[str, Field(pattern=DEVICE)]
    """type of the device that trained: cpu, gpu, or another that Paddle has"""
    device_name: Annotated[str | None, Field(max_length=200)] = None
    """its name; untrusted text"""
    step_clock: StepClock
    """source of step times, as in `effective`; of a command: the printed times, or the arrival
    of the lines"""
    counts_data_wait: bool
    """whether the batches come through `timer.batches`, which times the wait for them"""
    log_format: Annotated[str, Field(max_length=100)] = ""
    """of a command: the format of its log, as `perfkit audit --formats` names it"""
    log_rate: Annotated[str, Field(max_length=100)] = ""
    """the rate that gives the samples of a step where the log tells no batch, such as
    `tokens/s of one device × 8`"""
    print_steps: Annotated[int | None, Field(ge=1)] = None
    """usual number of steps from one print of the log to the next"""
    printed_difference: float | None = None
    """share by which the printed times exceed those that passed, if they contradict them"""

    def difference_from(self, other: Self) -> str | None:
        """Return the first field in which another rank or repeat differs and may not."""
        # The batches of a command may vary, and its log tells the mean.
        may_differ = (*MAY_DIFFER, "samples_per_step") if self.log_format else MAY_DIFFER
        for name in type(self).model_fields:
            if name not in may_differ and getattr(self, name) != getattr(other, name):
                return name
        return None


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
    step_clock: StepClock | None = None
    """source of step times: the device's own events, or the host's clock, on an accelerator
    when an event was found complete; watcher: the host's clock when the result of an update was
    ready; None before the rank has added it"""
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

    @property
    def thread_counts(self) -> list[int]:
        """The sizes of the thread pools, each once. The pools' names are those of libraries,
        which differ from version to version."""
        return sorted({*self.threads.values()})


def noted_settings(told: Told, notes: Mapping[str, Any]) -> Effective:
    """Return the effective settings that a rank has told and noted by its first step."""
    values = {name: notes[name] for name in Effective.model_fields if name in notes}
    if told.device == "gpu":
        cores = notes.get("cores")
        affinity = f"cores {core_ranges({*cores})}" if cores else "all cores"
        values["settings"] = values["settings"] | {AFFINITY: affinity}
    return Effective(
        **values,
        device=told.device,
        step_clock=told.step_clock,
        parameters=told.parameters or 0,
    )
