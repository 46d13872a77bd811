"""BERT pre-training on masked words and next sentences, with Hugging Face's names (Devlin et
al., BERT: pre-training of deep bidirectional transformers, 2018)."""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jax import Array
from jax import numpy as jnp

from perfkit.training.jax.layers import (
    Shapes,
    Weights,
    attention,
    by_head,
    dense,
    dense_shapes,
    dropout,
    initial_values,
    layer_norm,
    logits_of,
    norm_shapes,
    split,
)
from perfkit.training.models import BERT_SIZE, BertSize

EPSILON = 1e-12


def bert(
    weights: Weights,
    ids: Array,
    segments: Array,
    mask: Array,
    positions: Array,
    *,
    size: BertSize = BERT_SIZE,
    dtype: Any = jnp.float32,
    rng: Array | None = None,
) -> tuple[Array, Array]:
    """Return the logits of the words at the masked `positions` (batch x predictions x
    vocabulary) and of the next sentence (batch x 2), with products in `dtype`. `ids`,
    `segments` and `mask`, which is 0 for padding, are batch x length. Without a random key,
    there is no dropout."""
    first_rng, *layer_rngs = split(rng, 1 + size.layers)
    x = dropout(embedded(weights, ids, segments), size.dropout, first_rng)
    # Added to the attention scores: 0, and for padding a number that float16 has too.
    added = (1 - mask[:, None, None].astype(x.dtype)) * -1e4
    for number, layer_rng in enumerate(layer_rngs):
        x = layer(weights, f"bert.encoder.layer.{number}", x, added, size, dtype, layer_rng)
    pooled = jnp.tanh(dense(weights, "bert.pooler.dense", x[:, 0].astype(dtype)))
    sentences = dense(weights, "cls.seq_relationship", pooled)
    masked = jnp.take_along_axis(x, positions[:, :, None], 1)
    y = dense(weights, "cls.predictions.transform.dense", masked.astype(dtype))
    y = jax.nn.gelu(y, approximate=False)
    y = layer_norm(weights, "cls.predictions.transform.LayerNorm", y, EPSILON)
    words = logits_of(y, weights["bert.embeddings.word_embeddings.weight"])
    return words + weights["cls.predictions.bias"].astype(dtype), sentences


def embedded(weights: Weights, ids: Array, segments: Array) -> Array:
    name = "bert.embeddings"
    positions = weights[f"{name}.position_embeddings.weight"][: ids.shape[1]]
    x = weights[f"{name}.word_embeddings.weight"][ids] + positions
    x = x + weights[f"{name}.token_type_embeddings.weight"][segments]
    return layer_norm(weights, f"{name}.LayerNorm", x, EPSILON)


def layer(
    weights: Weights,
    name: str,
    x: Array,
    mask: Array,
    size: BertSize,
    dtype: Any,
    rng: Array | None,
) -> Array:
    rngs = split(rng, 3)
    y = x.astype(dtype)
    query = by_head(dense(weights, f"{name}.attention.self.query", y), size.heads)
    key = by_head(dense(weights, f"{name}.attention.self.key", y), size.heads)
    value = by_head(dense(weights, f"{name}.attention.self.value", y), size.heads)
    y = attention(query, key, value, mask, size.dropout, rngs[0])
    y = dense(weights, f"{name}.attention.output.dense", y)
    x = x + dropout(y, size.dropout, rngs[1])
    x = layer_norm(weights, f"{name}.attention.output.LayerNorm", x, EPSILON)
    y = dense(weights, f"{name}.intermediate.dense", x.astype(dtype))
    y = dense(weights, f"{name}.output.dense", jax.nn.gelu(y, approximate=False))
    x = x + dropout(y, size.dropout, rngs[2])
    return layer_norm(weights, f"{name}.output.LayerNorm", x, EPSILON)


def shapes(size: BertSize) -> Shapes:
    width = size.width
    name = "bert.embeddings"
    found: Shapes = {
        f"{name}.word_embeddings.weight": (size.vocabulary, width),
        f"{name}.position_embeddings.weight": (size.positions, width),
        f"{name}.token_type_embeddings.weight": (2, width),
        **norm_shapes(f"{name}.LayerNorm", width),
    }
    for number in range(size.layers):
        name = f"bert.encoder.layer.{number}"
        for part in ("self.query", "self.key", "self.value", "output.dense"):
            found |= dense_shapes(f"{name}.attention.{part}", width, width)
        found |= norm_shapes(f"{name}.attention.output.LayerNorm", width)
        found |= dense_shapes(f"{name}.intermediate.dense", width, 4 * width)
        found |= dense_shapes(f"{name}.output.dense", 4 * width, width)
        found |= norm_shapes(f"{name}.output.LayerNorm", width)
    found |= dense_shapes("bert.pooler.dense", width, width)
    found |= dense_shapes("cls.predictions.transform.dense", width, width)
    found |= norm_shapes("cls.predictions.transform.LayerNorm", width)
    found["cls.predictions.bias"] = (size.vocabulary,)
    return found | dense_shapes("cls.seq_relationship", width, 2)


def initial_weights(
    size: BertSize, random: np.random.Generator
) -> Iterator[tuple[str, np.ndarray]]:
    for name, shape in shapes(size).items():
        yield name, initial_values(name, shape, 0.02, random)
