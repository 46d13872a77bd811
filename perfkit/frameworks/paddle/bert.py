"""BERT-base pre-training in Paddle; perfkit.models.bert names the source.

Attention is written out, as in the published runs: Paddle 2's fused one has no CPU kernel.
"""

import paddle
from paddle import nn
from paddle.nn import functional

from perfkit.models import bert as facts


def _dense(inputs: int, outputs: int) -> nn.Linear:
    weight = nn.initializer.TruncatedNormal(std=facts.DEVIATION)
    return nn.Linear(inputs, outputs, weight_attr=weight)


def _embedding(size: int) -> nn.Embedding:
    weight = nn.initializer.TruncatedNormal(std=facts.DEVIATION)
    return nn.Embedding(size, facts.WIDTH, weight_attr=weight)


def _norm() -> nn.LayerNorm:
    return nn.LayerNorm(facts.WIDTH, facts.EPSILON)


class Layer(nn.Layer):
    """Self-attention and a dense block of batch x length x width, each added and normalized."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out_proj = (
            _dense(facts.WIDTH, facts.WIDTH) for _ in range(4)
        )
        self.attention_norm = _norm()
        self.fc1 = _dense(facts.WIDTH, facts.INNER)
        self.fc2 = _dense(facts.INNER, facts.WIDTH)
        self.output_norm = _norm()
        self.dropout = nn.Dropout(facts.DROPOUT)

    def forward(self, x: paddle.Tensor, mask: paddle.Tensor) -> paddle.Tensor:
        width = facts.WIDTH // facts.HEADS
        query, key, value = (
            part(x).reshape([0, 0, facts.HEADS, width]).transpose([0, 2, 1, 3])
            for part in (self.query, self.key, self.value)
        )
        scores = paddle.matmul(query * width**-0.5, key, transpose_y=True) + mask
        attended = paddle.matmul(self.dropout(functional.softmax(scores)), value)
        attended = attended.transpose([0, 2, 1, 3]).reshape([0, 0, facts.WIDTH])
        x = self.attention_norm(x + self.dropout(self.out_proj(attended)))
        y = self.fc2(functional.gelu(self.fc1(x)))
        return self.output_norm(x + self.dropout(y))


class Bert(nn.Layer):
    """Ids, segments and mask of batch x length, and the positions of masked words of batch x P,
    to logits of (batch * P) x vocabulary for the words and batch x 2 for the next sentence."""

    inputs = 4
    attention = "unfused"

    def __init__(self) -> None:
        super().__init__()
        self.word_embeddings = _embedding(facts.VOCABULARY)
        self.position_embeddings = _embedding(facts.POSITIONS)
        self.token_type_embeddings = _embedding(2)
        self.embedding_norm = _norm()
        self.dropout = nn.Dropout(facts.DROPOUT)
        self.layers = nn.LayerList([Layer() for _ in range(facts.LAYERS)])
        self.pooler = _dense(facts.WIDTH, facts.WIDTH)
        self.seq_relationship = _dense(facts.WIDTH, 2)
        self.transform = _dense(facts.WIDTH, facts.WIDTH)
        self.transform_norm = _norm()
        self.decoder_bias = self.create_parameter([facts.VOCABULARY], is_bias=True)

    def forward(
        self,
        ids: paddle.Tensor,
        segments: paddle.Tensor,
        mask: paddle.Tensor,
        masked_positions: paddle.Tensor,
    ) -> tuple[paddle.Tensor, paddle.Tensor]:
        batch, length = ids.shape
        positions = self.position_embeddings(paddle.arange(length))
        x = self.word_embeddings(ids) + positions + self.token_type_embeddings(segments)
        x = self.dropout(self.embedding_norm(x))
        added = (1 - mask.astype(x.dtype)).reshape([batch, 1, 1, length]) * facts.MASKED
        for layer in self.layers:
            x = layer(x, added)
        nsp_logits = self.seq_relationship(paddle.tanh(self.pooler(x[:, 0])))

        rows = masked_positions + paddle.arange(batch).unsqueeze(1) * length
        masked = paddle.gather(x.reshape([-1, facts.WIDTH]), rows.flatten())
        masked = self.transform_norm(functional.gelu(self.transform(masked)))
        mlm_logits = paddle.matmul(masked, self.word_embeddings.weight, transpose_y=True)
        return mlm_logits + self.decoder_bias, nsp_logits

    def loss(
        self,
        logits: tuple[paddle.Tensor, paddle.Tensor],
        masked_ids: paddle.Tensor,
        next_sentence: paddle.Tensor,
    ) -> paddle.Tensor:
        """Mean over the masked words of the batch plus mean over its pairs of sentences."""
        mlm_logits, nsp_logits = logits
        return functional.cross_entropy(
            mlm_logits, masked_ids.flatten(), ignore_index=facts.PADDING
        ) + functional.cross_entropy(nsp_logits, next_sentence)
