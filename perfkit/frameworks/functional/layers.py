"""Building blocks of the networks: a forward pass whose layers declare their parameters in a
flat dict of arrays. Each framework's subclass provides the operations.

Convolution kernels are height x width x inputs x outputs; the axes of all other parameters are
those of perfkit.frameworks.base.Weights.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

import numpy as np

NORM_MOMENTUM = 0.9
"""Weight of the old value in batch norm's running statistics (Paddle's default)."""
NORM_EPSILON = 1e-5

Array = Any
Fill = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]
"""Returns the initial values of a parameter of that shape."""


def constant(value: float) -> Fill:
    return lambda _random, shape: np.full(shape, value, np.float32)


def normal(deviation: float) -> Fill:
    return lambda random, shape: (
        random.standard_normal(shape, np.float32) * np.float32(deviation)
    )


def uniform(limit: float) -> Fill:
    return lambda random, shape: (random.random(shape, np.float32) * 2 - 1) * np.float32(limit)


class Forward:
    """One forward pass: the parameters that its layers read, and the updated statistics.

    Factors of convolutions, dense layers and attention have the dtype `dtype`, as under a
    framework's autocast; norms, softmax and losses compute in `wide`, the parameters' dtype,
    and norms return the dtype of their input. Without `parameters`, the pass is only traced and
    records the declarations: each parameter's canonical shape and Fill, each statistic's
    initial values.
    """

    wide: Any = "float32"
    """Shared by all passes; float64 once enabled."""
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
        """Return a trainable parameter of this canonical shape."""
        if self.parameters is not None:
            return self.parameters[name]
        self.declared[name] = shape, fill
        stored = (*shape[2:], shape[1], shape[0]) if len(shape) == 4 else shape
        return self.zeros(stored, self.wide)

    def statistic(self, name: str, first: float, channels: int) -> Array:
        """Return a statistic: one untrained value per channel, initially `first`."""
        if self.parameters is not None:
            return self.before[name]
        self.declared_statistics[name] = np.full(channels, first, np.float32)
        return self.zeros((channels,), self.wide)

    # Operations that each framework implements; those for sequences only if it trains them.

    def convolve(self, x: Array, kernel: Array, size: int, stride: int) -> Array:
        """Convolve with padding that preserves the image size at stride 1."""

    def max_pool(self, x: Array, size: int, stride: int, padding: int = 0) -> Array:
        """Max-pool over size x size windows; the first of equal values gets the gradient."""

    def dropout(self, x: Array, rate: float) -> Array:
        """Set each value to 0 with probability `rate` and scale the rest to keep the mean."""

    def product(self, a: Array, b: Array, *, transposed: bool = False) -> Array:
        """Multiply the matrices in the last two axes of `a` and `b`, or all rows of `a` by one
        matrix `b`; `transposed` swaps the last two axes of `b`."""

    def rows(self, table: Array, indices: Array) -> Array:
        """Return the rows of `table` at `indices` of any shape."""

    def rows_of_each(self, x: Array, positions: Array) -> Array:
        """Return x[n, positions[n]] for each n of a batch x length x width array."""

    def cross_entropies(self, logits: Array, labels: Array) -> Array:
        """Return each row's cross entropy in `wide`; `labels` may have any shape."""

    # Layers.

    def kernel(self, name: str, inputs: int, outputs: int, size: int) -> Array:
        """Return a convolution's weight, initialized as in He et al., Delving deep into
        rectifiers, 2015 (normal)."""
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
        """Reshape one value per channel for broadcasting with activations."""
        return channels[:, None, None] if self.layout == "NCHW" else channels

    def add(self, x: Array, y: Array) -> Array:
        """Return x + y in the dtype of x."""
        return x + self.cast(y, x.dtype)

    def add_bias(self, x: Array, bias: Array) -> Array:
        """Add one value per channel to activations of images or rows."""
        return self.add(x, self.along(bias) if len(x.shape) == 4 else bias)

    def norm(self, name: str, width: int) -> tuple[Array, Array]:
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
        """Update batch norm's running statistics with those of this batch."""
        for part, value, first in (("_mean", mean, 0.0), ("_variance", variance, 1.0)):
            before = self.statistic(f"{name}.{part}", first, channels)
            updated = NORM_MOMENTUM * before + (1 - NORM_MOMENTUM) * value
            self.statistics[f"{name}.{part}"] = updated

    def layer_norm(self, name: str, x: Array, width: int, epsilon: float) -> Array:
        wide = self.cast(x, self.wide)
        wide = wide - self.mean(wide, axis=-1, keepdims=True)
        wide = wide * self.rsqrt(self.mean(wide * wide, axis=-1, keepdims=True) + epsilon)
        weight, bias = self.norm(name, width)
        return self.cast(wide * weight + bias, x.dtype)

    def dense(self, name: str, x: Array, inputs: int, outputs: int, fill: Fill) -> Array:
        """Apply a dense layer with bias to the last axis."""
        weight = self.parameter(f"{name}.weight", fill, inputs, outputs)
        y = self.product(self.cast(x, self.dtype), self.cast(weight, self.dtype))
        return self.add_bias(y, self.bias(name, outputs))

    def embedding(self, name: str, size: int, width: int, deviation: float) -> Array:
        """Return an embedding table of size x width."""
        return self.parameter(f"{name}.weight", normal(deviation), size, width)

    def attention(
        self, parts: Iterable[Array], heads: int, mask: Array, dropout: float
    ) -> Array:
        """Multi-head attention of queries, keys and values, each batch x length x width; `mask`
        is added to the scores."""
        query, key, value = (
            self.transpose(self.reshape(x, (*x.shape[:2], heads, -1)), (0, 2, 1, 3))
            for x in parts
        )
        scores = self.product(query * query.shape[-1] ** -0.5, key, transposed=True)
        weights = self.softmax(self.cast(scores, self.wide) + self.cast(mask, self.wide))
        weights = self.dropout(weights, dropout) if dropout else weights
        attended = self.product(self.cast(weights, self.dtype), value)
        attended = self.transpose(attended, (0, 2, 1, 3))
        return self.reshape(attended, (*attended.shape[:2], -1))

    def spatial_mean(self, x: Array) -> Array:
        """Return the mean of each channel, batch x channels."""
        return self.mean(self.cast(x, self.wide), axis=self.spatial)

    def average_to(self, x: Array, count: int) -> Array:
        """Average-pool images adaptively to count x count; windows overlap where a side is not
        a multiple of `count`."""
        for axis in self.spatial:
            size = x.shape[axis]
            if size == count:
                continue
            parts = []
            for part in range(count):
                pooled = slice(part * size // count, -(-(part + 1) * size // count))
                window = (*[slice(None)] * axis, pooled)
                parts.append(self.mean(x[window], axis=axis, keepdims=True))
            x = self.concat(parts, axis)
        return x

    def flatten(self, x: Array) -> Array:
        """Flatten images to rows, channels first in both layouts as dense weights expect."""
        x = self.transpose(x, [self.layout.index(axis) for axis in "NCHW"])
        return self.reshape(x, (x.shape[0], -1))


def mean_loss(run: Forward, logits: Array, labels: Array) -> Array:
    return run.mean(run.cross_entropies(logits, labels))
