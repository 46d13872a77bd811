"""The layers of the images' networks in MXNet: a forward pass makes a graph of symbols."""

from typing import Any

import mxnet as mx
import numpy as np

from perfkit.frameworks.functional import layers
from perfkit.frameworks.functional.layers import MOMENTUM, NORM_EPSILON, Fill

Symbol = Any
"""Of MXNet."""


class Forward(layers.Forward):
    """Parameters are variables, of which the graph has the names alone. The loss is computed
    outside of the graph. Without `drops` nothing is dropped."""

    mean = staticmethod(mx.nd.mean)
    relu = staticmethod(mx.sym.relu)
    flatten = staticmethod(mx.sym.flatten)

    def __init__(self, *values: Any, drops: bool = True) -> None:
        super().__init__(*values)
        self.drops = drops

    def parameter(self, name: str, fill: Fill, *shape: int) -> Symbol:
        self.declared[name] = shape, fill
        return mx.sym.var(name)

    def statistic(self, name: str, first: float, channels: int) -> Symbol:
        self.declared_statistics[name] = np.full(channels, first, np.float32)
        return mx.sym.var(name)

    def convolution(
        self,
        name: str,
        x: Symbol,
        inputs: int,
        outputs: int,
        size: int,
        stride: int = 1,
        *,
        bias: bool = False,
    ) -> Symbol:
        return mx.sym.Convolution(
            x,
            self.kernel(name, inputs, outputs, size),
            *([self.bias(name, outputs)] if bias else []),
            no_bias=not bias,
            num_filter=outputs,
            kernel=(size, size),
            stride=(stride, stride),
            pad=(size // 2, size // 2),
        )

    def batch_norm(self, name: str, x: Symbol, channels: int) -> Symbol:
        weight, bias = self.norm(name, channels)
        parts = {"_mean": 0.0, "_variance": 1.0}
        kept = [self.statistic(f"{name}.{part}", parts[part], channels) for part in parts]
        settings: dict[str, Any] = {"eps": NORM_EPSILON, "momentum": MOMENTUM}
        return mx.sym.BatchNorm(x, weight, bias, *kept, fix_gamma=False, **settings)

    def dense(self, name: str, x: Symbol, inputs: int, outputs: int, fill: Fill) -> Symbol:
        weight = self.parameter(f"{name}.weight", fill, inputs, outputs)
        return mx.sym.FullyConnected(x, weight, self.bias(name, outputs), num_hidden=outputs)

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
