"""The frameworks as the timer sees them. None is imported here: the script has."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import Any

from perfkit.timing.devices import CpuDevice, Device, GpuDevice, HostTimedDevice
from perfkit.timing.failure import ConfigMismatchError
from perfkit.timing.watched import WatchedDevice, WatchedGpu

Workload = Callable[[], Any]
COPIED_ROWS = 256
"""Rows of the matrix that TensorFlow copies."""
DTYPES = {"fp32": "float32", "bf16": "bfloat16", "amp": "float16"}
"""Precision -> dtype of the matrices of a product."""


class Framework(ABC):
    """A framework that a script has imported as `module`, and its workloads of known size for
    perfkit.timing.peak: functions that submit a product of square matrices in the precision
    of the training, or a copy into memory that is already allocated."""

    name: str
    """its name in parameters, and that of its module"""
    display_name: str

    def __init__(self, module: Any) -> None:
        self.module = module

    @property
    def version(self) -> str | None:
        version = getattr(self.module, "__version__", None)
        return None if version is None else str(version)

    @abstractmethod
    def device_type(self, loss: Any, result: Any) -> str:
        """Return the type of the device that trains, such as cpu or gpu, given the arguments of
        a script's first step."""

    def device_name(self, _device_type: str) -> str | None:
        return None

    @abstractmethod
    def open_device(self, device_type: str) -> Device:
        """Return the timer's view of the device. Raises ConfigMismatchError if its work can't
        be timed."""

    def wait(self) -> None:
        """Wait until the devices have completed all submitted work."""
        return

    def readable(self, loss: Any) -> Any:
        """Return a loss as a number that can be read at once."""
        return loss

    def kept(self, loss: Any) -> Any:
        """Return a loss on a device as it is now, to be read after later steps."""
        return loss

    def watched(self, _loss: Any, _result: Any) -> Any:
        """Return what a device without events of its own has to wait for."""
        return None

    @abstractmethod
    def matmul(self, size: int, precision: str) -> Workload:
        """Return a function that multiplies two matrices of size x size. Raises ValueError for
        a precision, one of perfkit.timing.peak.PRECISIONS, that can't be measured."""

    @abstractmethod
    def copy(self, size_bytes: int) -> Workload:
        """Return a function that copies `size_bytes` bytes."""

    def not_timed(self, device_type: str) -> ConfigMismatchError:
        return ConfigMismatchError(
            f"the script trains with {self.display_name} on the device {device_type}, whose "
            "work perfkit.StepTimer can't time"
        )


class Torch(Framework):
    name = "torch"
    display_name = "PyTorch"

    def device_type(self, loss: Any, _result: Any) -> str:
        """A loss may have been copied to the host, so allocated GPU memory counts too. Raises
        ConfigMismatchError if another GPU than the selected one trains."""
        kind = str(loss.device.type) if hasattr(loss, "device") else "cpu"
        cuda = self.module.cuda
        if not cuda.is_initialized():
            return kind
        used = [gpu for gpu in range(cuda.device_count()) if cuda.memory_allocated(gpu) > 0]
        if kind == "cuda":
            used = [loss.device.index]
        selected = cuda.current_device()
        if used and selected not in used:
            raise ConfigMismatchError(
                f"the script trains on the GPU {used[0]}, but has selected {selected}, whose "
                'events are timed: call torch.cuda.set_device(int(os.environ["LOCAL_RANK"])) '
                "before the training"
            )
        return "gpu" if used else kind

    def device_name(self, device_type: str) -> str | None:
        return str(self.module.cuda.get_device_name()) if device_type == "gpu" else None

    def open_device(self, device_type: str) -> Device:
        if device_type == "gpu":
            return GpuDevice(self.module.cuda)
        if device_type == "cpu":
            return CpuDevice()
        raise self.not_timed(device_type)

    def wait(self) -> None:
        if self.module.cuda.is_initialized():
            self.module.cuda.synchronize()

    def readable(self, loss: Any) -> Any:
        # PyTorch warns if a tensor with a gradient becomes a number.
        return loss.detach() if hasattr(loss, "detach") else loss

    def kept(self, loss: Any) -> Any:
        # CUDA graphs overwrite the outputs of the step before.
        return loss.detach().clone() if hasattr(loss, "detach") else loss

    def matmul(self, size: int, precision: str) -> Workload:
        torch = self.module
        device = "cuda" if torch.cuda.is_initialized() else "cpu"
        dtype = getattr(torch, DTYPES[precision])
        a = torch.randn(size, size, device=device).to(dtype)
        b = torch.randn(size, size, device=device).to(dtype)
        return lambda: torch.mm(a, b)

    def copy(self, size_bytes: int) -> Workload:
        torch = self.module
        device = "cuda" if torch.cuda.is_initialized() else "cpu"
        source = torch.zeros(size_bytes, dtype=torch.int8, device=device)
        target = torch.zeros_like(source)
        return lambda: target.copy_(source)


