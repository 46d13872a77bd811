"""What a framework is to perfkit: facts known without importing it (Framework), and a module
`perfkit.frameworks.<name>.backend` that trains with it (Backend). Imports no framework.

A batch is a tuple of tensors as perfkit.inputs describes them; the first `Network.inputs` of
them go to the network, the rest to its loss.
"""

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, cast

import numpy as np

from perfkit.config import Config
from perfkit.frameworks.precision import dtype_name, effective_precision
from perfkit.models import MODELS, optimizer_settings

Batch = tuple[Any, ...]
"""The framework's own tensors, on its device."""
Weights = dict[str, np.ndarray]
"""Arrays by name, the same names and axes in all frameworks. Names are those of torchvision's
ResNet and VGG, and like those of Hugging Face's BERT (`layer1.0.conv1.weight`). A dense layer's
weight is inputs x outputs, a convolution's outputs x inputs x height x width."""
Clock = Callable[[], float]
"""Seconds, from any moment on."""

INITIAL_LOSS_SCALE = 2.0**15
"""Of float16 training. It is halved after each overflow."""
TF32_SINCE = 8
"""The first compute capability (Ampere) whose tensor cores know TF32."""


class NodeRank(NamedTuple):
    """The position of one node among those of a run: its number, its address and network
    interface, and `master`, host:port where all nodes meet."""

    node: int = 0
    nodes: int = 1
    address: str = ""
    interface: str = ""
    master: str = ""


@dataclass(frozen=True)
class Framework:
    """Facts, limits and defaults of a framework, known without importing it.

    `module` is what Python imports; the extra `extra` of pyproject.toml installs it. `supports`
    names the values that a parameter may have; a parameter that is not in it may have any.
    `layout` and `execution` are defaults.

    `launch_command(config, node, log_folder, job, worker)` is the command that starts all ranks
    of one node: `worker` is the command of a rank, `job` a name that no other run has. The
    launcher gives each rank its number in `rank_variable` ("": it starts one process only), and
    the output of rank `index` of the node is in the files `log_pattern` below `log_folder`.

    `cpu_settings(vendor, threads)`: environment variables that make it fast on a CPU of that
    vendor with so many threads per process; they act only before it is imported.

    `versions`: fact of the environment -> how to read it; the first is the framework's version.
    """

    name: str
    module: str
    extra: str
    supports: Mapping[str, tuple[Any, ...]]
    cpu_precisions: tuple[str, ...]
    layout: str
    execution: str
    launch_command: Callable[[Config, NodeRank, Path, str, list[str]], list[str]]
    rank_variable: str
    log_pattern: str
    cpu_settings: Callable[[str, int], dict[str, str]]
    versions: Mapping[str, Callable[[], str | None]]
    several_processes: bool = True

    @property
    def facts(self) -> tuple[str, ...]:
        """The facts of the environment that it adds."""
        return tuple(self.versions)

    def build(self) -> dict[str, str | None]:
        """These facts of what is installed; None: there is no such part."""
        return {fact: read() for fact, read in self.versions.items()}

    @property
    def version(self) -> str | None:
        """None where it is not installed."""
        return self.versions[self.facts[0]]()


class Device(Protocol):
    """What the timer needs of a device."""

    def synchronize(self) -> None:
        """Wait until all work handed to the device is done."""

    def record_event(self) -> Any:
        """An event behind all work handed over so far; does not wait."""

    def is_complete(self, event: Any) -> bool:
        """Whether the device has come past `event`; does not wait."""

    def seconds_between(self, earlier: Any, later: Any) -> float:
        """Device time between two complete events, seconds."""


class CpuDevice:
    """A CPU, where a step is done when its call returns; an event is the clock's reading."""

    def __init__(self, clock: Clock = time.perf_counter) -> None:
        self.record_event = clock

    def synchronize(self) -> None:
        return

    def is_complete(self, event: float) -> bool:
        return True

    def seconds_between(self, earlier: float, later: float) -> float:
        return later - earlier


class GpuDevice:
    """The GPU that is selected; events are recorded in its current stream. `library` has
    `Event` and `synchronize`, as torch.cuda and paddle.device have them."""

    def __init__(self, library: Any) -> None:
        self.library = library

    def synchronize(self) -> None:
        self.library.synchronize()

    def record_event(self) -> Any:
        event = self.library.Event(enable_timing=True)
        event.record()
        return event

    def is_complete(self, event: Any) -> bool:
        return bool(event.query())

    def seconds_between(self, earlier: Any, later: Any) -> float:
        return float(earlier.elapsed_time(later)) / 1e3


