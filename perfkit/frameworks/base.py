"""What a framework is to perfkit: facts known without importing it (Framework), and a module
`perfkit.frameworks.<name>.backend` that trains with it (Backend). Imports no framework.

A batch is a tuple of tensors as perfkit.inputs describes them; the first `Network.inputs` of
them go to the network, the rest to its loss.
"""

import os
import re
import resource
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, cast

import numpy as np

from perfkit.config import Config
from perfkit.models import MODELS, optimizer_settings
from perfkit.system.gpus import visible_gpus
from perfkit.system.software import Sources, find_version


def dtype_name(dtype: Any) -> str:
    """`float32` for the float32 of any framework."""
    return re.findall(r"\w+", str(dtype))[-1]


def effective_precision(produced: Iterable[str], weights: Iterable[str]) -> str:
    """The precision that layers producing these dtypes from weights of those dtypes train in.

    `amp` keeps float32 weights and computes in float16 where that is safe; `pure_fp16` stores
    weights in float16 too; `bf16` computes in bfloat16, whatever the weights are. What is none
    of these comes back as its dtypes, joined by "+".
    """
    produced, weights = set(produced), set(weights)
    if not produced:
        return "unknown"
    if produced == {"float32"}:
        return "fp32"
    if produced <= {"float16", "float32"}:
        return "pure_fp16" if "float16" in weights else "amp"
    if produced <= {"bfloat16", "float32"}:
        return "bf16"
    return "+".join(sorted(produced))


def visible_variable(device: str) -> str:
    """The environment variable that says which devices of the type a process may use."""
    return "CUDA_VISIBLE_DEVICES" if device == "gpu" else f"{device.upper()}_VISIBLE_DEVICES"


def visible_devices(device: str, counts: Callable[[], Mapping[str, int]]) -> list[str]:
    """Labels of the devices of this type that a process may use here, in their order; none of
    CPUs. `counts()` has the number of devices of each type beside CPUs and GPUs."""
    if device == "cpu":
        return []
    if device == "gpu":
        return visible_gpus()
    count = counts().get(device, 0)
    labels = os.environ.get(visible_variable(device), "")
    if count and labels not in ("", "all"):
        return [label.strip() for label in labels.split(",")]
    return [str(index) for index in range(count)]


Batch = tuple[Any, ...]
"""The framework's own tensors, on its device."""
Weights = dict[str, np.ndarray]
"""Arrays by name, the same names and axes in all frameworks. Names are those of torchvision's
ResNet and VGG, and like those of Hugging Face's BERT (`layer1.0.conv1.weight`). A dense layer's
weight is inputs x outputs, a convolution's outputs x inputs x height x width."""
Clock = Callable[[], float]
"""Seconds, from any moment on."""
Launch = Callable[["Config", "NodeRank", Path, str, list[str]], list[str]]

PARTS = ("forward", "backward", "optimizer", "communication")
"""Of a step, in a profile."""
INITIAL_LOSS_SCALE = 2.0**15
"""Of float16 training. It is halved after each overflow."""
POLL_SECONDS = 2e-4
AFFINITY = "affinity"
"""Of the settings on a GPU, the one that is every framework's: each rank runs on the cores of
its GPU's NUMA node."""
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

    def ranks(self, devices: int) -> range:
        """The ranks of this node, of so many devices each."""
        return range(self.node * devices, (self.node + 1) * devices)

    @property
    def log_name(self) -> str:
        """The name of its launcher's log."""
        return "launcher" if self.nodes == 1 else f"launcher-node{self.node}"


