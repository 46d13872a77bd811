"""What the networks in JAX are made of: a forward pass whose layers name and declare their
parameters, a flat dict of arrays.

Kernels of convolutions are height x width x inputs x outputs, all else as perfkit.frameworks
.base.Weights has it.
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


class Declaration(NamedTuple):
    """A parameter's canonical shape, and what fills it at first."""

    shape: tuple[int, ...]
    fill: Fill


Declarations = dict[str, Declaration]


def param_dtype() -> Any:
    """The dtype of parameters, norms and losses, and of the sums in a product: float32, or
    float64 where JAX is told to use it."""
    return jnp.result_type(float)


def from_canonical(array: Any) -> Any:
    """A parameter as the layers have it: a kernel's outputs x inputs x H x W to H x W x inputs
    x outputs."""
    return array.transpose(2, 3, 1, 0) if array.ndim == 4 else array


def to_canonical(array: np.ndarray) -> np.ndarray:
    """The inverse of from_canonical."""
    return array.transpose(3, 2, 0, 1) if array.ndim == 4 else array


def first_values(declarations: Declarations, seed: int) -> dict[str, Array]:
    """Filled parameters, in the order of their declaration."""
    random = np.random.default_rng(seed)
    return {
        name: jnp.array(from_canonical(d.fill(random, d.shape)), param_dtype())
        for name, d in declarations.items()
    }


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def product(equation: str, a: Array, b: Array) -> Array:
    """The sum of products that `equation` names as for einsum, two factors of one dtype, added
    up in float32. The same holds of its gradients, which the usual rule would multiply in
    float32 whatever the factors are."""
    added = jnp.einsum(equation, a, b, preferred_element_type=param_dtype())
    return added.astype(a.dtype)


def _product_forward(equation: str, a: Array, b: Array) -> tuple[Array, Any]:
    return product(equation, a, b), (a, b)


def _product_backward(equation: str, factors: Any, gradient: Array) -> tuple[Array, Array]:
    a, b = factors
    axes, result = equation.split("->")
    a_axes, b_axes = axes.split(",")
    return (
        product(f"{result},{b_axes}->{a_axes}", gradient, b),
        product(f"{a_axes},{result}->{b_axes}", a, gradient),
    )


product.defvjp(_product_forward, _product_backward)


