"""BERT-base pre-training as a function of a forward pass; perfkit.models.bert names the source.

Paddle cuts the normal distribution of the first weights off at -2 and 2, which is as good as
not at all.
"""

from perfkit.frameworks.functional.layers import Array, Forward, constant, normal
from perfkit.models import bert as facts


def _dense(run: Forward, name: str, x: Array, inputs: int, outputs: int) -> Array:
    return run.dense(name, x, inputs, outputs, normal(facts.DEVIATION))


class Bert:
    """Ids, segments and mask of batch x length, and the positions of masked words of batch x P,
    to logits of (batch * P) x vocabulary for the words and batch x 2 for the next sentence."""

    inputs = 4
    attention = "unfused"

    def __call__(
        self, run: Forward, ids: Array, segments: Array, mask: Array, masked_positions: Array
    ) -> tuple[Array, Array]:
        batch, length = ids.shape
        width, sizes = facts.WIDTH, (facts.WIDTH, facts.DEVIATION)
        words = run.embedding("word_embeddings", facts.VOCABULARY, *sizes)
        positions = run.embedding("position_embeddings", facts.POSITIONS, *sizes)
        token_types = run.embedding("token_type_embeddings", 2, *sizes)
        x = run.rows(words, ids) + positions[:length] + run.rows(token_types, segments)
        x = run.layer_norm("embedding_norm", x, width, facts.EPSILON)
        x = run.dropout(x, facts.DROPOUT)
        added = (1 - run.cast(mask, x.dtype)) * facts.MASKED
        added = run.reshape(added, (batch, 1, 1, length))
        for number in range(facts.LAYERS):
            x = _layer(run, f"layers.{number}", x, added)
        pooled = run.tanh(_dense(run, "pooler", x[:, 0], width, width))
        nsp_logits = _dense(run, "seq_relationship", pooled, width, 2)

        masked = run.rows_of_each(x, masked_positions)
        masked = run.gelu(_dense(run, "transform", masked, width, width), approximate=False)
        masked = run.layer_norm("transform_norm", masked, width, facts.EPSILON)
        masked, words = run.cast(masked, run.dtype), run.cast(words, run.dtype)
        mlm_logits = run.product(masked, words, transposed=True)
        bias = run.parameter("decoder_bias", constant(0.0), facts.VOCABULARY)
        mlm_logits = run.reshape(run.add_bias(mlm_logits, bias), (-1, facts.VOCABULARY))
        return mlm_logits, nsp_logits

    @staticmethod
    def loss(
        run: Forward, logits: tuple[Array, Array], masked_ids: Array, next_sentence: Array
    ) -> Array:
        """Mean over the masked words of the batch plus mean over its pairs of sentences."""
        mlm_logits, nsp_logits = logits
        counted = run.cast(run.reshape(masked_ids, (-1,)) != facts.PADDING, run.wide)
        lost = run.sum(run.cross_entropies(mlm_logits, masked_ids) * counted)
        mean = lost / run.maximum(run.sum(counted), 1)
        return mean + run.mean(run.cross_entropies(nsp_logits, next_sentence))


def _layer(run: Forward, name: str, x: Array, mask: Array) -> Array:
    """Self-attention and a dense block of batch x length x width, each added and normalized."""
    width, inner = facts.WIDTH, facts.INNER
    names = ("query", "key", "value")
    parts = (_dense(run, f"{name}.{part}", x, width, width) for part in names)
    attended = run.attention(parts, facts.HEADS, mask, facts.DROPOUT)
    y = _dense(run, f"{name}.out_proj", attended, width, width)
    x = run.add(x, run.dropout(y, facts.DROPOUT))
    x = run.layer_norm(f"{name}.attention_norm", x, width, facts.EPSILON)
    y = run.gelu(_dense(run, f"{name}.fc1", x, width, inner), approximate=False)
    y = run.dropout(_dense(run, f"{name}.fc2", y, inner, width), facts.DROPOUT)
    return run.layer_norm(f"{name}.output_norm", run.add(x, y), width, facts.EPSILON)
