"""BERT pre-training on masked words and next sentences, with Hugging Face's names (Devlin et
al., BERT: pre-training of deep bidirectional transformers, 2018)."""

import paddle
from paddle import ParamAttr, Tensor, nn
from paddle.nn import functional
from paddle.nn.initializer import Normal

from perfkit.training.models import BERT_SIZE, BertSize
from perfkit.training.paddle.attention import attention

EPSILON = 1e-12


def normal() -> ParamAttr:
    return ParamAttr(initializer=Normal(std=0.02))


class Embeddings(nn.Layer):
    def __init__(self, size: BertSize) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(size.vocabulary, size.width, weight_attr=normal())
        self.position_embeddings = nn.Embedding(
            size.positions, size.width, weight_attr=normal()
        )
        self.token_type_embeddings = nn.Embedding(2, size.width, weight_attr=normal())
        self.LayerNorm = nn.LayerNorm(size.width, EPSILON)
        self.dropout = nn.Dropout(size.dropout)

    def forward(self, ids: Tensor, segments: Tensor) -> Tensor:
        positions = self.position_embeddings.weight[: ids.shape[1]]
        x = self.word_embeddings(ids) + positions + self.token_type_embeddings(segments)
        return self.dropout(self.LayerNorm(x))


class SelfAttention(nn.Layer):
    def __init__(self, size: BertSize) -> None:
        super().__init__()
        self.heads = size.heads
        self.dropout = size.dropout
        self.query = nn.Linear(size.width, size.width, normal())
        self.key = nn.Linear(size.width, size.width, normal())
        self.value = nn.Linear(size.width, size.width, normal())

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        query, key, value = (
            product(x).reshape([0, 0, self.heads, -1])
            for product in (self.query, self.key, self.value)
        )
        dropout = self.dropout if self.training else 0.0
        return attention(query, key, value, mask, dropout)


class Output(nn.Layer):
    """The product, dropout, sum and norm that end both halves of a layer."""

    def __init__(self, inputs: int, size: BertSize) -> None:
        super().__init__()
        self.dense = nn.Linear(inputs, size.width, normal())
        self.LayerNorm = nn.LayerNorm(size.width, EPSILON)
        self.dropout = nn.Dropout(size.dropout)

    def forward(self, y: Tensor, x: Tensor) -> Tensor:
        return self.LayerNorm(x + self.dropout(self.dense(y)))


class Attention(nn.Layer):
    def __init__(self, size: BertSize) -> None:
        super().__init__()
        self.self = SelfAttention(size)
        self.output = Output(size.width, size)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.output(self.self(x, mask), x)


class Intermediate(nn.Layer):
    def __init__(self, size: BertSize) -> None:
        super().__init__()
        self.dense = nn.Linear(size.width, 4 * size.width, normal())

    def forward(self, x: Tensor) -> Tensor:
        return functional.gelu(self.dense(x))


class Layer(nn.Layer):
    def __init__(self, size: BertSize) -> None:
        super().__init__()
        self.attention = Attention(size)
        self.intermediate = Intermediate(size)
        self.output = Output(4 * size.width, size)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.attention(x, mask)
        return self.output(self.intermediate(x), x)


class Encoder(nn.Layer):
    def __init__(self, size: BertSize) -> None:
        super().__init__()
        self.layer = nn.LayerList([Layer(size) for _ in range(size.layers)])

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        for layer in self.layer:
            x = layer(x, mask)
        return x


class Pooler(nn.Layer):
    def __init__(self, size: BertSize) -> None:
        super().__init__()
        self.dense = nn.Linear(size.width, size.width, normal())

    def forward(self, x: Tensor) -> Tensor:
        return paddle.tanh(self.dense(x[:, 0]))


class BertModel(nn.Layer):
    def __init__(self, size: BertSize) -> None:
        super().__init__()
        self.embeddings = Embeddings(size)
        self.encoder = Encoder(size)
        self.pooler = Pooler(size)

    def forward(self, ids: Tensor, segments: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        x = self.embeddings(ids, segments)
        # Added to the attention scores: 0, and for padding a number that float16 has too.
        added = (1 - mask.astype(x.dtype).unsqueeze([1, 2])) * -1e4
        x = self.encoder(x, added)
        return x, self.pooler(x)


class Transform(nn.Layer):
    def __init__(self, size: BertSize) -> None:
        super().__init__()
        self.dense = nn.Linear(size.width, size.width, normal())
        self.LayerNorm = nn.LayerNorm(size.width, EPSILON)

    def forward(self, x: Tensor) -> Tensor:
        return self.LayerNorm(functional.gelu(self.dense(x)))


class Predictions(nn.Layer):
    """The head of masked words, which shares the embedding's weights."""

    def __init__(self, size: BertSize) -> None:
        super().__init__()
        self.transform = Transform(size)
        self.bias = self.create_parameter([size.vocabulary], is_bias=True)

    def forward(self, x: Tensor, word_embeddings: Tensor) -> Tensor:
        return paddle.matmul(self.transform(x), word_embeddings, transpose_y=True) + self.bias


class Heads(nn.Layer):
    def __init__(self, size: BertSize) -> None:
        super().__init__()
        self.predictions = Predictions(size)
        self.seq_relationship = nn.Linear(size.width, 2, normal())


class BertForPreTraining(nn.Layer):
    def __init__(self, size: BertSize = BERT_SIZE) -> None:
        super().__init__()
        self.bert = BertModel(size)
        self.cls = Heads(size)

    def forward(
        self, ids: Tensor, segments: Tensor, mask: Tensor, positions: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the logits of the words at the masked `positions` (batch x predictions x
        vocabulary) and of the next sentence (batch x 2). `ids`, `segments` and `mask`, which is
        0 for padding, are batch x length."""
        x, pooled = self.bert(ids, segments, mask)
        masked = paddle.take_along_axis(x, positions.unsqueeze(-1), axis=1)
        words = self.cls.predictions(masked, self.bert.embeddings.word_embeddings.weight)
        return words, self.cls.seq_relationship(pooled)