class Network(Protocol):
    """A model in a framework: called with the first `inputs` tensors of a batch, it returns
    logits of rows x choices, or a tuple that begins with them. Images may have any size."""

    inputs: int

    def loss(self, logits: Any, *targets: Any) -> Any:
        """The mean loss of a batch, a scalar on the device; `targets` are the batch's other
        tensors, whose first has the label of each row."""


class Trainer(ABC):
    """One model with its optimizer on the device of one rank.

    Subclasses set `network` and `parameters`, the number of trainable values. On a CPU, the
    work of a call is done when it returns; on a GPU, `backward`, `update` and `zero_grad` hand
    their work over and do not wait, but where a loss scaler must read an overflow.
    """

    variables: ClassVar[tuple[str, ...]] = ()
    """Environment variables whose values are stored with the results."""
    network: Any
    parameters: int

    def __init__(self, config: Config) -> None:
        self.config = config
        self.accumulate = config.accumulate
        self.optimizer_settings = optimizer_settings(config)

    @abstractmethod
    def backward(self, batch: Batch, *, sync_gradients: bool = True) -> Any:
        """Add the gradients of a micro-batch, the mean over it divided by `accumulate`; returns
        its loss divided likewise, a scalar still on the device. With `sync_gradients`, all that
        has been added is averaged over the ranks: for the last micro-batch of a step."""

    @abstractmethod
    def update(self) -> None:
        """One optimizer step on the gradients, which are gone then."""

    @abstractmethod
    def zero_grad(self) -> None:
        """Drop the gradients."""

    @property
    def loss_scale(self) -> float | None:
        """The factor by which losses are multiplied now; None without loss scaling."""
        return None

    @property
    def skipped_steps(self) -> int:
        """Updates left out because a gradient overflowed; on a GPU, waits for the device."""
        return 0

    @abstractmethod
    def predict(self, batch: Batch) -> tuple[Any, Any]:
        """Loss of a batch and what its network returned, from one forward pass as training
        makes it, without gradients. Batch-norm statistics may change."""

    def evaluate(self, batch: Batch) -> tuple[float, float]:
        """Loss on a batch, and the share of its labels that have the highest logit."""
        loss, outputs = self.predict(batch)
        logits = outputs[0] if isinstance(outputs, tuple) else outputs
        found = self.array(logits.argmax(-1)).ravel()
        labels = self.array(batch[self.network.inputs]).ravel()
        counted = labels != MODELS[self.config.model].ignored_label
        return float(loss), float((found == labels)[counted].mean())

    @abstractmethod
    def multiply_adds(self, batch: Batch) -> int:
        """Those of the matrix products in one forward pass, counted as they are made."""

    # For perfkit.worker.trace, which compares the work of frameworks.

    @abstractmethod
    def disable_dropout(self) -> None:
        """Have no dropout from now on; all else stays as in training."""

    @abstractmethod
    def named_parameters(self) -> Iterator[tuple[str, Any]]:
        """The trainable parameters, in the framework's own form."""

    @abstractmethod
    def named_gradients(self) -> Iterator[tuple[str, Any]]:
        """The gradients, without loss scale, in the framework's own form."""

    @abstractmethod
    def assign(self, name: str, array: np.ndarray) -> None:
        """Set a parameter to values in the framework's own form."""

    @abstractmethod
    def array(self, tensor: Any) -> np.ndarray:
        """A tensor's values in host memory, which may be the tensor's own."""

    def to_canonical(self, name: str, array: np.ndarray) -> np.ndarray:
        """A parameter with the axes that Weights have."""
        return array

    def from_canonical(self, name: str, array: np.ndarray) -> np.ndarray:
        """The inverse of to_canonical."""
        return array

    def weights(self) -> Weights:
        """Copies of the trainable parameters."""
        return self._copies(self.named_parameters())

    def gradients(self) -> Weights:
        """Copies of the gradients that `backward` has added."""
        return self._copies(self.named_gradients())

    def load_weights(self, weights: Mapping[str, np.ndarray]) -> None:
        """Replace the trainable parameters. Raises ValueError, before anything changes, if
        names or shapes differ."""
        expected = {name: array.shape for name, array in self.weights().items()}
        found = {name: array.shape for name, array in weights.items()}
        if differing := sorted(dict(expected.items() ^ found.items())):
            name = differing[0]
            raise ValueError(
                f"{name}: expected {expected.get(name)}, found {found.get(name)}"
                + f", and {len(differing) - 1} more differ" * (len(differing) > 1)
            )
        for name in expected:
            self.assign(name, self.from_canonical(name, weights[name]))

    def _copies(self, tensors: Iterator[tuple[str, Any]]) -> Weights:
        return {
            name: np.array(self.to_canonical(name, self.array(tensor)), order="C")
            for name, tensor in tensors
        }

    # What the run really does.

    @abstractmethod
    def computed_dtypes(self, batch: Batch) -> dict[str, int]:
        """dtype -> how many layers or matrix products compute in it; changes no training."""

    @property
    @abstractmethod
    def device(self) -> str:
        """`cpu` or `gpu`: where the weights are."""

    def tf32(self) -> bool:
        """Whether float32 products are rounded to TF32."""
        return False

    def threads(self) -> dict[str, int]:
        """Thread pool -> its threads."""
        from threadpoolctl import threadpool_info

        return {pool["prefix"]: pool["num_threads"] for pool in threadpool_info()}

    def strategy_outcomes(self) -> dict[str, Any]:
        """Option of the distributed strategy -> what became of it."""
        return {}

    def effective(self, batch: Batch) -> dict[str, Any]:
        """What the run really does, as results.Effective has it."""
        dtypes = self.computed_dtypes(batch)
        weights = {dtype_name(p.dtype) for _, p in self.named_parameters() if p.ndim > 1}
        return {
            "precision": effective_precision(dtypes, weights),
            "dtypes": dtypes,
            "tf32": self.tf32(),
            "loss_scaling": self.loss_scale,
            "device": self.device,
            "threads": self.threads(),
            "variables": {name: os.environ.get(name) for name in self.variables},
            "parameters": self.parameters,
            "optimizer_settings": self.optimizer_settings.description,
            "strategy": self.strategy_outcomes(),
        }


