"""The layers of the networks: a forward pass whose parameters are a flat dict of arrays. Each
framework's subclass provides the operations.

Convolution kernels are height x width x inputs x outputs; the axes of all other parameters are
those of perfkit.core.frameworks.inspector.Weights.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from math import prod
from typing import Any

import numpy as np

from perfkit.core.frameworks.networks import NORMS, Layer, Network, Outline

NORM_MOMENTUM = 0.9
"""Weight of the old value in batch norm's running statistics (Paddle's default)."""
NORM_EPSILON = 1e-5

Array = Any
Operation = Callable[..., Array]


def initial_parameters(network: Network, seed: int) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the initial parameters of a network by name, with the axes of Weights: biases and
    vectors are 0."""
    random = np.random.default_rng(seed)
    for name, layer in Outline(network).layers.items():
        for parameter, shape in layer.parameters(name).items():
            if parameter == f"{name}.weight":
                yield parameter, _initial_weight(layer, shape, random)
            else:
                yield parameter, np.zeros(shape, np.float32)


def initial_statistics(network: Network) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the initial statistics of a network's batch norms by name."""
    for name, layer in Outline(network).layers.items():
        if layer.kind == "batch_norm":
            (channels,) = layer.sizes
            yield f"{name}._mean", np.zeros(channels, np.float32)
            yield f"{name}._variance", np.ones(channels, np.float32)


def _initial_weight(
    layer: Layer, shape: tuple[int, ...], random: np.random.Generator
) -> np.ndarray:
    """Return the weight of a layer: of convolutions as in He et al., Delving deep into
    rectifiers, 2015 (normal), of norms 1, of others with the deviation that the network states
    or, without it, as in Glorot and Bengio, 2010 (uniform)."""
    if layer.kind in NORMS:
        return np.ones(shape, np.float32)
    *_sizes, deviation = layer.sizes
    if layer.kind == "convolution":
        deviation = (2 / prod(shape[1:])) ** 0.5
    if deviation:
        return random.standard_normal(shape, np.float32) * np.float32(deviation)
    limit = np.float32((6 / sum(shape)) ** 0.5)
    return (random.random(shape, np.float32) * 2 - 1) * limit


