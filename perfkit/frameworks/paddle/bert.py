"""BERT-base pre-training in Paddle: masked words and next sentence.

Devlin et al., BERT: pre-training of deep bidirectional transformers, 2018: 12 layers of
width 768 with 12 heads, normalization after each addition, GELU, vocabulary 30522. The words'
scores reuse the embedding's weights. 110,106,428 trainable parameters.

Attention is written out, as in the published runs: Paddle 2's fused one has no CPU kernel.
"""

import paddle
from paddle import nn
from paddle.nn import functional

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


def _linear(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, weight_attr=nn.initializer.TruncatedNormal(std=DEVIATION))


def _embedding(size: int) -> nn.Embedding:
    return nn.Embedding(size, WIDTH, weight_attr=nn.initializer.TruncatedNormal(std=DEVIATION))


class Layer(nn.Layer):
    """Self-attention and a dense block of batch x length x width, each added and normalized."""

    def __init__(self) -> None:
        super().__init__()
        self.query = _linear(WIDTH, WIDTH)
        self.key = _linear(WIDTH, WIDTH)
        self.value = _linear(WIDTH, WIDTH)
        self.join = _linear(WIDTH, WIDTH)
        self.norm_attention = nn.LayerNorm(WIDTH, EPSILON)
        self.widen = _linear(WIDTH, INNER)
        self.narrow = _linear(INNER, WIDTH)
        self.norm_dense = nn.LayerNorm(WIDTH, EPSILON)
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, x: paddle.Tensor, mask: paddle.Tensor) -> paddle.Tensor:
        query, key, value = (
            part(x).reshape([0, 0, HEADS, WIDTH // HEADS]).transpose([0, 2, 1, 3])
            for part in (self.query, self.key, self.value)
        )
        scores = paddle.matmul(query * (WIDTH // HEADS) ** -0.5, key, transpose_y=True) + mask
        attended = paddle.matmul(self.dropout(functional.softmax(scores)), value)
        attended = attended.transpose([0, 2, 1, 3]).reshape([0, 0, WIDTH])
        x = self.norm_attention(x + self.dropout(self.join(attended)))
        y = self.narrow(functional.gelu(self.widen(x)))
        return self.norm_dense(x + self.dropout(y))


class Bert(nn.Layer):
    """Ids, segments and mask of batch x length, and the positions of masked words of batch x P,
    to the words' scores of (batch * P) x vocabulary and the pairs' scores of batch x 2."""

    inputs = 4

    def __init__(self) -> None:
        super().__init__()
        self.word = _embedding(VOCABULARY)
        self.position = _embedding(POSITIONS)
        self.segment = _embedding(2)
        self.norm = nn.LayerNorm(WIDTH, EPSILON)
        self.dropout = nn.Dropout(DROPOUT)
        self.layers = nn.LayerList([Layer() for _ in range(LAYERS)])
        self.pool = _linear(WIDTH, WIDTH)
        self.next_sentence = _linear(WIDTH, 2)
        self.transform = _linear(WIDTH, WIDTH)
        self.norm_transform = nn.LayerNorm(WIDTH, EPSILON)
        self.word_bias = self.create_parameter([VOCABULARY], is_bias=True)

    def forward(
        self,
        ids: paddle.Tensor,
        segments: paddle.Tensor,
        mask: paddle.Tensor,
        masked_positions: paddle.Tensor,
    ) -> tuple[paddle.Tensor, paddle.Tensor]:
        batch, length = ids.shape
        x = self.word(ids) + self.position(paddle.arange(length)) + self.segment(segments)
        x = self.dropout(self.norm(x))
        added = (1 - mask.astype(x.dtype)).reshape([batch, 1, 1, length]) * MASKED
        for layer in self.layers:
            x = layer(x, added)
        pairs = self.next_sentence(paddle.tanh(self.pool(x[:, 0])))

        places = masked_positions + paddle.arange(batch).unsqueeze(1) * length
        words = paddle.gather(x.reshape([-1, WIDTH]), places.flatten())
        words = self.norm_transform(functional.gelu(self.transform(words)))
        return paddle.matmul(words, self.word.weight, transpose_y=True) + self.word_bias, pairs

    def loss(
        self,
        scores: tuple[paddle.Tensor, paddle.Tensor],
        masked_ids: paddle.Tensor,
        next_sentence: paddle.Tensor,
    ) -> paddle.Tensor:
        """Mean over the masked words of the batch plus mean over its pairs."""
        words, pairs = scores
        return functional.cross_entropy(
            words, masked_ids.flatten(), ignore_index=PADDING
        ) + functional.cross_entropy(pairs, next_sentence)

    def accuracy(
        self,
        scores: tuple[paddle.Tensor, paddle.Tensor],
        masked_ids: paddle.Tensor,
        _next_sentence: paddle.Tensor,
    ) -> paddle.Tensor:
        """The share of masked words that have the highest score."""
        words, wanted = scores[0], masked_ids.flatten()
        used = (wanted != PADDING).astype("float32")
        return ((words.argmax(-1) == wanted).astype("float32") * used).sum() / used.sum()
