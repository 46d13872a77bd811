"""The layers in JAX.

Attention is composed of `contract`: JAX has no fused kernel on a CPU, and the gradients of its
own products are float32 for any dtype of the factors. On a GPU, causal attention in bfloat16 is
cuDNN's fused kernel.
"""

from collections.abc import Callable, Iterable
from functools import partial
from itertools import product
from typing import Any

import jax
from jax import Array, lax
from jax import numpy as jnp

from perfkit.core.frameworks import networks
from perfkit.core.frameworks.functional import layers


def param_dtype() -> Any:
    """Return the dtype of parameters, norms, losses and accumulation in products: float32, or
    float64 if enabled in JAX."""
    return jnp.result_type(float)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def contract(equation: str, a: Array, b: Array) -> Array:
    """Return the einsum of two factors of the same dtype, accumulated in float32. Its gradients
    are computed likewise; JAX's own rule would multiply them in float32 for any dtype."""
    result = jnp.einsum(equation, a, b, preferred_element_type=param_dtype())
    return result.astype(a.dtype)


def _contract_forward(equation: str, a: Array, b: Array) -> tuple[Array, Any]:
    return contract(equation, a, b), (a, b)


def _contract_backward(equation: str, factors: Any, gradient: Array) -> tuple[Array, Array]:
    a, b = factors
    axes, result = equation.split("->")
    a_axes, b_axes = axes.split(",")
    a_gradient = contract(f"{result},{b_axes}->{a_axes}", gradient, b)
    b_gradient = contract(f"{a_axes},{result}->{b_axes}", a, gradient)
    return a_gradient, b_gradient


contract.defvjp(_contract_forward, _contract_backward)


