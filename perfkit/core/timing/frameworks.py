"""The frameworks of scripts as the timer sees them. None is imported here: the script has."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import Any

from perfkit.core.timing.classification import ConfigMismatchError
from perfkit.core.timing.devices import CpuDevice, Device, GpuDevice, HostTimedDevice
from perfkit.core.timing.watched import WatchedDevice, WatchedGpu


class ScriptFramework(ABC):
    """A framework that a script has imported as `module`."""

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

    def not_timed(self, device_type: str) -> ConfigMismatchError:
        return ConfigMismatchError(
            f"the script trains with {self.display_name} on the device {device_type}, whose "
            "work perfkit.StepTimer can't time"
        )


class Torch(ScriptFramework):
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


class Paddle(ScriptFramework):
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


class Jax(ScriptFramework):
    """Its arrays are watched. `result` may be a tree of arrays that the next step gets as
    donated memory, which can't be watched, so that a copy of the smallest is."""

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
        smallest = self._smallest(loss, result)
        if smallest is loss:
            return loss
        return self.module.numpy.copy(smallest.addressable_data(0))

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


class TensorFlow(ScriptFramework):
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


FRAMEWORKS: dict[str, type[ScriptFramework]] = {
    framework.name: framework for framework in (Torch, Paddle, Jax, TensorFlow)
}


def imported_framework(name: str) -> ScriptFramework:
    """Return the framework that a script was started with. Raises ConfigMismatchError if the
    script has not imported it, or if the timer does not know it."""
    if name not in FRAMEWORKS:
        raise ConfigMismatchError(
            f"perfkit.StepTimer can't time {name}; it times {', '.join(FRAMEWORKS)}"
        )
    if name not in sys.modules:
        raise ConfigMismatchError(
            f"framework={name} was requested, but the script has not imported {name}: name "
            "the framework that it trains with, -p framework NAME"
        )
    return FRAMEWORKS[name](sys.modules[name])
