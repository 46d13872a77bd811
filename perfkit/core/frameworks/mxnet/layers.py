"""The layers in MXNet."""

from typing import Any

import mxnet as mx
from mxnet.ndarray import NDArray

from perfkit.core.frameworks.functional import layers
from perfkit.core.frameworks.functional.layers import NORM_EPSILON, NORM_MOMENTUM

Symbol = Any


class Forward(layers.Forward):
    """Builds a graph in which parameters are named variables; the loss is computed outside the
    graph."""

    mean = staticmethod(mx.nd.mean)
    relu = staticmethod(mx.sym.relu)

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
    ) -> Symbol:
        weight = self.parameter(f"{name}.weight")
        sizes = _window(size, stride, size // 2)
        return mx.sym.Convolution(x, weight, no_bias=True, num_filter=outputs, **sizes)

    def batch_norm(self, name: str, x: Symbol, _channels: int) -> Symbol:
        mean = self.parameter(f"{name}._mean")
        variance = self.parameter(f"{name}._variance")
        settings: dict[str, Any] = {"eps": NORM_EPSILON, "momentum": NORM_MOMENTUM}
        parameters = *self.norm(name), mean, variance
        return mx.sym.BatchNorm(x, *parameters, fix_gamma=False, **settings)

    def dense(self, name: str, x: Symbol, *sizes: Any, bias: bool = True) -> Symbol:
        _inputs, outputs, _deviation = sizes
        assert bias, "no network that MXNet trains has a dense layer without a bias"
        return mx.sym.FullyConnected(x, *self.norm(name), num_hidden=outputs)

    def max_pool(self, x: Symbol, size: int, stride: int, padding: int) -> Symbol:
        return mx.sym.Pooling(x, pool_type="max", **_window(size, stride, padding))

    def spatial_mean(self, x: Symbol) -> Symbol:
        return mx.sym.flatten(mx.sym.Pooling(x, pool_type="avg", global_pool=True))

    def cross_entropies(self, logits: NDArray, labels: NDArray) -> NDArray:
        return -mx.nd.pick(mx.nd.log_softmax(logits), labels.reshape(-1))


def _window(size: int, stride: int, padding: int) -> dict[str, tuple[int, int]]:
    """Return the arguments of a square window that moves over height and width."""
    return {"kernel": (size, size), "stride": (stride, stride), "pad": (padding, padding)}
