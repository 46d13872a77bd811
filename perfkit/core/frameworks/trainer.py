"""What trains: one model with its optimizer, whose steps are timed."""

from abc import ABC, abstractmethod
from typing import Any

from perfkit.core.config import Config
from perfkit.training.models import optimizer_settings

Batch = tuple[Any, ...]
"""Tensors of the framework, on the training device (see perfkit.inputs). The first
`Network.inputs` tensors go to the network, the rest to its loss."""
INITIAL_LOSS_SCALE = 2.0**15
"""Initial loss scale of float16 training, halved after each overflow."""


class Trainer(ABC):
    """One model with its optimizer on the device of one rank.

    On a CPU, calls return when their work is complete; on a GPU and in JAX, they only submit
    work, except that a loss scaler may wait to read an overflow.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.accumulate = config.accumulate
        self.optimizer_settings = optimizer_settings(config)

    @abstractmethod
    def backward(self, batch: Batch, *, sync_gradients: bool = True) -> Any:
        """Accumulate the gradients of a micro-batch's mean loss divided by `accumulate`, and
        return that loss, a scalar on the device. `sync_gradients`, set for the last micro-batch
        of a step, averages the accumulated gradients over the ranks."""

    @abstractmethod
    def update(self) -> Any:
        """Apply one optimizer step, then drop the gradients. Returns what the device's
        `record_event` needs: a result of the step, or None if the device has its own events."""

    @abstractmethod
    def zero_grad(self) -> None:
        """Drop the gradients."""

    @property
    def loss_scale(self) -> float | None:
        """Current loss scale; None without loss scaling."""
        return None

    @property
    def skipped_steps(self) -> int:
        """Updates skipped because a gradient overflowed; waits for a GPU."""
        return 0