class Workloads(Protocol):
    """Pieces of work of known size, for perfkit.worker.peak: each returned call hands one over
    to the device, in the precision of the training."""

    def matmul(self, size: int) -> Callable[[], Any]:
        """The product of two matrices of size x size."""

    def copy(self, size_bytes: int) -> Callable[[], Any]:
        """A copy of so many bytes into memory that is there already."""


class Backend(Protocol):
    """The module `perfkit.frameworks.<name>.backend`, which imports the framework."""

    def open_device(self, config: Config) -> Device:
        """Select this rank's device, seed, and join the other ranks, if there are any."""

    def enable_float64(self) -> None:
        """Have trainers that are made from now on compute in float64."""

    def tensors(self, batches: Iterator[Batch], config: Config) -> Iterator[Batch]:
        """An input's batches as tensors on the device, not copied where they need not be. They
        are NumPy arrays, what speaks DLPack (which may be overwritten once the next batch is
        asked for), or the framework's own."""

    def data_loader(
        self, samples: Any, indices: Iterator[Sequence[Any]], processes: int
    ) -> Iterator[Batch]:
        """Batches by the framework's own DataLoader: of `samples[index]`, tuples of arrays, for
        each of `indices`, made in so many processes."""

    def Trainer(self, config: Config) -> Trainer: ...

    def memory_bytes(self, config: Config) -> int | None:
        """The device's peak memory of this rank; None on a CPU, where the process has one."""

    def Workloads(self, config: Config) -> Workloads: ...

    def profile(self, step: Callable[[], None], steps: int) -> dict[str, float | None]:
        """Seconds of a `step` and of its parts forward, backward, optimizer, communication, the
        mean of so many, by the framework's own profiler: the device's time on a GPU, else the
        host's. Communication may overlap the backward pass. None: the profiler does not show
        it."""


def backend(framework: str) -> Backend:
    """Import the backend, and with it the framework."""
    return cast(Backend, import_module(f"perfkit.frameworks.{framework}.backend"))


def rounds_to_tf32(compute_capability: tuple[int, int], *, allowed: bool = True) -> bool:
    """Whether float32 products on a GPU are rounded to TF32 where the framework allows it."""
    able = compute_capability[0] >= TF32_SINCE
    return able and allowed and os.environ.get("NVIDIA_TF32_OVERRIDE") != "0"