class Paddle(Framework):
    name = "paddle"
    display_name = "Paddle"

    def device_type(self, _loss: Any, _result: Any) -> str:
        kind, _colon, _number = str(self.module.get_device()).partition(":")
        return kind

    def device_name(self, device_type: str) -> str | None:
        if device_type != "gpu":
            return None
        # A plugin for other GPUs than NVIDIA's has no name.
        with suppress(ValueError):
            return str(self.module.device.cuda.get_device_name())
        return None

    def open_device(self, device_type: str) -> Device:
        if device_type == "cpu":
            return CpuDevice()
        return paddle_accelerator(self.module, device_type)

    def wait(self) -> None:
        if self.device_type(None, None) != "cpu":
            self.module.device.synchronize()

    def kept(self, loss: Any) -> Any:
        return loss.detach().clone() if hasattr(loss, "detach") else loss

    def matmul(self, size: int, precision: str) -> Workload:
        paddle = self.module
        a = paddle.randn([size, size]).astype(DTYPES[precision])
        b = paddle.randn([size, size]).astype(DTYPES[precision])
        return lambda: paddle.matmul(a, b)

    def copy(self, size_bytes: int) -> Workload:
        paddle = self.module
        source = paddle.zeros([size_bytes], "int8")
        target = paddle.empty_like(source)
        return lambda: paddle.assign(source, target)


def paddle_accelerator(paddle: Any, device_type: str) -> Device:
    """Return the timer's view of Paddle's selected device, which is no CPU."""
    core = paddle.base.core
    allocated = "Allocated", paddle.framework._current_expected_place_().get_device_id()
    library = SimpleNamespace(
        Event=paddle.device.Event,
        synchronize=paddle.device.synchronize,
        # Available under these names in all versions since 3.0.
        reset_peak_memory_stats=partial(core.device_memory_stat_reset_peak_value, *allocated),
        max_memory_allocated=partial(core.device_memory_stat_peak_value, *allocated),
    )
    # In Paddle 3.3, events of custom devices do not measure time.
    measures_time = hasattr(paddle.device.Event().event_base, "elapsed_time")
    if device_type == "gpu" or measures_time:
        return GpuDevice(library)
    return HostTimedDevice(library)


class Jax(Framework):
    """Its arrays are watched. `result` may be a tree of arrays that the next step gets as
    donated memory, which can't be watched, so that a copy of the smallest is; an array that is
    passed by itself must not be donated, and is watched as it is."""

    name = "jax"
    display_name = "JAX"

    def device_type(self, loss: Any, result: Any) -> str:
        (device,) = {one.platform for one in self._smallest(loss, result).devices()}
        return str(device)

    def device_name(self, device_type: str) -> str | None:
        if device_type == "cpu":
            return None
        return str(self.module.local_devices()[0].device_kind)

    def open_device(self, device_type: str) -> Device:
        if device_type == "gpu":
            return WatchedGpu(self.module)
        if device_type == "cpu":
            return WatchedDevice(self.module)
        raise self.not_timed(device_type)

    def wait(self) -> None:
        self.module.block_until_ready(self.module.live_arrays())

    def watched(self, loss: Any, result: Any) -> Any:
        passed = loss if result is None else result
        if isinstance(passed, self.module.Array):
            return passed
        return self.module.numpy.copy(self._smallest(loss, result).addressable_data(0))

    def _smallest(self, loss: Any, result: Any) -> Any:
        """Return the smallest array of the result; without a result, the loss."""
        arrays = self._arrays(loss if result is None else result)
        if not arrays:
            raise TypeError(
                "timer.step has no array to wait for, because JAX computes asynchronously: "
                "pass the loss as an array, or an array that the update of the parameters "
                "returns, timer.step(loss, result=state)"
            )
        return min(arrays, key=lambda array: int(array.size))

    def _arrays(self, tree: Any) -> list[Any]:
        jax = self.module
        arrays = []
        leaves: Iterable[Any] = jax.tree.leaves(tree)
        for leaf in leaves:
            is_array = isinstance(leaf, jax.Array)
            if is_array and not jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key):
                arrays.append(leaf)
        return arrays

    def matmul(self, size: int, precision: str) -> Workload:
        """See Framework. A GPU completes calls in their order; on a CPU, where they need not,
        each product waits for itself."""
        jax, numpy = self.module, self.module.numpy
        a_key, b_key = jax.random.split(jax.random.key(0))
        a = jax.random.normal(a_key, (size, size)).astype(DTYPES[precision])
        b = jax.random.normal(b_key, (size, size)).astype(DTYPES[precision])
        multiply = jax.jit(numpy.matmul)
        waits = jax.default_backend() == "cpu"
        # Kept, so that a device can wait for it.
        product = [b]

        def call() -> Any:
            product[0] = multiply(a, b)
            return product[0].block_until_ready() if waits else product[0]

        return call

    def copy(self, size_bytes: int) -> Workload:
        jax, numpy = self.module, self.module.numpy
        source = numpy.zeros(size_bytes, "int8")
        # Each copy reuses the memory of the previous copy, which is donated.
        target = [numpy.ones(size_bytes, "int8")]
        assign = jax.jit(lambda _target, source: source, donate_argnums=0, keep_unused=True)

        def call() -> None:
            target[0] = assign(target[0], source)

        return call


