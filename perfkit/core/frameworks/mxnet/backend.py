"""The MXNet backend: Gluon on a CPU, in one process. The network is a SymbolBlock, hybridized
with static memory and static shapes.

MXNet runs asynchronously, also on a CPU, so all timed functions here wait for their results.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import mxnet as mx
import numpy as np

from perfkit.core.config import Config
from perfkit.core.frameworks import base
from perfkit.core.frameworks.base import CpuDevice, Device, dtype_name
from perfkit.core.frameworks.functional import layers
from perfkit.core.frameworks.functional import trainer as functional
from perfkit.core.frameworks.functional.layers import NORM_EPSILON, NORM_MOMENTUM
from perfkit.core.models import MOMENTUM

Symbol = Any


class Forward(layers.Forward):
    """Builds a graph in which parameters are named variables; the loss is computed outside the
    graph. Without `drops`, dropout is disabled."""

    mean = staticmethod(mx.nd.mean)
    relu = staticmethod(mx.sym.relu)
    flatten = staticmethod(mx.sym.flatten)

    def __init__(self, *values: Any, drops: bool = True) -> None:
        super().__init__(*values)
        self.drops = drops

    def parameter(self, name: str) -> Symbol:
        return mx.sym.var(name)

    def convolution(
        self,
        name: str,
        x: Symbol,
        _inputs: int,
        outputs: int,
        size: int,
        stride: int = 1,
        *,
        bias: bool = False,
    ) -> Symbol:
        return mx.sym.Convolution(
            x,
            self.parameter(f"{name}.weight"),
            *([self.parameter(f"{name}.bias")] if bias else []),
            no_bias=not bias,
            num_filter=outputs,
            kernel=(size, size),
            stride=(stride, stride),
            pad=(size // 2, size // 2),
        )

    def batch_norm(self, name: str, x: Symbol, _channels: int) -> Symbol:
        statistics = (self.parameter(f"{name}.{part}") for part in ("_mean", "_variance"))
        settings: dict[str, Any] = {"eps": NORM_EPSILON, "momentum": NORM_MOMENTUM}
        return mx.sym.BatchNorm(x, *self.norm(name), *statistics, fix_gamma=False, **settings)

    def dense(
        self, name: str, x: Symbol, _inputs: int, outputs: int, _deviation: Any
    ) -> Symbol:
        return mx.sym.FullyConnected(x, *self.norm(name), num_hidden=outputs)

    def dropout(self, x: Symbol, rate: float) -> Symbol:
        return mx.sym.Dropout(x, p=rate) if self.drops else x

    def max_pool(self, x: Symbol, size: int, stride: int, padding: int = 0) -> Symbol:
        sizes = {"kernel": (size, size), "stride": (stride, stride), "pad": (padding, padding)}
        return mx.sym.Pooling(x, pool_type="max", **sizes)

    def spatial_mean(self, x: Symbol) -> Symbol:
        return mx.sym.flatten(mx.sym.Pooling(x, pool_type="avg", global_pool=True))

    def average_to(self, x: Symbol, count: int) -> Symbol:
        return mx.sym.contrib.AdaptiveAvgPooling2D(x, output_size=count)

    def cross_entropies(self, logits: mx.nd.NDArray, labels: mx.nd.NDArray) -> mx.nd.NDArray:
        return -mx.nd.pick(mx.nd.log_softmax(logits), labels.reshape(-1))


PRODUCTS = ("Convolution", "FullyConnected")
"""MXNet's matrix-product operators."""

Batch = tuple[mx.nd.NDArray, ...]
largest_of_ranks = functional.largest_of_ranks


def open_device(config: Config) -> Device:
    mx.random.seed(config.seed)
    return CpuDevice()


def enable_float64() -> None:
    Forward.wide = "float64"


