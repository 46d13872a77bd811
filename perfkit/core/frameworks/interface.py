"""The interface of a backend. This module imports no framework; the backend, the module
`perfkit.core.frameworks.<name>.backend`, does."""

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any, Protocol, cast

from perfkit.core.config import Config
from perfkit.core.frameworks import inspector, trainer
from perfkit.core.frameworks.trainer import Batch
from perfkit.timing.devices import Device


class Workloads(Protocol):
    """Workloads of known size for perfkit.timing.peak. Each method returns a function that
    submits the work to the device, in the precision of the training."""

    def matmul(self, size: int) -> Callable[[], Any]:
        """Multiply two matrices of size x size."""

    def copy(self, size_bytes: int) -> Callable[[], Any]:
        """Copy `size_bytes` bytes into memory that is already allocated."""


class Backend(Protocol):
    """The functions and classes of a backend."""

    def open_device(self, config: Config) -> Device:
        """Select this rank's device, seed the framework, and join the other ranks, if any."""

    def enable_float64(self) -> None:
        """Make trainers created from now on compute in float64."""

    def tensors(self, batches: Iterator[Batch], config: Config) -> Iterator[Batch]:
        """Yield an input's batches as tensors on the device, without a copy where possible.
        `batches` are NumPy arrays, DLPack objects (which the next batch may overwrite) or
        tensors of the framework."""

    def data_loader(
        self, samples: Any, indices: Iterator[Sequence[Any]], processes: int
    ) -> Iterator[Batch]:
        """Yield batches from the framework's own DataLoader with this many processes: each item
        of `indices` lists the samples of a batch, `samples[index]` is a tuple of arrays."""

    def Trainer(self, config: Config) -> trainer.Trainer: ...

    def Inspector(self, trainer: Any) -> inspector.Inspector: ...

    def largest_of_ranks(self, value: int) -> int:
        """Return the largest value of all ranks; every rank must call this."""

    def Workloads(self, config: Config) -> Workloads: ...


def backend(framework: str) -> Backend:
    """Import the backend and its framework."""
    return cast(Backend, import_module(f"perfkit.core.frameworks.{framework}.backend"))


def converted(batches: Iterator[Batch], convert: Callable[[Any], Any]) -> Iterator[Batch]:
    """Yield batches with each array converted. A repeated batch, as synthetic input yields, is
    converted once."""
    source: Any = None
    result: Batch = ()
    for batch in batches:
        if batch is not source:
            source = batch
            result = tuple(map(convert, batch))
        yield result
