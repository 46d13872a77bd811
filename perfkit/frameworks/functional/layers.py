"""What the networks are made of: a forward pass whose layers name and declare their parameters,
a flat dict of arrays. A framework's subclass has the operations.

Kernels of convolutions are height x width x inputs x outputs, all else as perfkit.frameworks
.base.Weights has it.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

import numpy as np

NORM_MOMENTUM = 0.9
"""The share that running statistics keep of themselves, as Paddle's batch norm has it."""
NORM_EPSILON = 1e-5

Array = Any
Fill = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]
"""The first values of a parameter of that shape."""


def constant(value: float) -> Fill:
    return lambda _random, shape: np.full(shape, value, np.float32)


def normal(deviation: float) -> Fill:
    return lambda random, shape: (
        random.standard_normal(shape, np.float32) * np.float32(deviation)
    )


def uniform(limit: float) -> Fill:
    return lambda random, shape: (random.random(shape, np.float32) * 2 - 1) * np.float32(limit)


class Forward:
    """One forward pass: the parameters that its layers read, and the statistics that it leaves.

    `dtype` is that of the factors of convolutions, dense layers and attention, as a framework's
    autocast has it; norms, softmax and losses compute in `wide`, the parameters' dtype, and
    norms give back the dtype that they get. Without `parameters`, the pass is only traced and
    records what is declared in it: a parameter's canonical shape and what fills it at first,
    the first values of a statistic.
    """

    wide: Any = "float32"
    """Of all passes; float64 once that is enabled."""
    cast: ClassVar[Callable[..., Array]]
    concat: ClassVar[Callable[..., Array]]
    gelu: ClassVar[Callable[..., Array]]
    maximum: ClassVar[Callable[..., Array]]
    mean: ClassVar[Callable[..., Array]]
    relu: ClassVar[Callable[..., Array]]
    reshape: ClassVar[Callable[..., Array]]
    rsqrt: ClassVar[Callable[..., Array]]
    softmax: ClassVar[Callable[..., Array]]
    split: ClassVar[Callable[..., Array]]
    sum: ClassVar[Callable[..., Array]]
    tanh: ClassVar[Callable[..., Array]]
    transpose: ClassVar[Callable[..., Array]]
    zeros: ClassVar[Callable[..., Array]]

    def __init__(
        self,
        dtype: Any,
        layout: str = "NHWC",
        parameters: Mapping[str, Array] | None = None,
        statistics: Mapping[str, Array] | None = None,
    ) -> None:
        self.dtype, self.layout = dtype, layout
        self.parameters, self.before = parameters, statistics or {}
        self.statistics: dict[str, Array] = {}
        self.declared: dict[str, tuple[tuple[int, ...], Fill]] = {}
        self.declared_statistics: dict[str, np.ndarray] = {}
        self.spatial = tuple(layout.index(axis) for axis in "HW") if "H" in layout else ()

    def parameter(self, name: str, fill: Fill, *shape: int) -> Array:
        """A trainable parameter of this canonical shape."""
        if self.parameters is not None:
            return self.parameters[name]
        self.declared[name] = shape, fill
        own = (*shape[2:], shape[1], shape[0]) if len(shape) == 4 else shape
        return self.zeros(own, self.wide)

    def statistic(self, name: str, first: float, channels: int) -> Array:
        """A value of each channel that is not trained."""
        if self.parameters is not None:
            return self.before[name]
        self.declared_statistics[name] = np.full(channels, first, np.float32)
        return self.zeros((channels,), self.wide)

    # The operations that are no function of the same name in every framework. One that trains
    # no sequences needs those of images alone.

    def convolve(self, x: Array, kernel: Array, size: int, stride: int) -> Array:
        """Padded so that stride 1 keeps the size."""

    def max_pool(self, x: Array, size: int, stride: int, padding: int = 0) -> Array:
        """The largest of each place's size x size; the first of equal ones has the gradient."""

    def dropout(self, x: Array, rate: float) -> Array:
        """Each value is 0 with this probability; the mean stays."""

    def product(self, a: Array, b: Array, *, transposed: bool = False) -> Array:
        """Of matrices in the last two axes of both, or of all rows of `a` with a matrix `b`;
        `transposed`: with the last two axes of `b` exchanged."""

    def rows(self, table: Array, indices: Array) -> Array:
        """The rows of a table at these indices, of any shape."""

    def rows_of_each(self, x: Array, positions: Array) -> Array:
        """Of x of batch x length x width, the positions, batch x P, of each."""

    def cross_entropies(self, logits: Array, labels: Array) -> Array:
        """Of rows of logits, each with its label, labels having any shape; in `wide`."""

    # Layers.

    def kernel(self, name: str, inputs: int, outputs: int, size: int) -> Array:
        """The weight of a convolution. First values are normal, by He et al., Delving deep into
        rectifiers, 2015."""
        fill = normal((2 / (inputs * size**2)) ** 0.5)
        return self.parameter(f"{name}.weight", fill, outputs, inputs, size, size)

    def bias(self, name: str, width: int) -> Array:
        return self.parameter(f"{name}.bias", constant(0.0), width)

    def convolution(
        self,
        name: str,
        x: Array,
        inputs: int,
        outputs: int,
        size: int,
        stride: int = 1,
        *,
        bias: bool = False,
    ) -> Array:
        kernel = self.cast(self.kernel(name, inputs, outputs, size), self.dtype)
        y = self.convolve(self.cast(x, self.dtype), kernel, size, stride)
        return self.add_bias(y, self.bias(name, outputs)) if bias else y

    def along(self, channels: Array) -> Array:
        """A value for each channel, ready to be used with activations."""
        return channels[:, None, None] if self.layout == "NCHW" else channels

    def add(self, x: Array, y: Array) -> Array:
        """The sum in the dtype of x."""
        return x + self.cast(y, x.dtype)

    def add_bias(self, x: Array, bias: Array) -> Array:
        """The sum of activations, images or rows, and a value for each channel."""
        return self.add(x, self.along(bias) if len(x.shape) == 4 else bias)

    def norm(self, name: str, width: int) -> tuple[Array, Array]:
        """The weight and the bias of a norm."""
        weight = self.parameter(f"{name}.weight", constant(1.0), width)
        return weight, self.bias(name, width)

    def batch_norm(self, name: str, x: Array, channels: int) -> Array:
        wide = self.cast(x, self.wide)
        axes = (0, *self.spatial)
        mean = self.mean(wide, axis=axes)
        variance = self.mean((wide - self.along(mean)) ** 2, axis=axes)
        self.keep_statistics(name, mean, variance, channels)
        weight, bias = self.norm(name, channels)
        scale = weight * self.rsqrt(variance + NORM_EPSILON)
        offset = bias - mean * scale
        return self.cast(wide * self.along(scale) + self.along(offset), x.dtype)

    def keep_statistics(self, name: str, mean: Array, variance: Array, channels: int) -> None:
        """Move batch norm's running statistics towards those of this batch."""
        for part, value, first in (("_mean", mean, 0.0), ("_variance", variance, 1.0)):
            before = self.statistic(f"{name}.{part}", first, channels)
            kept = NORM_MOMENTUM * before + (1 - NORM_MOMENTUM) * value
            self.statistics[f"{name}.{part}"] = kept

    def layer_norm(self, name: str, x: Array, width: int, epsilon: float) -> Array:
        wide = self.cast(x, self.wide)
        wide = wide - self.mean(wide, axis=-1, keepdims=True)
        wide = wide * self.rsqrt(self.mean(wide * wide, axis=-1, keepdims=True) + epsilon)
        weight, bias = self.norm(name, width)
        return self.cast(wide * weight + bias, x.dtype)

    def dense(self, name: str, x: Array, inputs: int, outputs: int, fill: Fill) -> Array:
        """Over the last axis, with bias."""
        weight = self.parameter(f"{name}.weight", fill, inputs, outputs)
        y = self.product(self.cast(x, self.dtype), self.cast(weight, self.dtype))
        return self.add_bias(y, self.bias(name, outputs))

    def embedding(self, name: str, size: int, width: int, deviation: float) -> Array:
        """A table of so many rows."""
        return self.parameter(f"{name}.weight", normal(deviation), size, width)

    def attention(
        self, parts: Iterable[Array], heads: int, mask: Array, dropout: float
    ) -> Array:
        """Of queries, keys and values, all of batch x length x width; `mask` is added to the
        scores."""
        query, key, value = (
            self.transpose(self.reshape(x, (*x.shape[:2], heads, -1)), (0, 2, 1, 3))
            for x in parts
        )
        scores = self.product(query * query.shape[-1] ** -0.5, key, transposed=True)
        shares = self.softmax(self.cast(scores, self.wide) + self.cast(mask, self.wide))
        shares = self.dropout(shares, dropout) if dropout else shares
        attended = self.product(self.cast(shares, self.dtype), value)
        attended = self.transpose(attended, (0, 2, 1, 3))
        return self.reshape(attended, (*attended.shape[:2], -1))

    def spatial_mean(self, x: Array) -> Array:
        """The mean of each channel, batch x channels."""
        return self.mean(self.cast(x, self.wide), axis=self.spatial)

    def average_to(self, x: Array, count: int) -> Array:
        """Images averaged to count x count, over parts that overlap where a side can't be
        divided evenly."""
        for axis in self.spatial:
            size = x.shape[axis]
            if size == count:
                continue
            parts = []
            for part in range(count):
                inside = slice(part * size // count, -(-(part + 1) * size // count))
                within = [slice(None)] * axis + [inside]
                parts.append(self.mean(x[tuple(within)], axis=axis, keepdims=True))
            x = self.concat(parts, axis)
        return x

    def flatten(self, x: Array) -> Array:
        """Images as rows, channels first in both layouts: dense weights mean the same."""
        x = self.transpose(x, [self.layout.index(axis) for axis in "NCHW"])
        return self.reshape(x, (x.shape[0], -1))


def mean_loss(run: Forward, logits: Array, labels: Array) -> Array:
    return run.mean(run.cross_entropies(logits, labels))