class Forward:
    """One forward pass: the parameters that its layers read, and the statistics that it leaves.

    `dtype` is that of the factors of convolutions, dense layers and attention, as a framework's
    autocast has it; norms compute in float32 and give back the dtype that they get. Without a
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

    def parameter(self, name: str, _fill: Fill, *_shape: int) -> Array:
        """A trainable parameter, declared with its first values and canonical shape."""
        return self.parameters[name]

    def statistic(self, name: str, _fill: Fill, *_shape: int) -> Array:
        """A value that is not trained, declared likewise."""
        return self.before[name]

    def convolution(
        self, name: str, x: Array, outputs: int, size: int, stride: int = 1
    ) -> Array:
        """Without bias, padded so that stride 1 keeps the size. First values are normal, by He
        et al., Delving deep into rectifiers, 2015."""
        inputs = x.shape[self.layout.index("C")]
        fill = normal((2 / (inputs * size**2)) ** 0.5)
        kernel = self.parameter(f"{name}.weight", fill, outputs, inputs, size, size)
        kernel, x = kernel.astype(self.dtype), x.astype(self.dtype)
        if size == 1 and self.layout == "NHWC":
            # XLA's matrix product on a CPU is faster than its convolution.
            return product("nhwi,io->nhwo", x[:, ::stride, ::stride], kernel[0, 0])
        return lax.conv_general_dilated(
            x,
            kernel,
            (stride, stride),
            [(size // 2, size // 2)] * 2,
            dimension_numbers=(self.layout, "HWIO", self.layout),
        )

    def along(self, channels: Array) -> Array:
        """A value for each channel, ready to be used with activations."""
        return channels[:, None, None] if self.layout == "NCHW" else channels

    def channel_bias(self, name: str, x: Array) -> Array:
        """Images with a value added to each channel."""
        bias = self.parameter(f"{name}.bias", constant(0.0), x.shape[self.layout.index("C")])
        return x + self.along(bias).astype(x.dtype)

    def _norm(self, name: str, width: int) -> tuple[Array, Array]:
        weight = self.parameter(f"{name}.weight", constant(1.0), width)
        return weight, self.parameter(f"{name}.bias", constant(0.0), width)

    def batch_norm(self, name: str, x: Array) -> Array:
        wide = x.astype(param_dtype())
        axes = tuple(axis for axis, name in enumerate(self.layout) if name != "C")
        mean, variance = wide.mean(axes), wide.var(axes)
        for part, value, first in (("_mean", mean, 0.0), ("_variance", variance, 1.0)):
            before = self.statistic(f"{name}.{part}", constant(first), value.size)
            kept = MOMENTUM * before + (1 - MOMENTUM) * value
            self.statistics[f"{name}.{part}"] = lax.stop_gradient(kept)
        weight, bias = self._norm(name, mean.size)
        scale = weight * lax.rsqrt(variance + NORM_EPSILON)
        offset = bias - mean * scale
        return (wide * self.along(scale) + self.along(offset)).astype(x.dtype)

    def layer_norm(self, name: str, x: Array, epsilon: float) -> Array:
        wide = x.astype(param_dtype())
        wide = wide - wide.mean(-1, keepdims=True)
        wide = wide * lax.rsqrt((wide * wide).mean(-1, keepdims=True) + epsilon)
        weight, bias = self._norm(name, x.shape[-1])
        return (wide * weight + bias).astype(x.dtype)

    def dense(self, name: str, x: Array, outputs: int, fill: Fill) -> Array:
        """Over the last axis, with bias."""
        # Not as a matrix of rows: of that, XLA makes the weights' gradient in float32.
        axes = "abcd"[: x.ndim - 1]
        weight = self.parameter(f"{name}.weight", fill, x.shape[-1], outputs)
        y = product(f"{axes}i,io->{axes}o", x.astype(self.dtype), weight.astype(self.dtype))
        return y + self.parameter(f"{name}.bias", constant(0.0), outputs).astype(y.dtype)

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


class Declaring(Forward):
    """A forward pass that records what is declared in it, to be traced without computing."""

    def __init__(self, layout: str) -> None:
        super().__init__({}, {}, None, param_dtype(), layout)
        self.declared: Declarations = {}
        self.declared_statistics: Declarations = {}

    def parameter(self, name: str, fill: Fill, *shape: int) -> Array:
        self.declared[name] = Declaration(shape, fill)
        return from_canonical(jnp.zeros(shape, param_dtype()))

    def statistic(self, name: str, fill: Fill, *shape: int) -> Array:
        self.declared_statistics[name] = Declaration(shape, fill)
        return jnp.zeros(shape)


def declarations(network: Any, layout: str) -> tuple[Declarations, Declarations]:
    """The parameters and the statistics that a network declares."""
    run = Declaring(layout)
    jax.eval_shape(partial(network, run), *network.example(layout))
    return run.declared, run.declared_statistics


def example_images(layout: str) -> tuple[Any, ...]:
    """Images of any size."""
    sizes = {"N": 1, "C": 3, "H": 64, "W": 64}
    return (jax.ShapeDtypeStruct(tuple(sizes[axis] for axis in layout), jnp.float32),)


def cross_entropies(logits: Array, labels: Array) -> Array:
    """Of rows of logits, each with its label."""
    logits = logits.astype(param_dtype())
    labelled = jnp.take_along_axis(logits, labels.reshape(-1, 1), 1)[:, 0]
    return jax.nn.logsumexp(logits, axis=1) - labelled


def image_loss(logits: Array, labels: Array) -> Array:
    return cross_entropies(logits, labels).mean()
