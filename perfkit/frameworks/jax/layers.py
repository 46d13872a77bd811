"""The operations of the networks' forward pass in JAX."""

from collections.abc import Iterator
from functools import partial, reduce
from itertools import product as product_of
from typing import Any

import jax
from jax import Array, lax
from jax import numpy as jnp

from perfkit.frameworks.functional import layers


def param_dtype() -> Any:
    """The dtype of parameters, norms and losses, and of the sums in a product: float32, or
    float64 where JAX is told to use it."""
    return jnp.result_type(float)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def contract(equation: str, a: Array, b: Array) -> Array:
    """The sum of products that `equation` names as for einsum, two factors of one dtype, added
    up in float32. The same holds of its gradients, which the usual rule would multiply in
    float32 whatever the factors are."""
    added = jnp.einsum(equation, a, b, preferred_element_type=param_dtype())
    return added.astype(a.dtype)


def _contract_forward(equation: str, a: Array, b: Array) -> tuple[Array, Any]:
    return contract(equation, a, b), (a, b)


def _contract_backward(equation: str, factors: Any, gradient: Array) -> tuple[Array, Array]:
    a, b = factors
    axes, result = equation.split("->")
    a_axes, b_axes = axes.split(",")
    return (
        contract(f"{result},{b_axes}->{a_axes}", gradient, b),
        contract(f"{a_axes},{result}->{b_axes}", a, gradient),
    )


contract.defvjp(_contract_forward, _contract_backward)


class Forward(layers.Forward):
    """Without a `key` nothing is dropped.

    Attention is written out: JAX has no fused kernel on a CPU, and its own products give
    gradients in float32 whatever the factors are.
    """

    concat = staticmethod(jnp.concatenate)
    gelu = staticmethod(jax.nn.gelu)
    maximum = staticmethod(jnp.maximum)
    mean = staticmethod(jnp.mean)
    relu = staticmethod(jax.nn.relu)
    reshape = staticmethod(jnp.reshape)
    rsqrt = staticmethod(lax.rsqrt)
    softmax = staticmethod(jax.nn.softmax)
    split = staticmethod(jnp.split)
    sum = staticmethod(jnp.sum)
    tanh = staticmethod(jnp.tanh)
    transpose = staticmethod(jnp.transpose)
    zeros = staticmethod(jnp.zeros)

    # The dtype of JAX's own switch.
    wide = property(lambda _self: param_dtype())

    def __init__(self, *values: Any, key: Array | None = None) -> None:
        super().__init__(*values)
        self.key = key

    @staticmethod
    def cast(x: Any, dtype: Any) -> Array:
        return jnp.asarray(x).astype(dtype)

    def convolve(self, x: Array, kernel: Array, size: int, stride: int) -> Array:
        if size == 1 and self.layout == "NHWC":
            # XLA's matrix product on a CPU is faster than its convolution.
            return contract("nhwi,io->nhwo", x[:, ::stride, ::stride], kernel[0, 0])
        return lax.conv_general_dilated(
            x,
            kernel,
            (stride, stride),
            [(size // 2, size // 2)] * 2,
            dimension_numbers=(self.layout, "HWIO", self.layout),
        )

    def product(self, a: Array, b: Array, *, transposed: bool = False) -> Array:
        # Not as a matrix of rows: of that, XLA makes the weights' gradient in float32.
        batch = "abcd"[: a.ndim - 2]
        shared = batch if b.ndim > 2 else ""
        return contract(f"{batch}xi,{shared}{'yi' if transposed else 'iy'}->{batch}xy", a, b)

    def rows(self, table: Array, indices: Array) -> Array:
        return table[indices]

    def rows_of_each(self, x: Array, positions: Array) -> Array:
        return jnp.take_along_axis(x, positions[:, :, None], 1)

    def cross_entropies(self, logits: Array, labels: Array) -> Array:
        logits = logits.astype(self.wide)
        labelled = jnp.take_along_axis(logits, labels.reshape(-1, 1), 1)[:, 0]
        return jax.nn.logsumexp(logits, axis=1) - labelled

    def dropout(self, x: Array, rate: float) -> Array:
        if self.key is None:
            return x
        self.key, own = jax.random.split(self.key)
        return jnp.where(jax.random.bernoulli(own, 1 - rate, x.shape), x / (1 - rate), 0)

    def max_pool(self, x: Array, size: int, stride: int, padding: int = 0) -> Array:
        """Not by lax.reduce_window: XLA's gradient of it takes many times as long on a CPU."""
        beside = [(padding, padding) if axis in self.spatial else (0, 0) for axis in range(4)]
        x = jnp.pad(x, beside, constant_values=-jnp.inf)

        def parts() -> Iterator[Array]:
            for offsets in product_of(range(size), repeat=2):
                window = [slice(None)] * 4
                for axis, begin in zip(self.spatial, offsets, strict=True):
                    window[axis] = slice(begin, begin + x.shape[axis] - size + 1, stride)
                yield x[tuple(window)]

        return reduce(lambda largest, part: jnp.where(part > largest, part, largest), parts())
