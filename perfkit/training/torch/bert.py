"""BERT pre-training on masked words and next sentences, with Hugging Face's names (Devlin et
al., BERT: pre-training of deep bidirectional transformers, 2018)."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from perfkit.training.models import BERT_SIZE, BertSize

EPSILON = 1e-12


class Embeddings(nn.Module):
    def __init__(self, size: BertSize) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(size.vocabulary, size.width)
        self.position_embeddings = nn.Embedding(size.positions, size.width)
        self.token_type_embeddings = nn.Embedding(2, size.width)
        self.LayerNorm = nn.LayerNorm(size.width, EPSILON)
        self.dropout = nn.Dropout(size.dropout)

    def forward(self, ids: Tensor, segments: Tensor) -> Tensor:
        positions = self.position_embeddings.weight[: ids.shape[1]]
        x = self.word_embeddings(ids) + positions + self.token_type_embeddings(segments)
        return self.dropout(self.LayerNorm(x))


class SelfAttention(nn.Module):
    def __init__(self, size: BertSize) -> None:
        super().__init__()
        self.heads = size.heads
        self.dropout = size.dropout
        self.query = nn.Linear(size.width, size.width)
        self.key = nn.Linear(size.width, size.width)
        self.value = nn.Linear(size.width, size.width)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        query, key, value = (
            product(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for product in (self.query, self.key, self.value)
        )
        dropout = self.dropout if self.training else 0.0
        y = functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask.to(query.dtype), dropout_p=dropout
        )
        return y.transpose(1, 2).flatten(2)


class Output(nn.Module):
    """The product, dropout, sum and norm that end both halves of a layer."""

    def __init__(self, inputs: int, size: BertSize) -> None:
        super().__init__()
        self.dense = nn.Linear(inputs, size.width)
        self.LayerNorm = nn.LayerNorm(size.width, EPSILON)
        self.dropout = nn.Dropout(size.dropout)

    def forward(self, y: Tensor, x: Tensor) -> Tensor:
        return self.LayerNorm(x + self.dropout(self.dense(y)))


class Attention(nn.Module):
    def __init__(self, size: BertSize) -> None:
        super().__init__()
        self.self = SelfAttention(size)
        self.output = Output(size.width, size)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.output(self.self(x, mask), x)


class Intermediate(nn.Module):
    def __init__(self, size: BertSize) -> None:
        super().__init__()
        self.dense = nn.Linear(size.width, 4 * size.width)

    def forward(self, x: Tensor) -> Tensor:
        return functional.gelu(self.dense(x))


class Layer(nn.Module):
    def __init__(self, size: BertSize) -> None:
        super().__init__()
        self.attention = Attention(size)
        self.intermediate = Intermediate(size)
        self.output = Output(4 * size.width, size)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.attention(x, mask)
        return self.output(self.intermediate(x), x)


class Encoder(nn.Module):
    def __init__(self, size: BertSize) -> None:
        super().__init__()
        self.layer = nn.ModuleList(Layer(size) for _ in range(size.layers))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        for layer in self.layer:
            x = layer(x, mask)
        return x


class Pooler(nn.Module):
    def __init__(self, size: BertSize) -> None:
        super().__init__()
        self.dense = nn.Linear(size.width, size.width)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.dense(x[:, 0]))


class BertModel(nn.Module):
    def __init__(self, size: BertSize) -> None:
        super().__init__()
        self.embeddings = Embeddings(size)
        self.encoder = Encoder(size)
        self.pooler = Pooler(size)

    def forward(self, ids: Tensor, segments: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        x = self.embeddings(ids, segments)
        # Added to the attention scores: 0, and for padding a number that float16 has too.
        added = (1 - mask[:, None, None].to(x.dtype)) * -1e4
        x = self.encoder(x, added)
        return x, self.pooler(x)


class Transform(nn.Module):
    def __init__(self, size: BertSize) -> None:
        super().__init__()
        self.dense = nn.Linear(size.width, size.width)
        self.LayerNorm = nn.LayerNorm(size.width, EPSILON)

    def forward(self, x: Tensor) -> Tensor:
        return self.LayerNorm(functional.gelu(self.dense(x)))


class Predictions(nn.Module):
    """The head of masked words, which shares the embedding's weights."""

    def __init__(self, size: BertSize) -> None:
        super().__init__()
        self.transform = Transform(size)
        self.bias = nn.Parameter(torch.zeros(size.vocabulary))

    def forward(self, x: Tensor, word_embeddings: Tensor) -> Tensor:
        return functional.linear(self.transform(x), word_embeddings, self.bias)


class Heads(nn.Module):
    def __init__(self, size: BertSize) -> None:
        super().__init__()
        self.predictions = Predictions(size)
        self.seq_relationship = nn.Linear(size.width, 2)


class BertForPreTraining(nn.Module):
    def __init__(self, size: BertSize = BERT_SIZE) -> None:
        super().__init__()
        self.bert = BertModel(size)
        self.cls = Heads(size)
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif parameter.ndim == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(
        self, ids: Tensor, segments: Tensor, mask: Tensor, positions: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the logits of the words at the masked `positions` (batch x predictions x
        vocabulary) and of the next sentence (batch x 2). `ids`, `segments` and `mask`, which is
        0 for padding, are batch x length."""
        x, pooled = self.bert(ids, segments, mask)
        masked = x[torch.arange(len(x), device=x.device)[:, None], positions]
        words = self.cls.predictions(masked, self.bert.embeddings.word_embeddings.weight)
        return words, self.cls.seq_relationship(pooled)
