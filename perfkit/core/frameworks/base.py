"""The interface of a framework: facts known without importing it (Framework), and the module
`perfkit.core.frameworks.<name>.backend` that trains with it (Backend). Imports no framework.

A batch is a tuple of tensors (see perfkit.core.inputs): the first `Network.inputs` tensors go
to the network, the rest to its loss.
"""

import math
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
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, cast

import numpy as np

from perfkit.core.config import Config
from perfkit.core.models import model_of, optimizer_settings
from perfkit.core.system.gpus import visible_gpus
from perfkit.core.system.software import Sources, find_version


def dtype_name(dtype: Any) -> str:
    """Return the dtype's name without its framework's prefix, such as `float32`."""
    return re.findall(r"\w+", str(dtype))[-1]


def effective_precision(produced: Iterable[str], weights: Iterable[str]) -> str:
    """Return the training precision for these output dtypes and weight dtypes of layers.

    `amp` keeps float32 weights and computes in float16 where that is safe; `pure_fp16` also
    stores weights in float16; `bf16` computes in bfloat16 with weights of any dtype. Other
    combinations are returned as the output dtypes, joined by "+".
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
    """Return the environment variable that restricts a process to some devices of a type.

    For the types of its plugins (npu, mlu, gcu ...) and its XPU build, Paddle's launcher reads
    it and assigns each rank its own devices in FLAGS_selected_<type>s.
    """
    return "CUDA_VISIBLE_DEVICES" if device == "gpu" else f"{device.upper()}_VISIBLE_DEVICES"


Batch = tuple[Any, ...]
"""Tensors of the framework, on the training device."""
Weights = dict[str, np.ndarray]
"""Arrays by name; names and axes are the same in all frameworks. ResNet and VGG have the names
of torchvision (`layer1.0.conv1.weight`), BERT similar names to Hugging Face's. A dense layer's
weight is inputs x outputs, a convolution's outputs x inputs x height x width."""
Clock = Callable[[], float]
"""Seconds since an arbitrary origin."""
Launch = Callable[["Config", "NodeRank", Path, str, list[str]], list[str]]

INITIAL_LOSS_SCALE = 2.0**15
"""Initial loss scale of float16 training, halved after each overflow."""
POLL_SECONDS = 2e-4
AFFINITY = "affinity"
"""GPU setting of every framework: each rank runs on the cores of its GPU's NUMA node."""
TF32_SINCE = 8
"""First compute capability (Ampere) whose tensor cores support TF32."""


class NodeRank(NamedTuple):
    """Position of a node in a run: its number, address and network interface, and `master`,
    the host:port where all nodes meet."""

    node: int = 0
    nodes: int = 1
    address: str = ""
    interface: str = ""
    master: str = ""

    def ranks(self, devices: int) -> range:
        """Return the ranks of this node when every node has `devices` devices."""
        return range(self.node * devices, (self.node + 1) * devices)

    @property
    def log_name(self) -> str:
        """Name of the log of the node's launcher."""
        return "launcher" if self.nodes == 1 else f"launcher-node{self.node}"


@dataclass(frozen=True)
class Framework:
    """Facts, limits and defaults of a framework, known without importing it.

    `display_name`: its name in texts. `colour` and `marker`: its colour and matplotlib's marker
    in charts, distinguishable from the others' in greyscale too.

    `module`: the Python module. `package`: its name for pip. `install`: the command that
    installs it; `gpu_install`: the command for a build for GPUs, if it is another one.

    `supports`: parameter -> supported values; a parameter that is not listed may have any
    value. `layout` and `execution` are defaults; `gpu_layouts`: precision -> default layout on
    a GPU, if different. `preset_precision(strategy)`: the precision that a strategy sets; None
    if it sets none.

    `launch_command(config, node, log_folder, job, worker)`: the command that starts all ranks
    of a node; `worker` is the command of a rank, `job` a unique name of the run. The launcher
    passes each rank's number in `rank_variable` ("": a single process without a launcher) and
    writes the output of the node's rank `index` to the files `log_pattern` below `log_folder`.

    `cpu_settings(vendor, threads)`: environment variables for full speed on a CPU of that
    vendor with that many threads per process; they must be set before the import.

    `tuning`: settings for full speed on a GPU, which `disable_tuning` leaves at their defaults;
    docs/backends.md describes them.

    `loader_threads`: whether its DataLoader uses threads instead of processes.
    `shared_memory`: pattern for the names of the files that a process of its DataLoader creates
    in /dev/shm, with {pid} for the number of the process; empty if it creates none.
    `dali_plugin`: the module of DALI whose iterator yields its tensors on a GPU; empty if it
    trains on no GPU.

    `versions`: fact of the environment -> sources of its version; the framework's own first.

    `other_devices(interpreter)`: type -> number of this machine's devices other than CPUs and
    GPUs that the framework sees; starts a process.
    """

    display_name: str
    colour: str
    marker: str
    module: str
    package: str
    install: str
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
    loader_threads: bool = False
    shared_memory: str = ""
    dali_plugin: str = ""
    gpu_install: str = ""
    preset_precision: Callable[[str], str | None] = lambda _strategy: None
    gpu_layouts: Mapping[str, str] = field(default_factory=dict)
    other_devices: Callable[[str], Mapping[str, int]] = lambda _interpreter: {}

    def takes(self, **values: Any) -> bool:
        """Return whether the framework supports these values of parameters."""
        return all(value in self.supports.get(name, (value,)) for name, value in values.items())

    def visible_devices(self, device: str, interpreter: str = sys.executable) -> list[str]:
        """Return the labels of this type's devices that its processes may use, in order; [] for
        `cpu`. Raises OSError if NVIDIA's driver fails."""
        if device == "cpu":
            return []
        if device == "gpu":
            return visible_gpus()
        count = self.other_devices(interpreter).get(device, 0)
        labels = os.environ.get(visible_variable(device), "")
        if count and labels not in ("", "all"):
            return [label.strip() for label in labels.split(",")]
        return [str(index) for index in range(count)]

    @property
    def several_processes(self) -> bool:
        """Whether the framework supports more than one rank."""
        return bool(self.rank_variable)

    @property
    def facts(self) -> tuple[str, ...]:
        """Facts of the environment that the framework adds."""
        return tuple(self.versions)

    @property
    def version(self) -> str | None:
        """Installed version; None if this interpreter does not have the framework."""
        return find_version(*self.versions[self.facts[0]])


