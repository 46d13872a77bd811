"""GPT-2 with Hugging Face's names (Radford et al., Language models are unsupervised multitask
learners, 2019). As in nanoGPT, the vocabulary is padded to a multiple of 64 and there is no
dropout."""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jax import Array
from jax import numpy as jnp

from perfkit.training.jax.layers import (
    Shapes,
    Weights,
    by_head,
    causal_attention,
    dense,
    dense_shapes,
    initial_values,
    layer_norm,
    logits_of,
    norm_shapes,
)
from perfkit.training.models import GPT_SIZES, GptSize

EPSILON = 1e-5


def gpt(
    weights: Weights,
    ids: Array,
    *,
    size: GptSize = GPT_SIZES["124M"],
    dtype: Any = jnp.float32,
    fused: bool = False,
) -> Array:
    """Return the logits (batch x length x vocabulary) of token ids (batch x length), with
    products in `dtype`. `fused`: whether attention is cuDNN's."""
    embedding = weights["transformer.wte.weight"]
    x = embedding[ids] + weights["transformer.wpe.weight"][: ids.shape[1]]
    for number in range(size.layers):
        x = block(weights, f"transformer.h.{number}", x, size.heads, dtype, fused=fused)
    x = layer_norm(weights, "transformer.ln_f", x, EPSILON)
    return logits_of(x.astype(dtype), embedding)


def block(
    weights: Weights, name: str, x: Array, heads: int, dtype: Any, *, fused: bool
) -> Array:
    y = layer_norm(weights, f"{name}.ln_1", x, EPSILON).astype(dtype)
    y = by_head(dense(weights, f"{name}.attn.c_attn", y), 3 * heads)
    query, key, value = jnp.split(y, 3, axis=2)
    y = causal_attention(query, key, value, fused=fused)
    x = x + dense(weights, f"{name}.attn.c_proj", y)
    y = layer_norm(weights, f"{name}.ln_2", x, EPSILON).astype(dtype)
    y = jax.nn.gelu(dense(weights, f"{name}.mlp.c_fc", y), approximate=True)
    return x + dense(weights, f"{name}.mlp.c_proj", y)


def shapes(size: GptSize) -> Shapes:
    width = size.width
    found: Shapes = {
        "transformer.wte.weight": (size.vocabulary, width),
        "transformer.wpe.weight": (size.positions, width),
    }
    for number in range(size.layers):
        name = f"transformer.h.{number}"
        found |= norm_shapes(f"{name}.ln_1", width)
        found |= dense_shapes(f"{name}.attn.c_attn", width, 3 * width)
        found |= dense_shapes(f"{name}.attn.c_proj", width, width)
        found |= norm_shapes(f"{name}.ln_2", width)
        found |= dense_shapes(f"{name}.mlp.c_fc", width, 4 * width)
        found |= dense_shapes(f"{name}.mlp.c_proj", 4 * width, width)
    return found | norm_shapes("transformer.ln_f", width)


def initial_weights(
    size: GptSize, random: np.random.Generator
) -> Iterator[tuple[str, np.ndarray]]:
    for name, shape in shapes(size).items():
        # The products that write to the residual stream begin smaller.
        is_residual = name.endswith("c_proj.weight")
        scale = (2 * size.layers) ** -0.5 if is_residual else 1.0
        yield name, initial_values(name, shape, 0.02 * scale, random)
