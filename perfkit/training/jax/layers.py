"""Layers as functions of a flat dict of weights, by the names of PyTorch's modules.

A dense layer's weight is inputs x outputs. Products compute in the dtype of their activations,
accumulated in float32; norms, softmax and losses compute in float32. In place of float32 it is
float64 throughout, where the weights are.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

Weights = Mapping[str, Array]
Shapes = dict[str, tuple[int, ...]]
"""Shapes of weights by name."""


def dense_shapes(name: str, inputs: int, outputs: int) -> Shapes:
    return {f"{name}.weight": (inputs, outputs), f"{name}.bias": (outputs,)}


def norm_shapes(name: str, width: int) -> Shapes:
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}


def initial_values(
    name: str, shape: tuple[int, ...], deviation: float, random: np.random.Generator
) -> np.ndarray:
    """Return the first values of a weight: 0 of a bias, 1 of a norm, others normal with this
    standard deviation."""
    if name.endswith("bias"):
        return np.zeros(shape, np.float32)
    if len(shape) == 1:
        return np.ones(shape, np.float32)
    return random.standard_normal(shape, np.float32) * np.float32(deviation)


def wide(x: Array) -> Array:
    """Return half precision as float32."""
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def contract(equation: str, a: Array, b: Array) -> Array:
    """Return the einsum of two factors of the same dtype, accumulated in float32. Its gradients
    are computed likewise; JAX's own rule would multiply them in float32 for any dtype."""
    accumulated = jnp.promote_types(a.dtype, jnp.float32)
    return jnp.einsum(equation, a, b, preferred_element_type=accumulated).astype(a.dtype)


def contract_forward(equation: str, a: Array, b: Array) -> tuple[Array, Any]:
    return contract(equation, a, b), (a, b)


def contract_backward(equation: str, factors: Any, gradient: Array) -> tuple[Array, Array]:
    a, b = factors
    axes, result = equation.split("->")
    a_axes, b_axes = axes.split(",")
    a_gradient = contract(f"{result},{b_axes}->{a_axes}", gradient, b)
    b_gradient = contract(f"{a_axes},{result}->{b_axes}", a, gradient)
    return a_gradient, b_gradient


contract.defvjp(contract_forward, contract_backward)


def dense(weights: Weights, name: str, x: Array) -> Array:
    """Apply a dense layer, which may have a bias, to the last axis."""
    # Rows are not merged to one matrix: XLA would compute the weight's gradient in float32.
    rows = "abc"[: x.ndim - 1]
    y = contract(f"{rows}i,io->{rows}o", x, weights[f"{name}.weight"].astype(x.dtype))
    bias = weights.get(f"{name}.bias")
    return y if bias is None else y + bias.astype(y.dtype)


def logits_of(x: Array, table: Array) -> Array:
    """Return the products of the last axis with all rows of an embedding."""
    rows = "abc"[: x.ndim - 1]
    return contract(f"{rows}i,oi->{rows}o", x, table.astype(x.dtype))


def layer_norm(weights: Weights, name: str, x: Array, epsilon: float) -> Array:
    y = wide(x)
    y = y - y.mean(-1, keepdims=True)
    variance = (y * y).mean(-1, keepdims=True)
    y = y * lax.rsqrt(variance + epsilon)
    return (y * weights[f"{name}.weight"] + weights[f"{name}.bias"]).astype(x.dtype)


def dropout(x: Array, rate: float, rng: Array | None) -> Array:
    """Set each value to 0 with probability `rate`; without a random key, none."""
    if rng is None or not rate:
        return x
    is_kept = jax.random.bernoulli(rng, 1 - rate, x.shape)
    return jnp.where(is_kept, x / (1 - rate), 0)


def split(rng: Array | None, count: int) -> Sequence[Any]:
    """Return as many random keys; without one, None for each."""
    return [None] * count if rng is None else jax.random.split(rng, count)


def by_head(x: Array, heads: int) -> Array:
    """Return batch x length x heads x head width for batch x length x width."""
    return x.reshape(*x.shape[:2], heads, -1)


def attention(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    rate: float = 0.0,
    rng: Array | None = None,
) -> Array:
    """Return batch x length x width for batch x length x heads x head width. Key and value may
    have fewer heads, each shared by as many query heads in a row. `mask` is added to the
    scores; without it, attention is causal. `rate` and `rng` are those of dropout.

    It consists of products, since JAX has no fused kernel on a CPU, and the gradients of its
    own unfused one are float32 for any dtype of the factors.
    """
    batch, length, heads, width = query.shape
    query, key, value = (x.transpose(0, 2, 1, 3) for x in (query, key, value))
    # The rows of all query heads that share a key head form one matrix.
    query = (query * width**-0.5).reshape(batch, key.shape[1], -1, width)
    scores = contract("bhqw,bhkw->bhqk", query, key)
    scores = wide(scores.reshape(batch, heads, length, length))
    scores = without_later_tokens(scores) if mask is None else scores + mask
    shares = dropout(jax.nn.softmax(scores), rate, rng).astype(value.dtype)
    shares = shares.reshape(*query.shape[:3], length)
    attended = contract("bhqk,bhkw->bhqw", shares, value)
    attended = attended.reshape(batch, heads, length, width)
    return attended.transpose(0, 2, 1, 3).reshape(batch, length, -1)


def without_later_tokens(scores: Array) -> Array:
    """Return scores of minus infinity for later tokens. Positions are compared here, so that no
    array holds all pairs of tokens."""
    square = scores.shape[-2:]
    rows = lax.broadcasted_iota(jnp.int32, square, 0)
    columns = lax.broadcasted_iota(jnp.int32, square, 1)
    return jnp.where(rows >= columns, scores, -jnp.inf)


def causal_attention(query: Array, key: Array, value: Array, *, fused: bool) -> Array:
    """See attention. `fused`: by cuDNN where it supports the length."""
    # cuDNN's backward pass supports even lengths only.
    if not fused or query.shape[1] % 2:
        return attention(query, key, value)
    attended = jax.nn.dot_product_attention(
        query, key, value, is_causal=True, implementation="cudnn"
    )
    return attended.reshape(*attended.shape[:2], -1)


def cross_entropies(logits: Array, labels: Array) -> Array:
    """Return the cross entropy of each row (rows x classes)."""
    logits = wide(logits)
    labelled = jnp.take_along_axis(logits, labels[:, None], 1)[:, 0]
    return jax.nn.logsumexp(logits, axis=1) - labelled
