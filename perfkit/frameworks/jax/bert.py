"""BERT-base pre-training in JAX: what bert_paddle.py does, by the same names.

Paddle cuts the normal distribution of the first weights off at -2 and 2, which is as good as
not at all.
"""

import jax
from jax import Array
from jax import numpy as jnp

from perfkit.frameworks.jax.layers import (
    First,
    Firsts,
    Forward,
    cross_entropies,
    norm,
    product,
    wide_type,
)
from perfkit.models.architecture import BERT_DEVIATION as DEVIATION
from perfkit.models.architecture import BERT_DROPOUT as DROPOUT
from perfkit.models.architecture import BERT_EPSILON as EPSILON
from perfkit.models.architecture import BERT_HEADS as HEADS
from perfkit.models.architecture import BERT_INNER as INNER
from perfkit.models.architecture import BERT_LAYERS as LAYERS
from perfkit.models.architecture import BERT_MASKED as MASKED
from perfkit.models.architecture import BERT_POSITIONS as POSITIONS
from perfkit.models.architecture import BERT_WIDTH as WIDTH
from perfkit.models.data import PADDING, VOCABULARY


def _dense(name: str, inputs: int, outputs: int) -> Firsts:
    return {
        f"{name}.weight": First.normal(DEVIATION, inputs, outputs),
        f"{name}.bias": First.constant(0.0, outputs),
    }


def _gelu(x: Array) -> Array:
    return jax.nn.gelu(x, approximate=False)


class Bert:
    """Ids, segments and mask of batch x length, and the positions of masked words of batch x P,
    to the words' scores of (batch * P) x vocabulary and the pairs' scores of batch x 2."""

    inputs = 4

    def parameters(self) -> Firsts:
        made = {"word_bias": First.constant(0.0, VOCABULARY)}
        for name, size in (("word", VOCABULARY), ("position", POSITIONS), ("segment", 2)):
            made[f"{name}.weight"] = First.normal(DEVIATION, size, WIDTH)
        made |= norm("norm", WIDTH)
        for number in range(LAYERS):
            layer = f"layers.{number}"
            for part in ("query", "key", "value", "join"):
                made |= _dense(f"{layer}.{part}", WIDTH, WIDTH)
            made |= norm(f"{layer}.norm_attention", WIDTH)
            made |= _dense(f"{layer}.widen", WIDTH, INNER)
            made |= _dense(f"{layer}.narrow", INNER, WIDTH)
            made |= norm(f"{layer}.norm_dense", WIDTH)
        made |= _dense("pool", WIDTH, WIDTH) | _dense("next_sentence", WIDTH, 2)
        return made | _dense("transform", WIDTH, WIDTH) | norm("norm_transform", WIDTH)

    def statistics(self) -> Firsts:
        return {}

    def forward(
        self, run: Forward, ids: Array, segments: Array, mask: Array, masked_positions: Array
    ) -> tuple[Array, Array]:
        batch, length = ids.shape
        word, position, segment = (
            run.parameters[f"{name}.weight"] for name in ("word", "position", "segment")
        )
        x = word[ids] + position[:length] + segment[segments]
        x = run.dropout(run.layer_norm("norm", x, EPSILON), DROPOUT)
        added = ((1 - mask.astype(x.dtype)) * MASKED).reshape(batch, 1, 1, length)
        for number in range(LAYERS):
            x = _layer(run, f"layers.{number}", x, added)
        pairs = run.dense("next_sentence", jnp.tanh(run.dense("pool", x[:, 0])))

        words = jnp.take_along_axis(x, masked_positions[:, :, None], 1)
        words = _gelu(run.dense("transform", words))
        words = run.layer_norm("norm_transform", words, EPSILON).astype(run.dtype)
        scores = product("bpi,vi->bpv", words, run.weight("word"))
        scores = scores + run.parameters["word_bias"].astype(scores.dtype)
        return scores.reshape(-1, VOCABULARY), pairs

    @staticmethod
    def loss(scores: tuple[Array, Array], masked_ids: Array, next_sentence: Array) -> Array:
        """Mean over the masked words of the batch plus mean over its pairs."""
        words, pairs = scores
        used = masked_ids.reshape(-1) != PADDING
        lost = jnp.where(used, cross_entropies(words, masked_ids), 0).sum()
        return lost / jnp.maximum(used.sum(), 1) + cross_entropies(pairs, next_sentence).mean()

    @staticmethod
    def accuracy(
        scores: tuple[Array, Array], masked_ids: Array, _next_sentence: Array
    ) -> Array:
        """The share of masked words that have the highest score."""
        wanted = masked_ids.reshape(-1)
        used = wanted != PADDING
        return ((scores[0].argmax(-1) == wanted) & used).sum() / used.sum()


def _layer(run: Forward, name: str, x: Array, mask: Array) -> Array:
    """Self-attention and a dense block of batch x length x width, each added and normalized."""
    query, key, value = (
        run.dense(f"{name}.{part}", x)
        .reshape(*x.shape[:2], HEADS, WIDTH // HEADS)
        .transpose(0, 2, 1, 3)
        for part in ("query", "key", "value")
    )
    scores = product("bhqd,bhkd->bhqk", query * (WIDTH // HEADS) ** -0.5, key)
    shares = run.dropout(jax.nn.softmax(scores.astype(wide_type()) + mask), DROPOUT)
    attended = product("bhqk,bhkd->bhqd", shares.astype(run.dtype), value)
    attended = attended.transpose(0, 2, 1, 3).reshape(x.shape)
    x = x + run.dropout(run.dense(f"{name}.join", attended), DROPOUT)
    x = run.layer_norm(f"{name}.norm_attention", x, EPSILON)
    y = run.dense(f"{name}.narrow", _gelu(run.dense(f"{name}.widen", x)))
    return run.layer_norm(f"{name}.norm_dense", x + run.dropout(y, DROPOUT), EPSILON)
