"""The MXNet backend: Gluon on a CPU, in one process. The network is a SymbolBlock, hybridized
with static memory and static shapes.

MXNet runs asynchronously, also on a CPU, so all timed functions here wait for their results.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import mxnet as mx
import numpy as np
from mxnet.ndarray import NDArray

from perfkit.core.config import Config
from perfkit.core.frameworks.functional import trainer as functional
from perfkit.core.frameworks.interface import converted
from perfkit.core.frameworks.mxnet import inspector
from perfkit.core.frameworks.mxnet.layers import Forward
from perfkit.timing.devices import CpuDevice, Device
from perfkit.training.models import MOMENTUM

Batch = tuple[NDArray, ...]
Inspector = inspector.Inspector
largest_of_ranks = functional.largest_of_ranks


def open_device(config: Config) -> Device:
    mx.random.seed(config.seed)
    return CpuDevice()


def enable_float64() -> None:
    Forward.wide = "float64"


class Trainer(functional.Trainer):
    """Model, loss and optimizer; `values` holds the parameters' own arrays, not copies."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        images = mx.sym.var("images", dtype=Forward.wide)
        self.run = Forward(Forward.wide, self.layout)
        self.logits = self.network(self.run, images)
        self.block = mx.gluon.SymbolBlock(self.logits, [images])
        self.block.cast(Forward.wide)
        parameters = self.block.collect_params()
        for name, value in (self.values | self.statistics).items():
            parameters[name].shape = value.shape
            if name in self.values and self.accumulate > 1:
                parameters[name].grad_req = "add"
            parameters[name].initialize()
            parameters[name].set_data(value)
        self.block.hybridize(static_alloc=True, static_shape=True)
        self.trained = [parameters[name] for name in self.values]
        self.values = {parameter.name: parameter.data() for parameter in self.trained}
        options = {
            "learning_rate": self.optimizer_settings.learning_rate,
            "momentum": MOMENTUM,
            "wd": self.optimizer_settings.weight_decay,
        }
        self.optimizer = mx.gluon.Trainer(self.trained, "sgd", options)

    @staticmethod
    def from_canonical(array: np.ndarray) -> np.ndarray:
        """Transpose weights of dense layers, which MXNet stores as outputs x inputs."""
        return array.T if array.ndim == 2 else array

    @staticmethod
    def hold(array: np.ndarray) -> NDArray:
        return mx.nd.array(array, dtype=Forward.wide)

    def forward(self, batch: Batch) -> tuple[Any, Any]:
        """Return logits and loss."""
        logits = self.block(batch[0])
        return logits, self.network.loss(self.run, logits, *batch[1:])

    def backward(self, batch: Batch, *, sync_gradients: bool = True) -> np.floating[Any]:
        with mx.autograd.record():
            _logits, loss = self.forward(batch)
            loss = loss / self.accumulate
        loss.backward()
        self.gathered = {parameter.name: parameter.grad() for parameter in self.trained}
        mx.nd.waitall()
        return loss.asscalar()

    def update(self) -> None:
        self.optimizer.step(1)
        self.zero_grad()
        mx.nd.waitall()

    def zero_grad(self) -> None:
        super().zero_grad()
        if self.accumulate > 1:
            for parameter in self.trained:
                parameter.zero_grad()


class Workloads:
    def __init__(self, _config: Config) -> None:
        pass

    def matmul(self, size: int) -> Any:
        a = mx.nd.random.normal(shape=(size, size))
        b = mx.nd.random.normal(shape=(size, size))
        return lambda: mx.nd.dot(a, b).wait_to_read()

    def copy(self, size_bytes: int) -> Any:
        source = mx.nd.zeros(size_bytes, dtype="int8")
        target = mx.nd.ones(size_bytes, dtype="int8")
        return lambda: source.copyto(target).wait_to_read()


def tensors(batches: Iterator[Batch], _config: Config) -> Iterator[Batch]:
    """See Backend; always copies."""
    return converted(batches, _as_tensor)


def _as_tensor(array: Any) -> NDArray:
    if isinstance(array, NDArray):
        # DataLoader's arrays lie in memory shared with its processes.
        return array.as_in_context(mx.cpu())
    view = np.from_dlpack(array)
    tensor = mx.nd.array(view, dtype=view.dtype)
    tensor.wait_to_read()
    return tensor


def data_loader(
    samples: Any, indices: Iterator[Sequence[Any]], processes: int
) -> Iterator[Batch]:
    loader = mx.gluon.data.DataLoader(samples, batch_sampler=indices, num_workers=processes)
    return map(tuple, loader)