@dataclass(frozen=True)
class Framework:
    """Facts, limits and defaults of a framework, known without importing it.

    `module` is what Python imports; the extra `extra` of pyproject.toml installs it or,
    where that is empty, `make peers` makes an environment for it alone. `supports`
    names the values that a parameter may have; a parameter that is not in it may have any.
    `layout` and `execution` are defaults; `gpu_layouts` has the layout by precision, where it
    is another on a GPU.

    `launch_command(config, node, log_folder, job, worker)` is the command that starts all ranks
    of one node: `worker` is the command of a rank, `job` a name that no other run has. The
    launcher gives each rank its number in `rank_variable` ("": it trains in one process, that
    needs no launcher), and the output of rank `index` of the node is in the files `log_pattern`
    below `log_folder`.

    `cpu_settings(vendor, threads)`: environment variables that make it fast on a CPU of that
    vendor with so many threads per process; they act only before it is imported.

    `tuning`: the settings that make it fast on a GPU, which `disable_tuning` leaves as
    installed; docs/backends.md describes them.

    `versions`: fact of the environment -> where its version stands; the first is that of the
    framework.

    `other_devices(interpreter)`: type -> number of the devices beside CPUs and GPUs that it
    shows on this machine; starts a process.
    """

    name: str
    module: str
    extra: str
    supports: Mapping[str, tuple[Any, ...]]
    cpu_precisions: tuple[str, ...]
    layout: str
    execution: str
    versions: Sources
    launch_command: Launch = lambda _config, _node, _log_folder, _job, worker: worker
    rank_variable: str = ""
    log_pattern: str = ""
    cpu_settings: Callable[[str, int], dict[str, str]] = lambda _vendor, _threads: {}
    tuning: tuple[str, ...] = ()
    gpu_layouts: Mapping[str, str] = field(default_factory=dict)
    other_devices: Callable[[str], Mapping[str, int]] = lambda _interpreter: {}

    def takes(self, **values: Any) -> bool:
        """Whether parameters may have these values."""
        return all(value in self.supports.get(name, (value,)) for name, value in values.items())

    def visible_devices(self, device: str, interpreter: str = sys.executable) -> list[str]:
        """Labels of the devices of this type that its processes may use here; none of CPUs."""
        return visible_devices(device, partial(self.other_devices, interpreter))

    @property
    def several_processes(self) -> bool:
        """Whether it trains in more than one."""
        return bool(self.rank_variable)

    @property
    def facts(self) -> tuple[str, ...]:
        """The facts of the environment that it adds."""
        return tuple(self.versions)

    @property
    def version(self) -> str | None:
        """None where this interpreter does not have it."""
        return find_version(*self.versions[self.facts[0]])


class CpuDevice:
    """What the timer asks of a device; here of a CPU, where a step is done when its call
    returns, and an event is the clock's reading.

    `step_clock`: whether times between events are the `device`'s own, or the `host`'s.
    """

    step_clock: Literal["host", "device"] = "host"

    def __init__(self, clock: Clock = time.perf_counter) -> None:
        self.clock = clock

    def synchronize(self) -> None:
        """Wait until all work handed to the device is done."""

    def record_event(self) -> Any:
        """An event behind all work handed over so far; does not wait."""
        return self.clock()

    def is_complete(self, event: Any) -> bool:
        """Whether the device has come past `event`; does not wait."""
        return True

    def wait_for(self, event: Any) -> None:
        """Wait until the device has come past `event`, whatever is behind it."""

    def seconds_between(self, earlier: Any, later: Any) -> float:
        """Device time between two complete events, seconds."""
        return float(later - earlier)

    def reset_peak_memory(self) -> None:
        """Begin to count `peak_memory_bytes`; does not wait."""
        # Of the process's peak: proc(5), clear_refs.
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")

    def peak_memory_bytes(self) -> int:
        """The most bytes that the framework's allocator has handed out at a time since
        `reset_peak_memory`; on a CPU, the most that the process has had since then."""
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class GpuDevice:
    """The GPU that is selected; events are recorded in its current stream. `library` has
    `Event`, `synchronize` and, for its memory, `reset_peak_memory_stats` and
    `max_memory_allocated`, as torch.cuda has them."""

    step_clock: Literal["host", "device"] = "device"

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

    def wait_for(self, event: Any) -> None:
        event.synchronize()

    def seconds_between(self, earlier: Any, later: Any) -> float:
        return float(earlier.elapsed_time(later)) / 1e3

    def reset_peak_memory(self) -> None:
        self.library.reset_peak_memory_stats()

    def peak_memory_bytes(self) -> int:
        return int(self.library.max_memory_allocated())