class Trainer(functional.Trainer):
    """Model, loss and optimizer; `values` holds the parameters' own arrays, not copies."""

    variables = ("OMP_NUM_THREADS", "MXNET_SUBGRAPH_BACKEND", "MXNET_CPU_WORKER_NTHREADS")

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.build(drops=True)

    @staticmethod
    def hold(array: np.ndarray) -> mx.nd.NDArray:
        return mx.nd.array(array, dtype=Forward.wide)

    def build(self, *, drops: bool) -> None:
        """Recreate the block and its optimizer, keeping the values."""
        images = mx.sym.var("images", dtype=Forward.wide)
        self.run = Forward(Forward.wide, self.layout, drops=drops)
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
        settings = self.optimizer_settings
        options = {"learning_rate": settings.learning_rate, "momentum": MOMENTUM}
        options["wd"] = settings.weight_decay
        self.optimizer = mx.gluon.Trainer(self.trained, "sgd", options)

    def _forward(self, batch: Batch) -> tuple[Any, Any]:
        logits = self.block(batch[0])
        return logits, self.network.loss(self.run, logits, *batch[1:])

    def backward(self, batch: Batch, *, sync_gradients: bool = True) -> np.floating[Any]:
        with mx.autograd.record():
            _logits, loss = self._forward(batch)
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

    def predict(self, batch: Batch) -> tuple[mx.nd.NDArray, Any]:
        with mx.autograd.train_mode():
            logits, loss = self._forward(batch)
        return loss.asscalar(), logits

    def assign(self, name: str, array: np.ndarray) -> None:
        self.values[name][:] = array

    def array(self, tensor: mx.nd.NDArray) -> np.ndarray:
        return tensor.asnumpy()

    def to_canonical(self, _name: str, array: np.ndarray) -> np.ndarray:
        """Transpose weights of dense layers, which MXNet stores as outputs x inputs."""
        return array.T if array.ndim == 2 else array

    from_canonical = to_canonical

    def disable_dropout(self) -> None:
        self.build(drops=False)

    def _products(self) -> Iterator[tuple[str, str]]:
        """Yield the output name and weight name of each matrix-product operator."""
        nodes = json.loads(self.logits.tojson())["nodes"]
        for node in nodes:
            if node["op"] in PRODUCTS:
                yield f"{node['name']}_output", nodes[node["inputs"][1][0]]["name"]

    def multiply_adds(self, batch: Batch) -> int:
        graph = self.logits.get_internals()
        _inputs, outputs, _statistics = graph.infer_shape(images=batch[0].shape)
        shapes = dict(zip(graph.list_outputs(), outputs, strict=True))
        return sum(
            prod(shapes[output]) * prod(shapes[weight][1:])
            for output, weight in self._products()
        )

    def computed_dtypes(self, batch: Batch) -> dict[str, int]:
        """See base.Trainer: inferred output dtypes of convolutions and dense layers."""
        graph = self.logits.get_internals()
        _inputs, outputs, _statistics = graph.infer_type(images=batch[0].dtype)
        dtypes = dict(zip(graph.list_outputs(), outputs, strict=True))
        return dict(Counter(dtype_name(dtypes[output]) for output, _weight in self._products()))


class Workloads:
    def __init__(self, _config: Config) -> None:
        pass

    def matmul(self, size: int) -> Any:
        a, b = (mx.nd.random.normal(shape=(size, size)) for _ in range(2))
        return lambda: mx.nd.dot(a, b).wait_to_read()

    def copy(self, size_bytes: int) -> Any:
        source = mx.nd.zeros(size_bytes, dtype="int8")
        target = mx.nd.ones(size_bytes, dtype="int8")
        return lambda: source.copyto(target).wait_to_read()


def tensors(batches: Iterator[tuple[Any, ...]], _config: Config) -> Iterator[Batch]:
    """See Backend; always copies."""
    return base.converted(batches, _as_tensor)


def _as_tensor(array: Any) -> mx.nd.NDArray:
    if isinstance(array, mx.nd.NDArray):
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