class Forward:
    """One forward pass: the parameters that its layers read, and the updated statistics.

    Factors of convolutions, dense layers and attention have the dtype `dtype`, as under a
    framework's autocast; norms, softmax and losses compute in `wide`, the parameters' dtype,
    and norms return the dtype of their input.
    """

    wide: Any = "float32"
    """Shared by all passes; float64 once enabled."""
    cast: Operation
    concat: Operation
    gelu: Operation
    maximum: Operation
    mean: Operation
    relu: Operation
    reshape: Operation
    rsqrt: Operation
    silu: Operation
    softmax: Operation
    split: Operation
    sum: Operation
    tanh: Operation
    transpose: Operation

    def __init__(
        self,
        dtype: Any,
        layout: str = "NHWC",
        parameters: Mapping[str, Array] | None = None,
        statistics: Mapping[str, Array] | None = None,
    ) -> None:
        self.dtype = dtype
        self.layout = layout
        self.parameters = parameters or {}
        self.before = statistics or {}
        self.statistics: dict[str, Array] = {}
        # The axes of height and width; none for sequences.
        self.spatial = tuple(layout.index(axis) for axis in "HW" if axis in layout)

    def parameter(self, name: str) -> Array:
        return self.parameters[name]

    # Operations that each framework implements; those for sequences only if it trains them.

    def convolve(self, x: Array, kernel: Array, size: int, stride: int) -> Array:
        """Convolve with padding that preserves the image size at stride 1."""

    def max_pool(self, x: Array, size: int, stride: int, padding: int) -> Array:
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

    # Layers. Those with parameters get their name, the activations and the sizes.

    def convolution(
        self,
        name: str,
        x: Array,
        _inputs: int,
        _outputs: int,
        size: int,
        stride: int = 1,
    ) -> Array:
        kernel = self.cast(self.parameter(f"{name}.weight"), self.dtype)
        return self.convolve(self.cast(x, self.dtype), kernel, size, stride)

    def along(self, channels: Array) -> Array:
        """Reshape one value per channel for broadcasting with activations."""
        return channels[:, None, None] if self.layout == "NCHW" else channels

    def add(self, x: Array, y: Array) -> Array:
        """Return x + y in the dtype of x."""
        return x + self.cast(y, x.dtype)

    def add_bias(self, x: Array, bias: Array) -> Array:
        """Add one value for each place of the last axis."""
        return self.add(x, bias)

    def norm(self, name: str) -> tuple[Array, Array]:
        return self.parameter(f"{name}.weight"), self.parameter(f"{name}.bias")

    def batch_norm(self, name: str, x: Array, _channels: int) -> Array:
        wide = self.cast(x, self.wide)
        axes = (0, *self.spatial)
        mean = self.mean(wide, axis=axes)
        variance = self.mean((wide - self.along(mean)) ** 2, axis=axes)
        self.keep_statistics(name, mean, variance)
        weight, bias = self.norm(name)
        scale = weight * self.rsqrt(variance + NORM_EPSILON)
        offset = bias - mean * scale
        return self.cast(wide * self.along(scale) + self.along(offset), x.dtype)

    def keep_statistics(self, name: str, mean: Array, variance: Array) -> None:
        """Update batch norm's running statistics with those of this batch."""
        for part, value in (("_mean", mean), ("_variance", variance)):
            statistic = f"{name}.{part}"
            before = NORM_MOMENTUM * self.before[statistic]
            self.statistics[statistic] = before + (1 - NORM_MOMENTUM) * value

    def layer_norm(self, name: str, x: Array, _width: int, epsilon: float) -> Array:
        wide = self.cast(x, self.wide)
        wide = wide - self.mean(wide, axis=-1, keepdims=True)
        variance = self.mean(wide * wide, axis=-1, keepdims=True)
        wide = wide * self.rsqrt(variance + epsilon)
        weight, bias = self.norm(name)
        return self.cast(wide * weight + bias, x.dtype)

    def rms_norm(self, name: str, x: Array, _width: int, epsilon: float) -> Array:
        """Divide by the root mean square of the last axis (Zhang and Sennrich, 2019)."""
        wide = self.cast(x, self.wide)
        mean_square = self.mean(wide * wide, axis=-1, keepdims=True)
        wide = wide * self.rsqrt(mean_square + epsilon)
        return self.cast(wide * self.parameter(f"{name}.weight"), x.dtype)

    def dense(self, name: str, x: Array, *_sizes: Any, bias: bool = True) -> Array:
        """Apply a dense layer to the last axis."""
        weight = self.factor(self.parameter(f"{name}.weight"))
        y = self.product(self.factor(x), weight)
        return self.add_bias(y, self.parameter(f"{name}.bias")) if bias else y

    def swiglu(self, gate: Array, x: Array) -> Array:
        """Gate activations by SiLU of other ones (Shazeer, 2020)."""
        return self.silu(gate) * x

    def factor(self, x: Array) -> Array:
        """Return `x` as a factor of a product."""
        return self.cast(x, self.dtype)

    def embedding(self, name: str, *_sizes: Any) -> Array:
        """Return an embedding table of size x width."""
        return self.table(name)

    def embed(self, name: str, ids: Array, *_sizes: Any) -> Array:
        """Return the rows of an embedding table at these ids."""
        return self.rows(self.table(name), ids)

    def table(self, name: str) -> Array:
        """Return the embedding table of an earlier block."""
        return self.parameter(f"{name}.weight")

    def constant(self, _name: str, array: np.ndarray) -> Any:
        """Return an array that is no parameter."""
        return array

    def vector(self, name: str, _width: int) -> Array:
        """Return a parameter with one axis, initially 0."""
        return self.parameter(name)

    def logits(self, x: Array, table: Array, bias: Array | None = None) -> Array:
        """Return the products of all rows of `x` with all rows of an embedding table, as one
        matrix."""
        y = self.product(self.factor(x), self.factor(table), transposed=True)
        if bias is not None:
            y = self.add_bias(y, bias)
        return self.reshape(y, (-1, y.shape[-1]))

    def attention(
        self,
        parts: Iterable[Array],
        heads: int,
        mask: Array | None,
        dropout: float,
        kv_heads: int | None = None,
    ) -> Array:
        """Multi-head attention of queries, keys and values, each batch x length x width; `mask`
        is added to the scores. With fewer `kv_heads` than heads, as many query heads in a row
        share each key and value head."""
        query, key, value = parts
        kv_heads = kv_heads or heads
        query = self.by_head(query, heads)
        key, value = self.by_head(key, kv_heads), self.by_head(value, kv_heads)
        batch, _heads, length, width = query.shape
        # The rows of all query heads that share a key head form one matrix.
        grouped = (batch, kv_heads, -1, width)
        query = self.reshape(query * width**-0.5, grouped)
        scores = self.product(query, key, transposed=True)
        scores = self.reshape(scores, (batch, heads, length, length))
        weights = self.softmax(self.masked(self.cast(scores, self.wide), mask))
        if dropout:
            weights = self.dropout(weights, dropout)
        weights = self.reshape(self.factor(weights), (batch, kv_heads, -1, length))
        attended = self.reshape(self.product(weights, value), (batch, heads, length, width))
        attended = self.transpose(attended, (0, 2, 1, 3))
        return self.reshape(attended, (batch, length, -1))

    def masked(self, scores: Array, mask: Array) -> Array:
        """Return attention scores with the network's mask."""
        return scores + self.cast(mask, self.wide)

    def rotate(self, x: Array, heads: int, cosines: Array, sines: Array) -> Array:
        """Rotate the pairs of values of each head, batch x length x width, by the angles of
        llama.rotation_tables, length x half the width of a head."""
        batch, length, width = x.shape
        wide = self.cast(self.reshape(x, (batch, length, heads, -1)), self.wide)
        first, second = self.split(wide, 2, -1)
        cosines = self.cast(cosines, self.wide)[:, None]
        sines = self.cast(sines, self.wide)[:, None]
        rotated = [first * cosines - second * sines, second * cosines + first * sines]
        by_head = self.concat(rotated, -1)
        return self.cast(self.reshape(by_head, (batch, length, width)), x.dtype)

    def by_head(self, x: Array, heads: int) -> Array:
        """Divide the width of activations among heads: batch x heads x length x width of one
        head."""
        divided = self.reshape(x, (*x.shape[:2], heads, -1))
        return self.transpose(divided, (0, 2, 1, 3))

    def spatial_mean(self, x: Array) -> Array:
        """Return the mean of each channel, batch x channels."""
        return self.mean(self.cast(x, self.wide), axis=self.spatial)

    def cross_entropy(self, logits: Array, labels: Array, ignored: int | None = None) -> Array:
        """Return the mean over the rows whose label is not `ignored`."""
        losses = self.cross_entropies(logits, labels)
        if ignored is None:
            return self.mean(losses)
        counted = self.cast(self.reshape(labels, (-1,)) != ignored, self.wide)
        return self.sum(losses * counted) / self.maximum(self.sum(counted), 1)
