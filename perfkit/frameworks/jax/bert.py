"""BERT-base pre-training in JAX; perfkit.models.bert names the source.

Paddle cuts the normal distribution of the first weights off at -2 and 2, which is as good as
not at all.
"""

from typing import Any

import jax
from jax import Array
from jax import numpy as jnp

from perfkit.frameworks.jax.layers import (
    Forward,
    constant,
    cross_entropies,
    normal,
    param_dtype,
    product,
)
from perfkit.models import bert as facts


def _gelu(x: Array) -> Array:
    return jax.nn.gelu(x, approximate=False)


def _dense(run: Forward, name: str, x: Array, outputs: int) -> Array:
    return run.dense(name, x, outputs, normal(facts.DEVIATION))


def _embedding(run: Forward, name: str, size: int) -> Array:
    return run.parameter(f"{name}.weight", normal(facts.DEVIATION), size, facts.WIDTH)


class Bert:
    """Ids, segments and mask of batch x length, and the positions of masked words of batch x P,
    to logits of (batch * P) x vocabulary for the words and batch x 2 for the next sentence."""

    inputs = 4

    def example(self, _layout: str) -> tuple[Any, ...]:
        return (jax.ShapeDtypeStruct((1, 16), jnp.int32),) * self.inputs

    def __call__(
        self, run: Forward, ids: Array, segments: Array, mask: Array, masked_positions: Array
    ) -> tuple[Array, Array]:
        batch, length = ids.shape
        words = _embedding(run, "word_embeddings", facts.VOCABULARY)
        positions = _embedding(run, "position_embeddings", facts.POSITIONS)
        token_types = _embedding(run, "token_type_embeddings", 2)
        x = words[ids] + positions[:length] + token_types[segments]
        x = run.dropout(run.layer_norm("embedding_norm", x, facts.EPSILON), facts.DROPOUT)
        added = ((1 - mask.astype(x.dtype)) * facts.MASKED).reshape(batch, 1, 1, length)
        for number in range(facts.LAYERS):
            x = _layer(run, f"layers.{number}", x, added)
        pooled = jnp.tanh(_dense(run, "pooler", x[:, 0], facts.WIDTH))
        nsp_logits = _dense(run, "seq_relationship", pooled, 2)

        masked = jnp.take_along_axis(x, masked_positions[:, :, None], 1)
        masked = _gelu(_dense(run, "transform", masked, facts.WIDTH))
        masked = run.layer_norm("transform_norm", masked, facts.EPSILON).astype(run.dtype)
        mlm_logits = product("bpi,vi->bpv", masked, words.astype(run.dtype))
        bias = run.parameter("decoder_bias", constant(0.0), facts.VOCABULARY)
        mlm_logits = mlm_logits + bias.astype(mlm_logits.dtype)
        return mlm_logits.reshape(-1, facts.VOCABULARY), nsp_logits

    @staticmethod
    def loss(logits: tuple[Array, Array], masked_ids: Array, next_sentence: Array) -> Array:
        """Mean over the masked words of the batch plus mean over its pairs of sentences."""
        mlm_logits, nsp_logits = logits
        counted = masked_ids.reshape(-1) != facts.PADDING
        lost = jnp.where(counted, cross_entropies(mlm_logits, masked_ids), 0).sum()
        mean = lost / jnp.maximum(counted.sum(), 1)
        return mean + cross_entropies(nsp_logits, next_sentence).mean()


def _layer(run: Forward, name: str, x: Array, mask: Array) -> Array:
    """Self-attention and a dense block of batch x length x width, each added and normalized."""
    width = facts.WIDTH // facts.HEADS
    query, key, value = (
        _dense(run, f"{name}.{part}", x, facts.WIDTH)
        .reshape(*x.shape[:2], facts.HEADS, width)
        .transpose(0, 2, 1, 3)
        for part in ("query", "key", "value")
    )
    scores = product("bhqd,bhkd->bhqk", query * width**-0.5, key)
    shares = run.dropout(jax.nn.softmax(scores.astype(param_dtype()) + mask), facts.DROPOUT)
    attended = product("bhqk,bhkd->bhqd", shares.astype(run.dtype), value)
    attended = attended.transpose(0, 2, 1, 3).reshape(x.shape)
    y = _dense(run, f"{name}.out_proj", attended, facts.WIDTH)
    x = x + run.dropout(y, facts.DROPOUT)
    x = run.layer_norm(f"{name}.attention_norm", x, facts.EPSILON)
    y = _gelu(_dense(run, f"{name}.fc1", x, facts.INNER))
    y = run.dropout(_dense(run, f"{name}.fc2", y, facts.WIDTH), facts.DROPOUT)
    return run.layer_norm(f"{name}.output_norm", x + y, facts.EPSILON)
