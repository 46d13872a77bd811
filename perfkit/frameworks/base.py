"""Training with a framework. A backend is one module, named as the framework, which offers what
Backend has; `perfkit.frameworks` says what is known of it without importing it."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple, Protocol, cast

import numpy as np

from perfkit.config import Config

Batch = tuple[Any, ...]
"""The framework's own tensors, on its device; see perfkit.inputs for what they hold."""
Weights = dict[str, np.ndarray]
"""Arrays by name: the same names and axes in all backends. A name is the path of
attributes in Paddle's network (`blocks.0.reduce.0.weight`); a dense layer's weight is inputs x
outputs, a convolution's outputs x inputs x height x width."""


Clock = Callable[[], float]
"""Seconds, from any moment on."""


class NodeRank(NamedTuple):
    """The position of one node among those of a run: its number, its address and network
    interface, and `master`, host:port where all nodes meet."""

    node: int = 0
    nodes: int = 1
    address: str = ""
    interface: str = ""
    master: str = ""


class Device(Protocol):
    """What the timer needs of a device."""

    def synchronize(self) -> None:
        """Wait until all work handed to the device is done."""

    def record_event(self) -> Any:
        """An event behind all work handed over so far; does not wait."""

    def is_complete(self, event: Any) -> bool:
        """Whether the device has come past `event`; does not wait."""

    def seconds_between(self, earlier: Any, later: Any) -> float:
        """Device time between two events that are complete, seconds."""


class CpuDevice:
    """A CPU, where a step is done when its call returns."""

    def __init__(self, clock: Clock = time.perf_counter) -> None:
        self.record_event = clock

    def synchronize(self) -> None:
        return

    def is_complete(self, event: float) -> bool:
        return True

    def seconds_between(self, earlier: float, later: float) -> float:
        return later - earlier


class Trainer(Protocol):
    """One model with its optimizer on one device. `parameters` counts the trainable ones,
    `recipe` tells optimizer and loss in words, `loss_scale` is None without loss scaling."""

    parameters: int
    recipe: str
    skipped_steps: int

    @property
    def loss_scale(self) -> float | None: ...

    def backward(self, batch: Any, *, sync_gradients: bool) -> Any:
        """Add a micro-batch's share to the gradients; its share of the loss, not yet read from
        the device. With `sync_gradients`, ranks exchange what has come together."""

    def update(self) -> None:
        """One optimizer step on the gradients, which are gone then."""

    def zero_grad(self) -> None:
        """Drop the gradients."""

    def evaluate(self, batch: Batch) -> tuple[float, float]:
        """Loss and accuracy on a batch, from one forward pass as training makes it."""

    def weights(self) -> Weights:
        """Copies of the trainable parameters."""

    def load_weights(self, weights: Mapping[str, np.ndarray]) -> None:
        """Take these in their place. Raises KeyError or ValueError where they are others."""

    def gradients(self) -> Weights:
        """What `backward` has brought together."""

    def disable_dropout(self) -> None:
        """Have no dropout from now on; all else stays as in training."""

    def multiply_adds(self, batch: Batch) -> int:
        """Of the matrix products of one forward pass, counted as they are made."""


class Workloads(Protocol):
    """What a framework offers for it; each returned call hands one piece of work over."""

    def matmul(self, size: int) -> Callable[[], Any]:
        """The product of two matrices of size x size in the precision of the training."""

    def copy(self, size_bytes: int) -> Callable[[], Any]:
        """A copy of so many bytes into memory that is there already."""


class Backend(Protocol):
    """A module of this package."""

    def open_device(self, config: Config) -> Device:
        """Select this rank's device, seed, and join the other ranks, if there are any."""

    def enable_float64(self) -> None:
        """Have trainers that are made from now on compute in float64, for a trace."""

    def tensors(self, batches: Iterator[Batch], config: Config) -> Iterator[Batch]:
        """An input's batches as tensors on the device, not copied where they need not be. They
        are NumPy arrays, what speaks DLPack (which may be overwritten once the next batch is
        asked for), or the framework's own."""

    def data_loader(
        self, samples: Any, indices: Iterator[Sequence[Any]], processes: int
    ) -> Iterator[Batch]:
        """Batches by the framework's own DataLoader: of `samples[index]`, tuples of arrays, for
        all of the next `indices`, made in so many processes."""

    def Trainer(self, config: Config) -> Trainer: ...

    def effective(self, trainer: Any, batch: Batch) -> dict[str, Any]:
        """What the run really does, as results.Effective has it."""

    def memory_bytes(self, config: Config) -> int | None:
        """The device's peak memory of this rank; None on a CPU, where the process has one."""

    def Workloads(self, config: Config) -> Workloads: ...

    def profile(self, step: Callable[[], None], steps: int) -> dict[str, float | None]:
        """Seconds of a `step` and of its parts forward, backward, optimizer, communication, the
        mean of so many, by the framework's own profiler; None for what it does not tell."""


def backend(framework: str) -> Backend:
    """Import the backend, and with it the framework."""
    return cast(Backend, import_module(f"perfkit.frameworks.{framework}.backend"))