class HostTimedDevice(GpuDevice):
    """An accelerator whose events do not measure time: a thread reads the host's clock as soon
    as it sees that one has passed, within POLL_SECONDS. The device is not waited for."""

    step_clock: Literal["host", "device"] = "host"

    def __init__(self, library: Any, clock: Clock = time.perf_counter) -> None:
        super().__init__(library)
        self.clock = clock
        self.watcher = ThreadPoolExecutor(1)

    def record_event(self) -> Future[float]:
        event = self.library.Event()
        event.record()
        return self.watcher.submit(self._passed_at, event)

    def _passed_at(self, event: Any) -> float:
        while not event.query():
            time.sleep(POLL_SECONDS)
        return self.clock()

    def synchronize(self) -> None:
        super().synchronize()
        self.watcher.submit(self.clock).result()

    def is_complete(self, event: Future[float]) -> bool:
        return event.done()

    def wait_for(self, event: Future[float]) -> None:
        event.result()

    def seconds_between(self, earlier: Future[float], later: Future[float]) -> float:
        return later.result() - earlier.result()


Device = CpuDevice | GpuDevice


class Network(Protocol):
    """A model in a framework: called with the first `inputs` tensors of a batch, it returns
    logits of rows x choices, or a tuple that begins with them. Images may have any size."""

    inputs: int
    attention: str | None
    """What computes attention, where no fused kernel does; None: the network has none."""

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

    def array(self, tensor: Any) -> np.ndarray:
        """A tensor's values in host memory, which may be the tensor's own."""
        return np.asarray(tensor)

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
        """dtype -> how many matrix products, convolutions included, or layers compute in it;
        changes no training."""

    def place(self, tensor: Any) -> str:
        """The type of the device that has the tensor: `cpu`, `gpu`, or another."""
        return "cpu"

    def attention(self, batch: Batch) -> str | None:
        """The kernel that computes attention; None: the network has none. Changes no
        training."""
        return getattr(self.network, "attention", None)

    @property
    def device(self) -> str:
        """Where the weights are."""
        return "+".join(sorted({self.place(tensor) for _, tensor in self.named_parameters()}))

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

    def settings(self) -> dict[str, str]:
        """Setting that makes it fast -> its value, as the framework itself has it."""
        return {}

    def effective(self, batch: Batch) -> dict[str, Any]:
        """What the run really does, as results.Effective has it."""
        dtypes = self.computed_dtypes(batch)
        weights = {dtype_name(p.dtype) for _, p in self.named_parameters() if len(p.shape) > 1}
        places = {self.device, *map(self.place, batch)}
        return {
            "precision": effective_precision(dtypes, weights),
            "dtypes": dtypes,
            "tf32": self.tf32(),
            "attention": self.attention(batch),
            "loss_scaling": self.loss_scale,
            # A batch elsewhere is copied, with a synchronization, by every layer that takes it.
            "device": "+".join(sorted(places)),
            "threads": self.threads(),
            "variables": {name: os.environ.get(name) for name in self.variables},
            "parameters": self.parameters,
            "optimizer_settings": self.optimizer_settings.description,
            "strategy": self.strategy_outcomes(),
            "settings": self.settings(),
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

    def largest_of_ranks(self, value: int) -> int:
        """The largest of the values that the ranks call this with; every rank must."""

    def Workloads(self, config: Config) -> Workloads: ...

    def profile(self, step: Callable[[], None], steps: int) -> dict[str, float | None]:
        """Seconds of a `step` and of its parts forward, backward, optimizer, communication, the
        mean of so many, by the framework's own profiler: the device's time on a GPU, else the
        host's. Communication may overlap the backward pass. None: the profiler does not show
        it."""


def backend(framework: str) -> Backend:
    """Import the backend, and with it the framework."""
    return cast(Backend, import_module(f"perfkit.frameworks.{framework}.backend"))


def converted(batches: Iterator[Batch], convert: Callable[[Any], Any]) -> Iterator[Batch]:
    """Batches with each array converted; the batch that synthetic input hands out for ever is
    converted once."""
    source: Any = None
    result: Batch = ()
    for batch in batches:
        if batch is not source:
            source, result = batch, tuple(map(convert, batch))
        yield result


def named_threads(*names: str) -> dict[str, int]:
    """Name -> how many threads of this process have it."""
    found = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
    return {name: found.count(name) for name in names}


def rounds_to_tf32(compute_capability: tuple[int, int], *, allowed: bool = True) -> bool:
    """Whether float32 products on a GPU are rounded to TF32 where the framework allows it."""
    able = compute_capability[0] >= TF32_SINCE
    return able and allowed and os.environ.get("NVIDIA_TF32_OVERRIDE") != "0"