class Forward(layers.Forward):
    """Without a `key`, dropout is disabled. `fuses_attention`: use cuDNN's causal attention
    where it supports the length. `whole`: returns the whole parameter with a name, of which
    `parameters` has a share."""

    concat = staticmethod(jnp.concatenate)
    gelu = staticmethod(jax.nn.gelu)
    maximum = staticmethod(jnp.maximum)
    mean = staticmethod(jnp.mean)
    relu = staticmethod(jax.nn.relu)
    reshape = staticmethod(jnp.reshape)
    rsqrt = staticmethod(lax.rsqrt)
    silu = staticmethod(jax.nn.silu)
    softmax = staticmethod(jax.nn.softmax)
    split = staticmethod(jnp.split)
    sum = staticmethod(jnp.sum)
    tanh = staticmethod(jnp.tanh)
    transpose = staticmethod(jnp.transpose)

    # Follows JAX's jax_enable_x64.
    wide = property(lambda _self: param_dtype())

    def __init__(
        self,
        *values: Any,
        key: Array | None = None,
        fuses_attention: bool = False,
        whole: Callable[[str, Array], Array] | None = None,
    ) -> None:
        super().__init__(*values)
        self.key = key
        self.fuses_attention = fuses_attention
        self.whole = whole

    def parameter(self, name: str) -> Array:
        value = super().parameter(name)
        return self.whole(name, value) if self.whole else value

    @staticmethod
    def cast(x: Any, dtype: Any) -> Array:
        return jnp.asarray(x).astype(dtype)

    def convolve(self, x: Array, kernel: Array, size: int, stride: int) -> Array:
        if size == 1 and self.layout == "NHWC":
            # XLA's matrix product on a CPU is faster than its convolution.
            return contract("nhwi,io->nhwo", x[:, ::stride, ::stride], kernel[0, 0])
        strides = (stride, stride)
        padding = [(size // 2, size // 2)] * 2
        axes = (self.layout, "HWIO", self.layout)
        return lax.conv_general_dilated(x, kernel, strides, padding, dimension_numbers=axes)

    def product(self, a: Array, b: Array, *, transposed: bool = False) -> Array:
        # Rows are not merged to one matrix: XLA would compute the weights' gradient in float32.
        batch = "abcd"[: a.ndim - 2]
        b_batch = batch if b.ndim > 2 else ""
        b_matrix = "yi" if transposed else "iy"
        return contract(f"{batch}xi,{b_batch}{b_matrix}->{batch}xy", a, b)

    def causal_mask(self, _x: Array) -> None:
        """Return the mask for attention to no later token: None, since attention applies it, so
        that no array holds it."""

    def masked(self, scores: Array, mask: Array | None) -> Array:
        if mask is not None:
            return super().masked(scores, mask)
        square = scores.shape[-2:]
        is_seen = lax.broadcasted_iota(jnp.int32, square, 0) >= lax.broadcasted_iota(
            jnp.int32, square, 1
        )
        return jnp.where(is_seen, scores, -jnp.inf)

    def attention(
        self,
        parts: Iterable[Array],
        heads: int,
        mask: Array | None,
        dropout: float,
        kv_heads: int | None = None,
    ) -> Array:
        query, key, value = parts
        batch, length, width = query.shape
        # cuDNN's backward pass supports even lengths only.
        if mask is not None or not self.fuses_attention or length % 2:
            return super().attention((query, key, value), heads, mask, dropout, kv_heads)
        kv_shape = (batch, length, kv_heads or heads, -1)
        attended = jax.nn.dot_product_attention(
            self.factor(query).reshape(batch, length, heads, -1),
            self.factor(key).reshape(kv_shape),
            self.factor(value).reshape(kv_shape),
            is_causal=True,
            implementation="cudnn",
        )
        return attended.reshape(batch, length, width)

    def rows(self, table: Array, indices: Array) -> Array:
        return table[indices]

    def rows_of_each(self, x: Array, positions: Array) -> Array:
        return jnp.take_along_axis(x, positions[:, :, None], 1)

    def cross_entropies(self, logits: Array, labels: Array) -> Array:
        logits = logits.astype(self.wide)
        labelled = jnp.take_along_axis(logits, labels.reshape(-1, 1), 1)[:, 0]
        return jax.nn.logsumexp(logits, axis=1) - labelled

    def head(self, name: str, x: Array, labels: Array | None, *_sizes: Any) -> Array:
        """Return the mean cross entropy of all rows with a table of all classes as in `logits`;
        without labels, the class with the largest logit of each row."""
        return self._head(self.table(name), x, labels)

    def tied_head(self, _name: str, x: Array, labels: Array | None, embedding: str) -> Array:
        """Return what `head` returns, with an embedding's table."""
        return self._head(self.table(embedding), x, labels)

    def _head(self, table: Array, x: Array, labels: Array | None) -> Array:
        rows = x.reshape(-1, x.shape[-1])
        if labels is None:
            parts = networks.loss_parts(len(rows))
            classes = [jnp.argmax(self.logits(rows[part], table), -1) for part in parts]
            return jnp.concatenate(classes)
        total = self._sum_of_losses(table, rows, labels.reshape(-1))
        return total / len(rows)

    def _sum_of_losses(self, table: Array, rows: Array, labels: Array) -> Array:
        """Return the sum of the rows' cross entropies. Parts of the rows are the turns of a
        loop, which computes the logits of each again in the backward pass: XLA would compute
        those of parts outside a loop only once, and keep them."""

        def sum_of_part(rows: Array, labels: Array) -> Array:
            return self.cross_entropies(self.logits(rows, table), labels).sum()

        def add_part(total: Array, part: tuple[Array, Array]) -> tuple[Array, None]:
            return total + sum_of_part(*part), None

        turns, rest = divmod(len(rows), networks.LOSS_ROWS)
        if turns == 0 or (turns == 1 and rest == 0):
            return sum_of_part(rows, labels)
        looped = len(rows) - rest
        rows_by_turn = rows[:looped].reshape(turns, networks.LOSS_ROWS, -1)
        labels_by_turn = labels[:looped].reshape(turns, networks.LOSS_ROWS)
        add_part = jax.checkpoint(add_part, prevent_cse=False)
        zero = jnp.zeros((), self.wide)
        total, _ = lax.scan(add_part, zero, (rows_by_turn, labels_by_turn))
        if rest:
            total += jax.checkpoint(sum_of_part)(rows[looped:], labels[looped:])
        return total

    def dropout(self, x: Array, rate: float) -> Array:
        if self.key is None:
            return x
        self.key, key = jax.random.split(self.key)
        is_kept = jax.random.bernoulli(key, 1 - rate, x.shape)
        return jnp.where(is_kept, x / (1 - rate), 0)

    def max_pool(self, x: Array, size: int, stride: int, padding: int) -> Array:
        # The CPU gradient of lax.reduce_window is many times slower than that of comparing
        # the values at each place of a window in turn.
        margins = [(0, 0)] * 4
        for axis in self.spatial:
            margins[axis] = (padding, padding)
        x = jnp.pad(x, margins, constant_values=-jnp.inf)
        largest = None
        for begins in product(range(size), repeat=2):
            places = [slice(None)] * 4
            for axis, begin in zip(self.spatial, begins, strict=True):
                end = begin + x.shape[axis] - size + 1
                places[axis] = slice(begin, end, stride)
            values = x[tuple(places)]
            if largest is None:
                largest = values
            else:
                largest = jnp.where(values > largest, values, largest)
        return largest
