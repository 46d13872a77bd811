"""Llama 3 with Hugging Face's names (Grattafiori et al., The Llama 3 herd of models, 2024),
without the scaling of the rotation that extends the context after pre-training."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from perfkit.training.jax.layers import (
    Shapes,
    Weights,
    by_head,
    causal_attention,
    cross_entropies,
    dense,
    initial_values,
    logits_of,
    wide,
)
from perfkit.training.models import LLAMA_SIZES, LlamaSize

EPSILON = 1e-5
LOSS_ROWS = 8192
"""Rows whose logits exist at the same time: 4 GiB in float32. Those of 131,072 tokens, 63 GiB,
would fill a GPU. With more rows, logits are computed again in the backward pass."""
Tables = tuple[np.ndarray, np.ndarray]
Checkpoint = Callable[[Callable[..., Array]], Callable[..., Array]]


def llama(
    weights: Weights,
    ids: Array,
    labels: Array | None = None,
    size: LlamaSize = LLAMA_SIZES["tiny"],
    **how: Any,
) -> Array:
    """Return the mean loss of token ids (batch x length); without labels, the logits. `how` are
    the keyword arguments of `hidden`."""
    x = hidden(weights, ids, size, **how)
    table = output_table(weights, size)
    return logits_of(x, table) if labels is None else loss_of(table, x, labels)


def hidden(
    weights: Weights,
    ids: Array,
    size: LlamaSize,
    *,
    dtype: Any = jnp.float32,
    fused: bool = False,
    checkpoint: Checkpoint = lambda layer: layer,
) -> Array:
    """Return what the output layer gets (batch x length x width), with products in `dtype`.
    `fused`: whether attention is cuDNN's. `checkpoint`, such as jax.checkpoint, chooses what a
    layer keeps for the backward pass."""
    x = weights["model.embed_tokens.weight"][ids]
    tables = rotation(size, ids.shape[1])
    for number in range(size.layers):
        name = f"model.layers.{number}"
        layer = partial(decoder_layer, weights, name, tables, size, dtype, fused)
        x = checkpoint(layer)(x)
    return rms_norm(weights, "model.norm", x).astype(dtype)


def decoder_layer(
    weights: Weights,
    name: str,
    tables: Tables,
    size: LlamaSize,
    dtype: Any,
    fused: bool,
    x: Array,
) -> Array:
    y = rms_norm(weights, f"{name}.input_layernorm", x).astype(dtype)
    query = by_head(dense(weights, f"{name}.self_attn.q_proj", y), size.heads)
    key = by_head(dense(weights, f"{name}.self_attn.k_proj", y), size.kv_heads)
    value = by_head(dense(weights, f"{name}.self_attn.v_proj", y), size.kv_heads)
    query, key = rotated(query, tables), rotated(key, tables)
    y = causal_attention(query, key, value, fused=fused)
    x = x + dense(weights, f"{name}.self_attn.o_proj", y)
    y = rms_norm(weights, f"{name}.post_attention_layernorm", x).astype(dtype)
    gate = jax.nn.silu(dense(weights, f"{name}.mlp.gate_proj", y))
    y = gate * dense(weights, f"{name}.mlp.up_proj", y)
    return x + dense(weights, f"{name}.mlp.down_proj", y)


def rms_norm(weights: Weights, name: str, x: Array) -> Array:
    """Divide by the root mean square of the last axis (Zhang and Sennrich, 2019)."""
    y = wide(x)
    y = y * lax.rsqrt((y * y).mean(-1, keepdims=True) + EPSILON)
    return (y * weights[f"{name}.weight"]).astype(x.dtype)


def rotation(size: LlamaSize, length: int) -> Tables:
    """Return the cosines and sines by which the pairs of values of a head rotate at each
    position (length x head width / 2). Pair i has values i and i + head width / 2."""
    exponents = np.arange(0, size.head_width, 2) / size.head_width
    angles = np.outer(np.arange(length), size.theta**-exponents)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def rotated(x: Array, tables: Tables) -> Array:
    """Rotate queries or keys (batch x length x heads x head width), in float32."""
    cosines, sines = (table[:, None] for table in tables)
    first, second = jnp.split(wide(x), 2, -1)
    pairs = first * cosines - second * sines, second * cosines + first * sines
    return jnp.concatenate(pairs, -1).astype(x.dtype)


def output_table(weights: Weights, size: LlamaSize) -> Array:
    """Return the output layer's weight (vocabulary x width)."""
    name = "model.embed_tokens" if size.is_tied else "lm_head"
    return weights[f"{name}.weight"]


def loss_of(table: Array, x: Array, labels: Array) -> Array:
    """Return the mean cross entropy of all rows. Parts of the rows are the turns of a loop,
    which computes the logits of each again in the backward pass: XLA would compute those of
    parts outside a loop only once, and keep them."""

    def sum_of_part(rows: Array, labels: Array) -> Array:
        return cross_entropies(logits_of(rows, table), labels).sum()

    def add_part(total: Array, part: tuple[Array, Array]) -> tuple[Array, None]:
        return total + sum_of_part(*part), None

    rows, labels = x.reshape(-1, x.shape[-1]), labels.ravel()
    if len(rows) <= LOSS_ROWS:
        return sum_of_part(rows, labels) / len(rows)
    turns, rest = divmod(len(rows), LOSS_ROWS)
    looped = len(rows) - rest
    parts = (
        rows[:looped].reshape(turns, LOSS_ROWS, -1),
        labels[:looped].reshape(turns, LOSS_ROWS),
    )
    zero = jnp.zeros((), wide(rows).dtype)
    total, _ = lax.scan(jax.checkpoint(add_part, prevent_cse=False), zero, parts)
    if rest:
        total += jax.checkpoint(sum_of_part)(rows[looped:], labels[looped:])
    return total / len(rows)


def shapes(size: LlamaSize) -> Shapes:
    width, kv_width = size.width, size.kv_heads * size.head_width
    found: Shapes = {"model.embed_tokens.weight": (size.vocabulary, width)}
    for number in range(size.layers):
        name = f"model.layers.{number}"
        found |= {
            f"{name}.input_layernorm.weight": (width,),
            f"{name}.self_attn.q_proj.weight": (width, width),
            f"{name}.self_attn.k_proj.weight": (width, kv_width),
            f"{name}.self_attn.v_proj.weight": (width, kv_width),
            f"{name}.self_attn.o_proj.weight": (width, width),
            f"{name}.post_attention_layernorm.weight": (width,),
            f"{name}.mlp.gate_proj.weight": (width, size.inner),
            f"{name}.mlp.up_proj.weight": (width, size.inner),
            f"{name}.mlp.down_proj.weight": (size.inner, width),
        }
    found["model.norm.weight"] = (width,)
    if not size.is_tied:
        found["lm_head.weight"] = (size.vocabulary, width)
    return found


def initial_weights(
    size: LlamaSize, random: np.random.Generator
) -> Iterator[tuple[str, np.ndarray]]:
    for name, shape in shapes(size).items():
        # The products that write to the residual stream begin smaller, as in GPT-2.
        is_residual = name.endswith(("o_proj.weight", "down_proj.weight"))
        scale = (2 * size.layers) ** -0.5 if is_residual else 1.0
        yield name, initial_values(name, shape, 0.02 * scale, random)
