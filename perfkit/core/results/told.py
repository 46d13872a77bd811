"""What a script of the user's told the timer about its training."""

from typing import Annotated, Literal

from pydantic import Field

from perfkit.core.config import DEVICE, FrameworkName
from perfkit.core.results.base import Positive, Stored
from perfkit.timing import told

UNIT = rf"^{told.UNIT}$"
"""What a script counts, such as `images`: untrusted text."""
UNIT_PER_SECOND = rf"^{told.UNIT}/s$"
PRECISION = rf"^{told.PRECISION}$"
WorkUnit = Annotated[str, Field(pattern=UNIT_PER_SECOND)]
"""Unit of a throughput, such as `images/s`; of a script, untrusted text."""


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
    step_clock: Literal["host", "device", "watcher"]
    """source of step times, as in `effective`"""
    counts_data_wait: bool
    """whether the batches come through `timer.batches`, which times the wait for them"""
