"""What the networks in JAX are made of: parameters with first values, and a forward pass.

Parameters are a flat dict by the names of the Paddle networks. Kernels of convolutions are held
as height x width x inputs x outputs, all else as Paddle has it; `exchanged` turns the axes.
"""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import product as product_of
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

MOMENTUM = 0.9
"""The share that running statistics keep of themselves, as Paddle's batch norm has it."""
NORM_EPSILON = 1e-5
KERNEL_HELD, KERNEL_TOLD = (2, 3, 1, 0), (3, 2, 0, 1)
"""Axes of outputs x inputs x height x width as they are held, and back."""


class First(NamedTuple):
    """A parameter's shape, with the axes that Paddle gives it, and what fills it at first."""

    shape: tuple[int, ...]
    fill: Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]

    @classmethod
    def constant(cls, value: float, *shape: int) -> "First":
        return cls(shape, lambda _random, shape: np.full(shape, value, np.float32))

    @classmethod
    def normal(cls, deviation: float, *shape: int) -> "First":
        return cls(
            shape,
            lambda random, shape: (
                random.standard_normal(shape, np.float32) * np.float32(deviation)
            ),
        )

    @classmethod
    def uniform(cls, limit: float, *shape: int) -> "First":
        return cls(
            shape,
            lambda random, shape: (
                (random.random(shape, np.float32) * 2 - 1) * np.float32(limit)
            ),
        )

    @classmethod
    def kernel(cls, inputs: int, outputs: int, size: int) -> "First":
        """Of a convolution: normal, by He et al., Delving deep into rectifiers, 2015."""
        return cls.normal((2 / (inputs * size**2)) ** 0.5, outputs, inputs, size, size)


Firsts = dict[str, First]


def norm(name: str, width: int) -> Firsts:
    return {
        f"{name}.weight": First.constant(1.0, width),
        f"{name}.bias": First.constant(0.0, width),
    }


def first_values(firsts: Firsts, seed: int) -> dict[str, Array]:
    """Filled parameters, as they are held."""
    random = np.random.default_rng(seed)
    return {name: held(first.fill(random, first.shape)) for name, first in firsts.items()}


def wide_type() -> Any:
    """The dtype of parameters, norms and losses, and of the sums in a product: float32, or
    float64 where JAX is told to use it."""
    return jnp.result_type(float)


def held(told: np.ndarray) -> Array:
    """An array with Paddle's axes, as it is held: always a copy."""
    return jnp.array(told.transpose(KERNEL_HELD) if told.ndim == 4 else told, wide_type())


def told(held: Array) -> np.ndarray:
    """What is held, with Paddle's axes: a copy, since memory is given up."""
    axes = KERNEL_TOLD if held.ndim == 4 else range(held.ndim)
    return np.array(np.asarray(held).transpose(axes), order="C")


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def product(equation: str, one: Array, other: Array) -> Array:
    """The sum of products that `equation` names as for einsum, two factors of one dtype, added
    up in float32. The same holds of its gradients, which the usual rule would multiply in
    float32 whatever the factors are."""
    added = jnp.einsum(equation, one, other, preferred_element_type=wide_type())
    return added.astype(one.dtype)


def _product_forward(equation: str, one: Array, other: Array) -> tuple[Array, Any]:
    return product(equation, one, other), (one, other)


def _product_backward(equation: str, factors: Any, gradient: Array) -> tuple[Array, Array]:
    one, other = factors
    axes, result = equation.split("->")
    ones, others = axes.split(",")
    return (
        product(f"{result},{others}->{ones}", gradient, other),
        product(f"{ones},{result}->{others}", one, gradient),
    )


product.defvjp(_product_forward, _product_backward)