class CpuDevice:
    """The timer's view of a device; here a CPU, where a step is complete when its call returns
    and an event is a reading of the clock.

    `step_clock`: whether the `device` or the `host` measures the time between events.
    """

    step_clock: Literal["host", "device"] = "host"

    def __init__(self, clock: Clock = time.perf_counter) -> None:
        self.clock = clock

    def synchronize(self) -> None:
        """Wait until the device has completed all submitted work."""

    def record_event(self) -> Any:
        """Return an event that completes after all work submitted so far; does not wait."""
        return self.clock()

    def is_complete(self, event: Any) -> bool:
        """Return whether the device has reached `event`; does not wait."""
        return True

    def wait_for(self, event: Any) -> None:
        """Wait until the device has reached `event`, but not for work submitted after it."""

    def seconds_between(self, earlier: Any, later: Any) -> float:
        """Return the device time between two complete events, seconds."""
        return later - earlier

    def reset_peak_memory(self) -> None:
        """Reset `peak_memory_bytes`; does not wait."""
        # Resets the peak resident set size of the process: proc(5), clear_refs.
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")

    def peak_memory_bytes(self) -> int:
        """Return the framework's peak allocated memory since `reset_peak_memory`; on a CPU, the
        peak resident set size of the process since then."""
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class GpuDevice:
    """The selected GPU; events are recorded in its current stream. `library` provides `Event`,
    `synchronize`, `reset_peak_memory_stats` and `max_memory_allocated` like torch.cuda."""

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
    """An accelerator whose events do not measure time: a thread polls each event and reads the
    host's clock within POLL_SECONDS of its completion. The caller does not wait."""

    step_clock: Literal["host", "device"] = "host"

    def __init__(self, library: Any, clock: Clock = time.perf_counter) -> None:
        super().__init__(library)
        self.clock = clock
        self.watcher = ThreadPoolExecutor(1)

    def record_event(self) -> Future[float]:
        event = self.library.Event()
        event.record()
        return self.watcher.submit(self._completed_at, event)

    def _completed_at(self, event: Any) -> float:
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


