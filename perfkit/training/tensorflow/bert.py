"""BERT pre-training on masked words and next sentences, with Hugging Face's names (Devlin et
al., BERT: pre-training of deep bidirectional transformers, 2018)."""

import tensorflow as tf
from tensorflow import Tensor, Variable

from perfkit.training.models import BERT_SIZE, BertSize
from perfkit.training.tensorflow.layers import (
    Dropout,
    Embedding,
    Layer,
    LayerNorm,
    Linear,
    gelu,
)

EPSILON = 1e-12


class Embeddings(tf.Module):
    def __init__(self, size: BertSize) -> None:
        super().__init__()
        self.word_embeddings = Embedding(size.vocabulary, size.width)
        self.position_embeddings = Embedding(size.positions, size.width)
        self.token_type_embeddings = Embedding(2, size.width)
        self.LayerNorm = LayerNorm(size.width, EPSILON)
        self.dropout = Dropout(size.dropout)

    def __call__(self, ids: Tensor, segments: Tensor, training: bool) -> Tensor:
        positions = self.position_embeddings.weight[: ids.shape[1]]
        x = self.word_embeddings(ids) + positions + self.token_type_embeddings(segments)
        return self.dropout(self.LayerNorm(x), training)


class SelfAttention(Layer):
    def __init__(self, size: BertSize) -> None:
        super().__init__()
        self.heads = size.heads
        self.query = Linear(size.width, size.width)
        self.key = Linear(size.width, size.width)
        self.value = Linear(size.width, size.width)
        self.dropout = Dropout(size.dropout)

    def by_head(self, x: Tensor) -> Tensor:
        """Divide the width among the heads: batch x heads x length x width of one head."""
        batch, length, _width = x.shape
        return tf.transpose(tf.reshape(x, (batch, length, self.heads, -1)), (0, 2, 1, 3))

    def __call__(self, x: Tensor, mask: Tensor, training: bool) -> Tensor:
        query, key, value = (
            self.by_head(product(x)) for product in (self.query, self.key, self.value)
        )
        query *= query.shape[-1] ** -0.5
        scores = tf.matmul(query, key, transpose_b=True)
        weights = tf.nn.softmax(tf.cast(scores, mask.dtype) + mask)
        weights = self.dropout(weights, training)
        y = tf.matmul(self.factor(weights), value)
        return tf.reshape(tf.transpose(y, (0, 2, 1, 3)), x.shape)


class Output(tf.Module):
    """The product, dropout, sum and norm that end both halves of a layer."""

    def __init__(self, inputs: int, size: BertSize) -> None:
        super().__init__()
        self.dense = Linear(inputs, size.width)
        self.LayerNorm = LayerNorm(size.width, EPSILON)
        self.dropout = Dropout(size.dropout)

    def __call__(self, y: Tensor, x: Tensor, training: bool) -> Tensor:
        y = self.dropout(self.dense(y), training)
        return self.LayerNorm(x + tf.cast(y, x.dtype))


class Attention(tf.Module):
    def __init__(self, size: BertSize) -> None:
        super().__init__()
        self.self = SelfAttention(size)
        self.output = Output(size.width, size)

    def __call__(self, x: Tensor, mask: Tensor, training: bool) -> Tensor:
        return self.output(self.self(x, mask, training), x, training)


class Intermediate(tf.Module):
    def __init__(self, size: BertSize) -> None:
        super().__init__()
        self.dense = Linear(size.width, 4 * size.width)

    def __call__(self, x: Tensor) -> Tensor:
        return gelu(self.dense(x))


class EncoderLayer(tf.Module):
    def __init__(self, size: BertSize) -> None:
        super().__init__()
        self.attention = Attention(size)
        self.intermediate = Intermediate(size)
        self.output = Output(4 * size.width, size)

    def __call__(self, x: Tensor, mask: Tensor, training: bool) -> Tensor:
        x = self.attention(x, mask, training)
        return self.output(self.intermediate(x), x, training)


class Encoder(tf.Module):
    def __init__(self, size: BertSize) -> None:
        super().__init__()
        self.layer = [EncoderLayer(size) for _ in range(size.layers)]

    def __call__(self, x: Tensor, mask: Tensor, training: bool) -> Tensor:
        for layer in self.layer:
            x = layer(x, mask, training)
        return x


class Pooler(tf.Module):
    def __init__(self, size: BertSize) -> None:
        super().__init__()
        self.dense = Linear(size.width, size.width)

    def __call__(self, x: Tensor) -> Tensor:
        return tf.tanh(self.dense(x[:, 0]))


class BertModel(tf.Module):
    def __init__(self, size: BertSize) -> None:
        super().__init__()
        self.embeddings = Embeddings(size)
        self.encoder = Encoder(size)
        self.pooler = Pooler(size)

    def __call__(
        self, ids: Tensor, segments: Tensor, mask: Tensor, training: bool
    ) -> tuple[Tensor, Tensor]:
        x = self.embeddings(ids, segments, training)
        # Added to the attention scores: 0, and for padding a large negative number.
        added = (1 - tf.cast(mask[:, None, None], x.dtype)) * -1e4
        x = self.encoder(x, added, training)
        return x, self.pooler(x)


class Transform(tf.Module):
    def __init__(self, size: BertSize) -> None:
        super().__init__()
        self.dense = Linear(size.width, size.width)
        self.LayerNorm = LayerNorm(size.width, EPSILON)

    def __call__(self, x: Tensor) -> Tensor:
        return self.LayerNorm(gelu(self.dense(x)))


class Predictions(Layer):
    """The head of masked words, which shares the embedding's weights."""

    def __init__(self, size: BertSize) -> None:
        super().__init__()
        self.transform = Transform(size)
        self.bias = Variable(tf.zeros(size.vocabulary, self.variable_dtype))

    def __call__(self, x: Tensor, word_embeddings: Variable) -> Tensor:
        batch, predictions, width = x.shape
        rows = tf.reshape(self.transform(x), (-1, width))
        table = self.factor(word_embeddings)
        y = tf.matmul(self.factor(rows), table, transpose_b=True)
        y = tf.nn.bias_add(y, self.factor(self.bias))
        return tf.reshape(y, (batch, predictions, -1))


class Heads(tf.Module):
    def __init__(self, size: BertSize) -> None:
        super().__init__()
        self.predictions = Predictions(size)
        self.seq_relationship = Linear(size.width, 2)


class BertForPreTraining(tf.Module):
    def __init__(self, size: BertSize = BERT_SIZE) -> None:
        super().__init__()
        self.bert = BertModel(size)
        self.cls = Heads(size)
        for variable in self.trainable_variables:
            if variable.shape.rank == 2:
                initial = tf.random.normal(variable.shape, 0.0, 0.02, variable.dtype)
                variable.assign(initial)

    def __call__(
        self,
        ids: Tensor,
        segments: Tensor,
        mask: Tensor,
        positions: Tensor,
        training: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Return the logits of the words at the masked `positions` (batch x predictions x
        vocabulary) and of the next sentence (batch x 2). `ids`, `segments` and `mask`, which is
        0 for padding, are batch x length."""
        x, pooled = self.bert(ids, segments, mask, training)
        masked = tf.gather(x, positions, axis=1, batch_dims=1)
        words = self.cls.predictions(masked, self.bert.embeddings.word_embeddings.weight)
        sentences = self.cls.seq_relationship(pooled)
        return tf.cast(words, x.dtype), tf.cast(sentences, x.dtype)