class Forward:
    """One forward pass: what its layers read, and the statistics that it leaves.

    `dtype` is that of the factors of convolutions, dense layers and attention, as a framework's
    autocast has it; norms compute in float32 and give back what they were given. Without a
    `key` nothing is dropped.
    """

    def __init__(
        self,
        parameters: Mapping[str, Array],
        statistics: Mapping[str, Array],
        key: Array | None,
        dtype: Any,
        layout: str = "NHWC",
    ) -> None:
        self.parameters = parameters
        self.before = statistics
        self.statistics: dict[str, Array] = {}
        self.key = key
        self.dtype = dtype
        self.layout = layout

    def weight(self, name: str) -> Array:
        return self.parameters[f"{name}.weight"].astype(self.dtype)

    def biased(self, name: str, x: Array) -> Array:
        return x + self.parameters[f"{name}.bias"].astype(x.dtype)

    def convolution(self, name: str, x: Array, stride: int = 1) -> Array:
        """Without bias, padded so that stride 1 keeps the size."""
        kernel, x = self.weight(name), x.astype(self.dtype)
        if kernel.shape[:2] == (1, 1) and self.layout == "NHWC":
            # XLA's matrix product on a CPU is faster than its convolution.
            return product("nhwi,io->nhwo", x[:, ::stride, ::stride], kernel[0, 0])
        return lax.conv_general_dilated(
            x,
            kernel,
            (stride, stride),
            [(size // 2, size // 2) for size in kernel.shape[:2]],
            dimension_numbers=(self.layout, "HWIO", self.layout),
        )

    def along(self, channels: Array) -> Array:
        """A value for each channel, ready to be used with activations."""
        return channels[:, None, None] if self.layout == "NCHW" else channels

    def batch_norm(self, name: str, x: Array) -> Array:
        wide = x.astype(wide_type())
        axes = tuple(axis for axis, name in enumerate(self.layout) if name != "C")
        mean, variance = wide.mean(axes), wide.var(axes)
        for part, value in (("_mean", mean), ("_variance", variance)):
            kept = MOMENTUM * self.before[f"{name}.{part}"] + (1 - MOMENTUM) * value
            self.statistics[f"{name}.{part}"] = lax.stop_gradient(kept)
        scale = self.parameters[f"{name}.weight"] * lax.rsqrt(variance + NORM_EPSILON)
        offset = self.parameters[f"{name}.bias"] - mean * scale
        return (wide * self.along(scale) + self.along(offset)).astype(x.dtype)

    def layer_norm(self, name: str, x: Array, epsilon: float) -> Array:
        wide = x.astype(wide_type())
        wide = wide - wide.mean(-1, keepdims=True)
        wide = wide * lax.rsqrt((wide * wide).mean(-1, keepdims=True) + epsilon)
        weight, bias = self.parameters[f"{name}.weight"], self.parameters[f"{name}.bias"]
        return (wide * weight + bias).astype(x.dtype)

    def dense(self, name: str, x: Array) -> Array:
        """Over the last axis, with bias."""
        # Not as a matrix of rows: of that, XLA makes the weights' gradient in float32.
        axes = "abcd"[: x.ndim - 1]
        y = product(f"{axes}i,io->{axes}o", x.astype(self.dtype), self.weight(name))
        return self.biased(name, y)

    def dropout(self, x: Array, rate: float) -> Array:
        if self.key is None:
            return x
        self.key, own = jax.random.split(self.key)
        return jnp.where(jax.random.bernoulli(own, 1 - rate, x.shape), x / (1 - rate), 0)

    def max_pool(self, x: Array, size: int, stride: int, padding: int = 0) -> Array:
        """The largest of each place's size x size; the first of equal ones has the gradient.

        Not by lax.reduce_window: XLA's gradient of it takes many times as long on a CPU.
        """
        beside = [(padding, padding) if axis in "HW" else (0, 0) for axis in self.layout]
        x = jnp.pad(x, beside, constant_values=-jnp.inf)
        largest = None
        for offsets in product_of(range(size), range(size)):
            begin = dict(zip("HW", offsets, strict=True))
            part = x[
                tuple(
                    slice(begin[axis], begin[axis] + length - size + 1, stride)
                    if axis in "HW"
                    else slice(None)
                    for axis, length in zip(self.layout, x.shape, strict=True)
                )
            ]
            largest = part if largest is None else jnp.where(part > largest, part, largest)
        assert largest is not None
        return largest


def cross_entropies(scores: Array, labels: Array) -> Array:
    """Of rows of scores, each with its label."""
    scores = scores.astype(wide_type())
    wanted = jnp.take_along_axis(scores, labels.reshape(-1, 1), 1)[:, 0]
    return jax.nn.logsumexp(scores, axis=1) - wanted


def image_loss(scores: Array, labels: Array) -> Array:
    return cross_entropies(scores, labels).mean()


def image_accuracy(scores: Array, labels: Array) -> Array:
    """The share of images whose label has the highest score."""
    return (scores.argmax(-1) == labels.reshape(-1)).mean()