class Trainer(ABC):
    """One model with its optimizer on the device of one rank.

    Subclasses set `network`. On a CPU, calls return when their work is complete; on a GPU,
    `backward`, `update` and `zero_grad` only submit work, except that a loss scaler may wait to
    read an overflow.
    """

    variables: ClassVar[tuple[str, ...]] = ()
    """Environment variables stored with the results."""
    network: Any

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
    def update(self) -> None:
        """Apply one optimizer step, then drop the gradients."""

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

    @abstractmethod
    def predict(self, batch: Batch) -> tuple[Any, Any]:
        """Return the loss of a batch and the network's output, from a forward pass in training
        mode without gradients. Batch-norm statistics may change."""

    def evaluate(self, batch: Batch) -> tuple[float, float]:
        """Return the loss and the accuracy (top-1) on a batch."""
        loss, outputs = self.predict(batch)
        logits = outputs[0] if isinstance(outputs, tuple) else outputs
        predicted = self.array(logits.argmax(-1)).ravel()
        labels = self.array(batch[self.network.inputs]).ravel()
        counted = labels != model_of(self.config).ignored_label
        if not counted.any():
            raise ValueError("no row of this batch has a label")
        return float(loss), float((predicted == labels)[counted].mean())

    @abstractmethod
    def multiply_adds(self, batch: Batch) -> int:
        """Count the multiply-adds of the matrix products executed in one forward pass."""

    # Used by perfkit.core.worker.trace, which compares the work of frameworks.

    @abstractmethod
    def disable_dropout(self) -> None:
        """Disable dropout and leave the network in training mode."""

    @abstractmethod
    def named_parameters(self) -> Iterator[tuple[str, Any]]:
        """Yield the trainable parameters by name, as tensors of the framework."""

    @abstractmethod
    def named_gradients(self) -> Iterator[tuple[str, Any]]:
        """Yield the unscaled gradients by name, as tensors of the framework."""

    @abstractmethod
    def assign(self, name: str, array: np.ndarray) -> None:
        """Set a parameter to values with the framework's axes."""

    def array(self, tensor: Any) -> np.ndarray:
        """Return a tensor's values in host memory, without a copy where possible."""
        return np.asarray(tensor)

    def to_canonical(self, name: str, array: np.ndarray) -> np.ndarray:
        """Return a parameter's values with the axes of Weights."""
        return array

    def from_canonical(self, name: str, array: np.ndarray) -> np.ndarray:
        """The inverse of to_canonical."""
        return array

    def weights(self) -> Weights:
        """Return copies of the trainable parameters."""
        return self._copies(self.named_parameters())

    def gradients(self) -> Weights:
        """Return copies of the accumulated gradients."""
        return self._copies(self.named_gradients())

    def load_weights(self, weights: Mapping[str, np.ndarray]) -> None:
        """Replace the trainable parameters. Raises ValueError, before any change, if names or
        shapes differ."""
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

    # The effective training.

    @abstractmethod
    def computed_dtypes(self, batch: Batch) -> dict[str, int]:
        """Return dtype -> number of matrix products and convolutions, or of layers, computed
        in it. Does not change the training."""

    def place(self, tensor: Any) -> str:
        """Return the type of the tensor's device: `cpu`, `gpu`, or another."""
        return "cpu"

    def attention(self, batch: Batch) -> str | None:
        """Return the attention kernel; None for a network without attention. Does not change
        the training."""
        return "unfused" if model_of(self.config).sample == "sequence" else None

    @property
    def device(self) -> str:
        """Type of the device that holds the weights."""
        return "+".join(sorted({self.place(tensor) for _, tensor in self.named_parameters()}))

    def tf32(self) -> bool:
        """Return whether the factors of float32 products are rounded to TF32."""
        return False

    def threads(self) -> dict[str, int]:
        """Return thread pool -> number of threads."""
        from threadpoolctl import threadpool_info

        return {pool["prefix"]: pool["num_threads"] for pool in threadpool_info()}

    def strategy_outcomes(self) -> dict[str, Any]:
        """Return option of the distributed strategy -> its outcome."""
        return {}

    def settings(self) -> dict[str, str]:
        """Return tuning setting -> its value as the framework reports it."""
        return {}

    def effective(self, batch: Batch) -> dict[str, Any]:
        """Return the fields of results.Effective."""
        dtypes = self.computed_dtypes(batch)
        weights = {dtype_name(p.dtype) for _, p in self.named_parameters() if len(p.shape) > 1}
        places = {self.device, *map(self.place, batch)}
        return {
            "precision": effective_precision(dtypes, weights),
            "dtypes": dtypes,
            "tf32": self.tf32(),
            "attention": self.attention(batch),
            "loss_scaling": self.loss_scale,
            # Every layer that takes a batch from another device copies it and synchronizes.
            "device": "+".join(sorted(places)),
            "threads": self.threads(),
            "variables": {name: os.environ.get(name) for name in self.variables},
            "parameters": sum(math.prod(p.shape) for _, p in self.named_parameters()),
            "optimizer_settings": self.optimizer_settings.description,
            "strategy": self.strategy_outcomes(),
            "settings": self.settings(),
        }


class Workloads(Protocol):
    """Workloads of known size for perfkit.core.worker.peak. Each method returns a function that
    submits the work to the device, in the precision of the training."""

    def matmul(self, size: int) -> Callable[[], Any]:
        """Multiply two matrices of size x size."""

    def copy(self, size_bytes: int) -> Callable[[], Any]:
        """Copy `size_bytes` bytes into memory that is already allocated."""


class Backend(Protocol):
    """The module `perfkit.core.frameworks.<name>.backend`, which imports the framework."""

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

    def Trainer(self, config: Config) -> Trainer: ...

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
            source, result = batch, tuple(map(convert, batch))
        yield result


def named_threads(*names: str) -> dict[str, int]:
    """Return name -> number of threads of this process with that name."""
    threads = []
    for path in Path("/proc/self/task").glob("*/comm"):
        # The thread may end meanwhile.
        with suppress(OSError):
            threads.append(path.read_text().strip())
    return {name: threads.count(name) for name in names}


def rounds_to_tf32(compute_capability: tuple[int, int], *, allowed: bool = True) -> bool:
    """Return whether a GPU rounds float32 factors to TF32 if the framework has `allowed` it."""
    supported = compute_capability[0] >= TF32_SINCE
    return supported and allowed and os.environ.get("NVIDIA_TF32_OVERRIDE") != "0"