class TensorFlow(Framework):
    """On a CPU, its calls return when their work is complete."""

    name = "tensorflow"
    display_name = "TensorFlow"

    def device_type(self, loss: Any, _result: Any) -> str:
        device = str(getattr(loss, "device", ""))
        if "GPU" in device or self.module.config.list_logical_devices("GPU"):
            return "gpu"
        return "cpu"

    def open_device(self, device_type: str) -> Device:
        if device_type == "cpu":
            return CpuDevice()
        raise self.not_timed(device_type)

    def matmul(self, size: int, precision: str) -> Workload:
        tf = self.module
        a = tf.cast(tf.random.normal((size, size)), DTYPES[precision])
        b = tf.cast(tf.random.normal((size, size)), DTYPES[precision])
        return lambda: tf.matmul(a, b)

    def copy(self, size_bytes: int) -> Workload:
        """See Framework. A variable assigned as a whole would share the source's memory."""
        tf = self.module
        rows = tf.range(COPIED_ROWS)
        source = tf.zeros((COPIED_ROWS, size_bytes // COPIED_ROWS), tf.int8)
        target = tf.Variable(tf.ones_like(source))
        return lambda: target.scatter_update(tf.IndexedSlices(source, rows))


class MXNet(Framework):
    """Computes asynchronously on a CPU, without events: the script calls `mxnet.nd.waitall()`
    before it ends a step."""

    name = "mxnet"
    display_name = "MXNet"

    def device_type(self, loss: Any, _result: Any) -> str:
        context = getattr(loss, "context", None)
        return str(context.device_type) if context else "cpu"

    def open_device(self, device_type: str) -> Device:
        if device_type == "cpu":
            return CpuDevice()
        raise self.not_timed(device_type)

    def wait(self) -> None:
        self.module.nd.waitall()

    def readable(self, loss: Any) -> Any:
        return loss.asscalar() if hasattr(loss, "asscalar") else loss

    def matmul(self, size: int, precision: str) -> Workload:
        if precision != "fp32":
            raise ValueError("MXNet has no product on a CPU in this precision")
        nd = self.module.nd
        a = nd.random.normal(shape=(size, size))
        b = nd.random.normal(shape=(size, size))
        return lambda: nd.dot(a, b).wait_to_read()

    def copy(self, size_bytes: int) -> Workload:
        nd = self.module.nd
        source = nd.zeros(size_bytes, dtype="int8")
        target = nd.ones(size_bytes, dtype="int8")
        return lambda: source.copyto(target).wait_to_read()


FRAMEWORKS: dict[str, type[Framework]] = {
    framework.name: framework for framework in (Torch, Paddle, Jax, TensorFlow, MXNet)
}


OF_SCRIPTS = tuple(name for name in FRAMEWORKS if name != MXNet.name)
"""Frameworks of users' scripts: nothing would tell that one of MXNet does not wait."""


def imported_framework(name: str) -> Framework:
    """Return the framework that a script was started with. Raises ConfigMismatchError if the
    script has not imported it."""
    if name not in sys.modules:
        raise ConfigMismatchError(
            f"framework={name} was requested, but the script has not imported {name}: name "
            "the framework that it trains with, -p framework NAME"
        )
    return FRAMEWORKS[name](sys.modules[name])
